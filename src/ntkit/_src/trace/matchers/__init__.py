"""Matchers: one file for each family of layers, entered in one registry. These import the other files."""

from . import _batch_norm, _dot_product, _linear, _matrix, _norm, _recurrent, _refusals, _shapes, _transformer
