"""Checks of the inputs that reach a kernel."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._shown import shown

__all__ = [
    "all_finite",
    "check_batches",
    "check_finite",
    "check_input_size",
    "check_integers",
    "check_pair",
    "check_result",
    "check_tensor",
]


def check_batches(x1: Tensor, x2: Tensor | None) -> None:
    """Refuse inputs that have no kernel.

    Raises
    ------
    InputTypeError
        Not tensors, not floating point, or of different dtypes or devices.
    InputError
        No batch dimension, no rows, no features, shapes that differ, NaN or infinite values.
    """
    batches = {"x": x1} if x2 is None else {"x1": x1, "x2": x2}
    for name, x in batches.items():
        _check_kind(name, x)
    if x2 is not None:
        check_pair(x1, x2)
    for name, x in batches.items():
        check_finite(name, x)


def check_integers(x1: Tensor, x2: Tensor | None) -> None:
    """Refuse integer inputs that have no kernel: no rows, no batch dimension, shapes or dtypes that differ."""
    batches = {"x": x1} if x2 is None else {"x1": x1, "x2": x2}
    for name, x in batches.items():
        check_tensor(name, x)
        if x.ndim == 0 or len(x) == 0:
            raise InputError(f"{name} must have rows. Got shape {tuple(x.shape)}.")
    if x2 is not None:
        check_pair(x1, x2)


def check_pair(x1: Tensor, x2: Tensor) -> None:
    """Refuse two batches that differ in dtype, device or the shape of an input."""
    if x1.dtype != x2.dtype:
        raise InputTypeError(
            f"x1 and x2 must have the same dtype. Got {x1.dtype} and {x2.dtype}. Write x2.to(x1.dtype)."
        )
    if x1.device != x2.device:
        raise InputTypeError(
            f"x1 and x2 must be on the same device. Got {x1.device} and {x2.device}. Write x2.to(x1.device)."
        )
    if x1.shape[1:] != x2.shape[1:]:
        raise InputError(
            f"x1 and x2 must have the same shape except for the batch. Got {tuple(x1.shape)} and {tuple(x2.shape)}."
        )


def check_tensor(name: str, x: object) -> None:
    """Refuse anything but a plain tensor with values: other types, and sparse, quantised and ``meta`` tensors.

    Raises
    ------
    InputTypeError
        The message says what to write instead.
    """
    if x is None:
        raise InputTypeError(f"{name} must be a torch.Tensor. Got None: pass the inputs.")
    if not isinstance(x, Tensor):
        raise InputTypeError(f"{name} must be a torch.Tensor. Got {type(x).__name__}. Write torch.as_tensor({name}).")
    if x.device.type == "meta":
        raise InputTypeError(f"{name} must hold values. Got a tensor on the device meta, which has only a shape.")
    if x.is_quantized:
        raise InputTypeError(f"{name} must not be quantised. Got {x.dtype}. Write {name}.dequantize().")
    if x.layout != torch.strided:
        raise InputTypeError(f"{name} must be a dense tensor. Got {x.layout}. Write {name}.to_dense().")


def _check_kind(name: str, x: Tensor) -> None:
    check_tensor(name, x)
    if x.is_complex():
        raise InputTypeError(
            f"{name} must be real. Got {x.dtype}. Write torch.view_as_real({name}).flatten(1) for real and imaginary parts "
            "as features."
        )
    if not x.is_floating_point():
        raise InputTypeError(
            f"{name} must be a floating-point tensor. Got {x.dtype}. Write {name}.double() or {name}.float()."
        )
    if x.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(
            f"{name} must be float32 or float64: half precision cannot hold a kernel. Got {x.dtype}. Write {name}.float()."
        )
    if x.ndim < 2:
        raise InputError(
            f"{name} must have a batch dimension and at least one more, shape (n, features) or (n, channels, ...). "
            f"Got shape {tuple(x.shape)}. Write {name}[None] for one input."
        )
    if x.numel() == 0:
        raise InputError(f"{name} must have at least one row and one feature. Got shape {tuple(x.shape)}.")


def all_finite(values: Tensor) -> bool:
    """Return whether every value is finite: min and max propagate NaN, so no mask is needed."""
    return values.numel() == 0 or all(math.isfinite(extreme) for extreme in torch.aminmax(values.detach()))


def check_finite(name: str, x: Tensor) -> None:
    """Refuse NaN and infinite values, naming the first row that has one."""
    if not all_finite(x):
        bad = ~torch.isfinite(x.detach())
        row = int(bad.flatten(1).any(1).nonzero()[0])
        raise InputError(
            f"{name} must be finite. Got NaN or infinite values in {int(bad.flatten(1).any(1).sum())} of {len(x)} rows, "
            f"the first in row {row}. Remove or impute them."
        )


def check_input_size(input_shape: Sequence[int]) -> tuple[int, ...]:
    """Return the shape of one input as a tuple, or raise an error that says what is wrong with it."""
    sizes = tuple(input_shape) if isinstance(input_shape, Sequence) else ()
    if not sizes or not all(isinstance(size, int) and size > 0 for size in sizes):
        batch = isinstance(input_shape, (Tensor, np.ndarray)) and input_shape.ndim > 1
        raise InputError(
            "input_shape must be the positive lengths of one input without its batch, such as (784,) or (3, 32, 32). "
            f"Got {shown(input_shape)}." + (" For a batch x write tuple(x.shape[1:])." if batch else "")
        )
    return sizes


def check_result(values: Tensor) -> None:
    """Refuse a kernel that overflowed its dtype: very large finite inputs give infinite or NaN values."""
    if not all_finite(values):
        raise InputError(
            f"the inputs, or the gains w_std and b_std, are too large: the kernel is beyond the range of {values.dtype}. "
            "Scale the inputs, x / x.abs().max()."
        )
