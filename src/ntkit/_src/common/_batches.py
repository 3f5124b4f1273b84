"""Checks of tensors: the inputs that reach a kernel, targets, class labels; rows of features folded to inputs."""

from __future__ import annotations

import math
from math import prod

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

__all__ = [
    "all_finite",
    "as_columns",
    "check_batches",
    "check_finite",
    "check_integers",
    "check_labels",
    "check_pair",
    "check_result",
    "check_right_hand_side",
    "check_tensor",
    "class_numbers",
    "fold_rows",
]


def check_batches(x1: Tensor, x2: Tensor | None) -> None:
    """Refuse inputs that have no kernel: not finite float tensors (n, features, ...), or two that do not fit together."""
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
        if x.ndim == 0 or x.numel() == 0:
            raise InputError(f"{name} must have at least one row. Got shape {tuple(x.shape)}.")
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
    """Refuse anything but a plain tensor with values: other types, and sparse, quantised and ``meta`` tensors."""
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
    """Return whether every value is finite."""
    # A finite sum has finite terms; another may have overflowed. Least and greatest values propagate NaN: no mask is needed.
    if values.numel() == 0 or (values.dtype.is_floating_point and math.isfinite(values.detach().sum())):
        return True
    return all(math.isfinite(extreme) for extreme in torch.aminmax(values.detach()))


def check_finite(name: str, x: Tensor) -> None:
    """Refuse NaN and infinite values, naming the first row that has one."""
    if not all_finite(x):
        bad = ~torch.isfinite(x.detach())
        row = int(bad.flatten(1).any(1).nonzero()[0])
        raise InputError(
            f"{name} must be finite. Got NaN or infinite values in {int(bad.flatten(1).any(1).sum())} of {len(x)} rows, "
            f"the first in row {row}. Remove or impute them."
        )


def check_result(values: Tensor) -> None:
    """Refuse a kernel that overflowed its dtype: very large finite inputs give infinite or NaN values."""
    if not all_finite(values):
        raise InputError(
            f"the inputs, or the gains w_std and b_std, are too large: the kernel is beyond the range of {values.dtype}. "
            "Scale the inputs, x / x.abs().max()."
        )


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


def as_columns(values: Tensor) -> Tensor:
    """Return (n,) as (n, 1), and (n, k) unchanged."""
    return values if values.ndim == 2 else values[:, None]


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


def check_labels(name: str, y: Tensor, n: int, device: torch.device) -> None:
    """Refuse anything that cannot be the class labels of n points, shape (n,); labels may be any real numbers."""
    check_tensor(name, y)
    if y.is_complex():
        raise InputTypeError(f"{name} must be real numbers, one for each class. Got {y.dtype}.")
    if y.shape != (n,):
        hint = ""
        if y.ndim == 2 and len(y) == n:
            hint = f" Write {name}[:, 0]." if y.shape[1] == 1 else f" Write {name}.argmax(1) for one column per class."
        raise InputError(f"{name} must have shape ({n},), one class for each point. Got shape {tuple(y.shape)}.{hint}")
    if y.device != device:
        raise InputTypeError(
            f"{name} must be on {device}, as the kernel is. Got {y.device}. Write {name}.to({device})."
        )
    if y.is_floating_point() and not bool(torch.isfinite(y).all()):
        raise InputError(
            f"{name} must be finite. Got NaN or infinite labels in {int((~torch.isfinite(y)).sum())} rows."
        )


def class_numbers(y1: Tensor, y2: Tensor | None = None) -> tuple[Tensor, Tensor, int]:
    """Return labels (n1,) and (n2,) as class indices in ascending order, and how many classes; ``y2=None``: ``y2 = y1``."""
    both = y1 if y2 is None else torch.cat([y1, y2.to(torch.promote_types(y1.dtype, y2.dtype))])
    classes, numbers = torch.unique(both, return_inverse=True)
    return numbers[: len(y1)], numbers if y2 is None else numbers[len(y1) :], len(classes)
