"""Modules of this library that users put into their networks."""

from ._elementwise import Elementwise
from ._self_attention import SelfAttention, WrongInput

__all__ = ["Elementwise", "SelfAttention", "WrongInput"]
from ._fourier_features import FourierFeatures

__all__ = [
    "FourierFeatures",
]
