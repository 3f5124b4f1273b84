"""The losses to train with: always sums over the training points, so that f' = -Theta dL/df."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from ntkit.errors import InputError, InputTypeError

__all__ = ["Loss", "loss_function"]

Loss = Literal["mse", "cross_entropy", "binary_cross_entropy"] | Callable[[Tensor, Tensor], Tensor]


def loss_function(loss: Loss, y: Tensor, f: Tensor) -> Callable[[Tensor, Tensor], Tensor]:
    """Give L(f, y), the sum over the rows, after a look at targets and outputs.

    Parameters
    ----------
    loss
        A name, or a function of outputs and targets.
    y
        Targets, one for each row.
    f
        The network's outputs, to compare shapes with.
    """
    if callable(loss):
        value = loss(f, y)
        if not isinstance(value, Tensor) or value.numel() != 1:
            raise InputError("loss must give one number: the sum of the losses of the rows. Got something else.")
        return lambda outputs, targets: loss(outputs, targets).reshape(())
    if loss == "mse":
        _check_shape(y, f)
        return lambda outputs, targets: 0.5 * (outputs - targets).square().sum()
    if loss == "binary_cross_entropy":
        _check_shape(y, f)
        if not bool(((y >= 0) & (y <= 1)).all()):
            raise InputError(f"y must lie between 0 and 1. Got values from {float(y.min())} to {float(y.max())}.")
        return lambda outputs, targets: F.binary_cross_entropy_with_logits(outputs, targets, reduction="sum")
    if loss == "cross_entropy":
        _check_classes(y, f)
        return lambda outputs, targets: F.cross_entropy(outputs, targets, reduction="sum")
    raise InputError(
        f'loss must be "mse", "cross_entropy", "binary_cross_entropy" or a function of outputs and targets. Got {loss!r}.'
    )


def _check_shape(y: Tensor, f: Tensor) -> None:
    if y.shape != f.shape:
        hint = "Write y[:, None]." if y.ndim == 1 and f.shape == (len(y), 1) else ""
        raise InputError(
            f"y must have the shape of the module's output, {tuple(f.shape)}. Got {tuple(y.shape)}. {hint}".rstrip()
        )
    if y.dtype != f.dtype:
        raise InputTypeError(
            f"y must have the dtype of the module's output, {f.dtype}. Got {y.dtype}. Write y.to(f.dtype)."
        )


def _check_classes(y: Tensor, f: Tensor) -> None:
    if f.ndim != 2 or f.shape[1] < 2:
        raise InputError(
            f"cross_entropy needs outputs of shape (n, classes), at least two classes. Got {tuple(f.shape)}. "
            'For one output use loss="binary_cross_entropy".'
        )
    if y.is_floating_point():
        _check_shape(y, f)
        return
    if y.dtype != torch.int64 or y.shape != f.shape[:1]:
        raise InputError(
            f"y must be classes, int64 of shape ({len(f)},), or probabilities of shape {tuple(f.shape)}. "
            f"Got {y.dtype} of shape {tuple(y.shape)}."
        )
    if int(y.min()) < 0 or int(y.max()) >= f.shape[1]:
        raise InputError(f"classes must be from 0 to {f.shape[1] - 1}. Got {int(y.min())} to {int(y.max())}.")
