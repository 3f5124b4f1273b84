"""Tracing: an ordinary ``torch.nn.Module`` read as a program."""

from . import matchers  # noqa: F401  (fills the registry)
from ._gains import B_STD, W_STD, GainRule, Init
from ._parameters import check_deterministic, fixed
from ._trace import Tracer
from ._values import Weight
from .adaptation import Adapted, Change, adapt
from .matchers._registry import supported_layers

__all__ = [
    "B_STD",
    "W_STD",
    "Adapted",
    "Change",
    "GainRule",
    "Init",
    "Tracer",
    "Weight",
    "adapt",
    "check_deterministic",
    "fixed",
    "supported_layers",
]
