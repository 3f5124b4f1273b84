"""Conversion of rows of features, as in scikit-learn and GPyTorch, to the batches that a kernel takes."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._shown import shown

__all__ = ["check_input_shape", "fold_rows"]


def check_input_shape(input_shape: Sequence[int] | None) -> tuple[int, ...] | None:
    """Return ``input_shape`` as a tuple of positive integers (or None), or raise an error that says what is wrong."""
    if input_shape is None:
        return None
    try:
        shape = tuple(int(size) for size in input_shape if int(size) == size and not isinstance(size, bool))
        complete = len(shape) == len(input_shape)
    except (TypeError, ValueError):
        shape, complete = (), False
    if not complete:
        raise InputTypeError(
            f"input_shape must be None or a tuple of integers such as (3, 32, 32). Got {shown(input_shape)}."
        )
    if not shape or min(shape) < 1:
        raise InputError(
            f"input_shape must hold at least one size, all positive, such as (3, 32, 32). Got {shown(input_shape)}."
        )
    return shape


def fold_rows(rows: Tensor, input_shape: tuple[int, ...] | None) -> Tensor:
    """Reshape (n, features) to (n, *input_shape); None leaves the rows unchanged."""
    if input_shape is None:
        return rows
    if rows.shape[1] != prod(input_shape):
        raise InputError(
            f"input_shape={input_shape} needs rows of {prod(input_shape)} features. Got {rows.shape[1]} features: "
            f"flatten each input with x.reshape(len(x), -1), or give the shape of one input, without the batch."
        )
    return rows.reshape(-1, *input_shape)
