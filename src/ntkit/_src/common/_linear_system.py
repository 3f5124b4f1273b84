"""Checks of a linear system before any work."""

from __future__ import annotations

import math

import torch
from linear_operator.operators import LinearOperator
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._batches import check_tensor
from ._row_blocks import row_blocks
from ._shown import shown

__all__ = ["check_gram", "check_pairs", "check_ridge", "check_right_hand_side"]

_BLOCK_ROWS = 512  # two blocks fit into the cache


def check_ridge(ridge: float) -> float:
    """Return the ridge as a float, or raise an error that says what is wrong."""
    if isinstance(ridge, bool) or not hasattr(ridge, "__float__"):
        raise InputTypeError(f"ridge must be a number. Got {shown(ridge)} of type {type(ridge).__name__}.")
    value = float(ridge)
    if not (math.isfinite(value) and value >= 0):
        raise InputError(f"ridge must be finite and not negative (it is relative to trace(K)/n). Got {value}.")
    return value


def check_pairs(values: object, shape: tuple[int, ...], call: str = "kernel(x)") -> Tensor:
    """Return what a kernel gave for some points, or raise an error if it is not one number for each pair of them.

    Parameters
    ----------
    values
        What the kernel returned.
    shape
        What it must have: (n1, n2), or (n,) of a diagonal.
    call
        How messages name the call.
    """
    if isinstance(values, Tensor) and tuple(values.shape) == shape:
        return values
    got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    why = "Return one number for each pair of points."
    if isinstance(values, Tensor) and values.ndim == len(shape) and 0 not in shape:
        outputs = values.shape[0] // shape[0]
        if outputs > 1 and tuple(values.shape) == tuple(outputs * n for n in shape):
            why = (
                f'A row for each of {outputs} outputs comes from ntkit.empirical(module, output="full"): write output="trace", '
                "which this function takes, or the index of one output."
            )
    raise InputError(f"{call} must be a tensor of shape {shape}, one number for a pair of points. Got {got}. {why}")


def check_gram(gram: Tensor | LinearOperator) -> Tensor:
    """Return the Gram matrix as a tensor, evaluated if it is stored or implicit, or raise an error that says what is wrong."""
    if isinstance(gram, LinearOperator):
        gram = gram.to_dense()
    check_tensor("gram", gram)
    if gram.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(
            f"the Gram matrix must be float32 or float64. Got {gram.dtype}: write gram.to(torch.float64)."
        )
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
        raise InputError(f"the Gram matrix must have shape (n, n) with n > 0. Got {tuple(gram.shape)}.")
    matrix = gram.detach()
    largest, asymmetry = 0.0, 0.0
    blocks = list(row_blocks(len(matrix), _BLOCK_ROWS))
    for rows in blocks:
        # A NaN or an infinity anywhere shows in the extremes; no mask is needed.
        low, high = torch.aminmax(matrix[rows])
        extreme = max(abs(float(low)), abs(float(high)))
        if not math.isfinite(extreme):
            raise InputError("the Gram matrix has NaN or infinite entries; check the inputs of the kernel.")
        largest = max(largest, extreme)
    for number, rows in enumerate(blocks):
        for columns in blocks[number:]:
            low, high = torch.aminmax(matrix[rows, columns] - matrix[columns, rows].T)
            asymmetry = max(asymmetry, -float(low), float(high))
    if asymmetry > 1e-4 * largest:
        raise InputError(
            f"the Gram matrix must be symmetric. Got entries that differ from their mirror image by up to "
            f"{asymmetry:.1e}, the largest being {largest:.1e}: pass K(x, x), not K(x1, x2)."
        )
    return gram


def check_right_hand_side(y: Tensor, gram: Tensor) -> None:
    """Raise an error if y cannot be the right-hand side of a system with this Gram matrix."""
    check_tensor("y", y)
    if y.ndim not in (1, 2) or y.shape[0] != gram.shape[0] or y.numel() == 0:
        raise InputError(
            f"y must have shape (n,) or (n, k) with n = {gram.shape[0]}, the rows of the Gram matrix. "
            f"Got shape {tuple(y.shape)}."
        )
    if y.dtype != gram.dtype or y.device != gram.device:
        raise InputTypeError(
            f"y must have the dtype and device of the Gram matrix, {gram.dtype} on {gram.device}. "
            f"Got {y.dtype} on {y.device}: write y.to(gram)."
        )
    if not bool(torch.isfinite(y).all()):
        raise InputError("y has NaN or infinite values; remove those rows first.")
