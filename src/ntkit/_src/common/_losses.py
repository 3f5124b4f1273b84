"""Losses of the outputs on the training points: value, gradient, curvature, and targets.

Every loss is a **sum** over the training points, so that gradient flow moves the outputs by f' = -Theta dL/df. Kernels
(:class:`ntkit.GradientFlow`) and finite networks (:func:`ntkit.train`) share these definitions.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor
from torch.nn import functional as F

from ntkit.errors import InputError, InputTypeError

from ._arguments import check_choice, shown
from ._batches import check_right_hand_side, check_tensor

__all__ = ["Loss", "LossFunction", "find_loss", "read_output_targets", "read_targets"]

LossFunction = Callable[[Tensor, Tensor], Tensor]
"""Takes outputs and targets of the same shape, (n,) or (n, k), and returns the loss summed over the points, a scalar."""


@dataclass(frozen=True)
class Loss:
    """A loss L(f, y) summed over the training points."""

    name: str
    value: LossFunction  # L as a function of outputs and targets, each of shape (n, k)
    slope: Callable[[Tensor, Tensor], Tensor]  # dL/df, shape (n, k)
    curvature: float | None  # a bound on the largest eigenvalue of the Hessian of L with respect to f; None if unknown
    closed_form: bool = False  # whether training has a closed-form solution


# The Hessian of cross-entropy with respect to one point's logits is diag(p) - p p^T <= 1/2; p (1 - p) <= 1/4.
_LOSSES = {
    "mse": Loss("mse", lambda f, y: (f - y).square().sum() / 2, lambda f, y: f - y, 1.0, closed_form=True),
    "cross_entropy": Loss(
        "cross_entropy",
        lambda f, y: -(y * F.log_softmax(f, dim=1)).sum(),
        lambda f, y: torch.softmax(f, dim=1) - y,
        0.5,
    ),
    "binary_cross_entropy": Loss(
        "binary_cross_entropy",
        partial(F.binary_cross_entropy_with_logits, reduction="sum"),
        lambda f, y: torch.sigmoid(f) - y,
        0.25,
    ),
}


def find_loss(loss: str | LossFunction) -> Loss:
    """Return the named loss, or wrap a user's function, whose gradient torch computes."""
    if isinstance(loss, str):
        check_choice("loss", loss, _LOSSES, ", or a function of outputs and targets")
        return _LOSSES[loss]
    if not callable(loss):
        raise InputTypeError(
            f"loss must be a name or a function of outputs and targets. Got {shown(loss)} of type {type(loss).__name__}."
        )
    return Loss(getattr(loss, "__name__", type(loss).__name__), loss, _slope_of(loss), None)


def _slope_of(loss: LossFunction) -> Callable[[Tensor, Tensor], Tensor]:
    def slope(f: Tensor, y: Tensor) -> Tensor:
        with torch.enable_grad():
            outputs = f.detach().requires_grad_()
            value = loss(outputs, y)
            if not isinstance(value, Tensor) or value.numel() != 1 or not value.requires_grad:
                raise InputTypeError(
                    "loss must return a tensor of one element, the sum over the points, that torch can differentiate with "
                    f"respect to the outputs. Got {shown(value)}."
                )
            (gradient,) = torch.autograd.grad(value.reshape(()), outputs)
        return gradient

    return slope


def read_targets(loss: Loss, y: Tensor, gram: Tensor) -> Tensor:
    """Return the targets in the Gram matrix's dtype, classes as one-hot rows, or raise an error that says what is wrong."""
    check_tensor("y", y)
    if y.ndim not in (1, 2) or len(y) != len(gram) or y.numel() == 0:
        raise InputError(
            f"y must have shape (n,) or (n, k) with n = {len(gram)}, the training points. Got shape {tuple(y.shape)}."
        )
    if loss.name == "cross_entropy" and y.ndim == 1:
        if y.is_floating_point() or y.dtype == torch.bool or int(y.min()) < 0:
            raise InputTypeError(
                "for cross-entropy y must hold classes, integers from 0 on of shape (n,), or probabilities of shape (n, k). "
                f"Got {y.dtype} of shape {tuple(y.shape)}: write y.long()."
            )
        return F.one_hot(y.long(), max(2, int(y.max()) + 1)).to(gram)
    check_right_hand_side(y, gram)
    _check_values(loss, y)
    return y.detach()


def read_output_targets(loss: Loss, y: Tensor, outputs: Tensor) -> Tensor:
    """Return the targets for a network's outputs, shape (n, ...), classes as one-hot rows, or raise an error.

    A user-defined loss takes the targets unchanged.
    """
    check_tensor("y", y)
    if len(y) != len(outputs):
        raise InputError(f"y must have one target for each of the {len(outputs)} inputs. Got {len(y)}.")
    if loss.curvature is None:
        _check_values(loss, y)
        return y
    if loss.name == "cross_entropy" and (outputs.ndim != 2 or outputs.shape[1] < 2):
        raise InputError(
            f"cross_entropy needs outputs of shape (n, classes), at least two classes. Got {tuple(outputs.shape)}. "
            'For one output use loss="binary_cross_entropy".'
        )
    if loss.name == "cross_entropy" and not y.is_floating_point():
        return F.one_hot(_classes(y, outputs), outputs.shape[1]).to(outputs)
    if y.shape != outputs.shape:
        hint = "Write y[:, None]." if y.ndim == 1 and outputs.shape == (len(y), 1) else ""
        raise InputError(
            f"y must have the shape of the module's output, {tuple(outputs.shape)}. Got {tuple(y.shape)}. {hint}".rstrip()
        )
    if y.dtype != outputs.dtype:
        raise InputTypeError(
            f"y must have the dtype of the module's output, {outputs.dtype}. Got {y.dtype}. Write y.to({outputs.dtype})."
        )
    _check_values(loss, y)
    return y


def _check_values(loss: Loss, y: Tensor) -> None:
    if y.is_floating_point() and not bool(torch.isfinite(y).all()):
        raise InputError("y must be finite. Got NaN or infinite values: remove those rows first.")
    if loss.curvature is None or not loss.name.endswith("cross_entropy"):
        return
    if not (float(y.min()) >= 0 and float(y.max()) <= 1):
        raise InputError(f"for {loss.name} y must lie between 0 and 1. Got {float(y.min())} to {float(y.max())}.")
    if loss.name == "cross_entropy" and not torch.allclose(y.sum(1), y.new_ones(()), rtol=0, atol=1e-4):
        raise InputError("for cross-entropy the rows of y must be probabilities that add up to one.")


def _classes(y: Tensor, outputs: Tensor) -> Tensor:
    if y.dtype != torch.int64 or y.shape != outputs.shape[:1]:
        raise InputError(
            f"y must be classes, int64 of shape ({len(outputs)},), or probabilities of shape {tuple(outputs.shape)}. "
            f"Got {y.dtype} of shape {tuple(y.shape)}."
        )
    if int(y.min()) < 0 or int(y.max()) >= outputs.shape[1]:
        raise InputError(f"classes must be from 0 to {outputs.shape[1] - 1}. Got {int(y.min())} to {int(y.max())}.")
    return y
