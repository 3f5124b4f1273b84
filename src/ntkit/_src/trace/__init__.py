"""Tracing: an ordinary ``torch.nn.Module`` read as a program."""

from . import matchers
from ._gains import B_STD, W_STD, GainRule, Init
from ._packed import Arguments
from ._parameters import check_deterministic, fixed
from ._trace import Tracer
from ._values import Weight
from .adaptation import Adapted, Change, adapt
from .matchers._registry import supported_layers
