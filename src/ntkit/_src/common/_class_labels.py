"""Checks of class labels, and the indices of the classes."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._batches import check_tensor

__all__ = ["check_labels", "class_numbers"]


def check_labels(name: str, y: Tensor, n: int, device: torch.device) -> None:
    """Refuse anything that cannot be the class labels of n points; labels may be any numbers in one tensor.

    Raises
    ------
    InputTypeError
        Not a tensor, or on another device.
    InputError
        Not of shape (n,), or not finite.
    """
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
    """Return both label vectors as class indices 0, 1, ... in ascending order of the labels, and the number of classes.

    Parameters
    ----------
    y1, y2
        Shape (n1,) and (n2,); ``y2=None`` means ``y2 = y1``.
    """
    both = y1 if y2 is None else torch.cat([y1, y2.to(torch.promote_types(y1.dtype, y2.dtype))])
    classes, numbers = torch.unique(both, return_inverse=True)
    return numbers[: len(y1)], numbers if y2 is None else numbers[len(y1) :], len(classes)
