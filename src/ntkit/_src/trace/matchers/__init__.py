"""Matchers: one file for each family of layers, entered in one registry."""

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
