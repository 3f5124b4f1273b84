"""Matchers: one file for each family of layers, entered in one registry."""

from . import (
    _arithmetic,
    _channels,
    _convolution,
    _dot_product,
    _linear,
    _matrix,
    _multi_head_attention,
    _norm,
    _pool,
    _positions,
    _refusals,
    _self_attention,
    _shapes,
    _tokens,
    _transformer,
    _upsample,
)
