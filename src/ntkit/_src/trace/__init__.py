"""Tracing: an ordinary ``torch.nn.Module`` read as a program."""

from . import (  # noqa: F401  (fill the registry)
    _arithmetic,
    _channels,
    _dot_product,
    _linear,
    _matrix,
    _multi_head_attention,
    _norm,
    _pool,
    _refusals,
    _self_attention,
    _shapes,
    _tokens,
    _transformer,
    _transposed,
    _upsample,
)
from ._adapt import Adapted, Change, adapt
from ._deterministic import check_deterministic, fixed
from ._gains import B_STD, W_STD, GainRule, Init
from ._registry import supported_layers
from ._trace import Tracer
from ._values import Weight

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
