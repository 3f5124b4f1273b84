"""Outputs of a classifier as classes, and its error rate."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from ntkit._src.common import check_finite, check_labels, check_tensor, class_numbers, evaluation_mode
from ntkit.errors import InputError, InputTypeError

__all__ = ["check_classes", "check_points", "error_rate", "outputs_of", "predicted"]


def check_points(name: str, x: Tensor) -> None:
    """Refuse anything but valid inputs of a module: a tensor with rows and finite values. Integers are tokens."""
    check_tensor(name, x)
    if x.ndim < 2 or x.numel() == 0:
        raise InputError(f"{name} must have shape (n, ...) with at least one row. Got {tuple(x.shape)}.")
    if x.is_floating_point():
        check_finite(name, x)


def outputs_of(module: nn.Module, x: Tensor, batch_size: int = 1024) -> Tensor:
    """Return the outputs in evaluation mode, shape (n, k); one output has k = 1."""
    with torch.no_grad(), evaluation_mode(module):
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
    check_labels(name, y, len(outputs), outputs.device)
    k = outputs.shape[1]
    if k == 1:
        numbers, _, classes = class_numbers(y)
        if classes != 2:
            raise InputError(f"{name} must have two classes for a module of one output. Got {classes}.")
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
