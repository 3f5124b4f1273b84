"""Matchers: one file for each family of layers, entered in one registry."""

from . import (
    _arithmetic,
    _attention,
    _convolution,
    _dot_product,
    _linear,
    _matrix,
    _norm,
    _positions,
    _refusals,
    _shapes,
    _tokens,
    _transformer,
    _upsample,
)
