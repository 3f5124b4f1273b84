"""Outputs of a classifier as classes, and its error rate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntkit.errors import InputError, InputTypeError
from ntkit.extending import measuring

__all__ = ["check_classes", "check_labels", "check_module", "check_points", "error_rate", "outputs_of", "predicted"]


def check_module(module: object) -> None:
    """Refuse anything but a module."""
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")


def check_labels(name: str, y: Tensor, n: int) -> None:
    """Refuse anything but one finite label for each of n points."""
    if not isinstance(y, Tensor):
        raise InputTypeError(f"{name} must be a torch.Tensor. Got {type(y).__name__}.")
    if y.shape != (n,):
        raise InputError(f"{name} must have shape ({n},), one class for each point. Got shape {tuple(y.shape)}.")
    if not bool(torch.isfinite(y).all()):
        raise InputError(f"{name} must be finite. Got NaN or infinite labels.")


def check_points(name: str, x: Tensor) -> None:
    """Refuse anything but valid inputs of a module: a tensor with rows and finite values. Integers are tokens."""
    if not isinstance(x, Tensor):
        raise InputTypeError(f"{name} must be a torch.Tensor. Got {type(x).__name__}.")
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(f"{name} must have shape (n, ...) with at least one row. Got {tuple(x.shape)}.")
    if not bool(torch.isfinite(x).all()):
        raise InputError(f"{name} must be finite. Got NaN or infinite values.")


def outputs_of(module: nn.Module, x: Tensor, batch_size: int = 1024) -> Tensor:
    """Return the outputs in evaluation mode, shape (n, k); one output has k = 1."""
    with torch.no_grad(), measuring(module):
        module.eval()
        found = torch.cat([module(part) for part in x.split(batch_size)])
    if found.ndim not in (1, 2):
        raise InputError(
            f"the module must return one row of outputs per input, (n, k) or (n,). Got shape {tuple(found.shape)}."
        )
    return found.reshape(len(x), -1)


def predicted(outputs: Tensor) -> Tensor:
    """Return the class of each row, int64: that of the largest output, or for a single output whether it is positive."""
    return (outputs[:, 0] > 0).long() if outputs.shape[1] == 1 else outputs.argmax(1)


def check_classes(name: str, y: Tensor, outputs: Tensor) -> Tensor:
    """Return the labels as class numbers that fit the outputs, or raise an error that says why they do not."""
    check_labels(name, y, len(outputs))
    k = outputs.shape[1]
    if k == 1:
        numbers: Tensor
        classes, numbers = torch.unique(y, return_inverse=True)
        if len(classes) != 2:
            raise InputError(f"{name} must have two classes for a module of one output. Got {len(classes)}.")
        return numbers
    if y.is_floating_point():
        raise InputTypeError(f"{name} must be whole numbers of classes for a module of {k} outputs. Got {y.dtype}.")
    numbers = y.long()
    if int(numbers.min()) < 0 or int(numbers.max()) >= k:
        raise InputError(
            f"{name} must be classes 0 to {k - 1}, one for each output. Got {int(numbers.min())} to {int(numbers.max())}."
        )
    return numbers


def error_rate(outputs: Tensor, classes: Tensor) -> float:
    """Return the fraction of rows whose predicted class is wrong."""
    return float((predicted(outputs) != classes).double().mean())
