"""Modules of this library that users put into their networks."""

from ._elementwise import Elementwise
from ._fourier_features import FourierFeatures
from ._self_attention import SelfAttention, WrongInput
