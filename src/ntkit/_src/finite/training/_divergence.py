"""Detection of diverged training, and the learning rate that would have been stable."""

from __future__ import annotations

import math
import warnings

import torch
from torch import Tensor

from ntkit._src.common import largest_eigenvalue
from ntkit.errors import DivergenceWarning

from ._trained_function import TrainedFunction

# In the catapult phase (Lewkowycz et al. 2020) the loss grows by the order of the width before it falls again.
_GROWTH = 1e6


def has_diverged(value: float, first: float, n: int) -> bool:
    """Return whether a loss is not finite, or beyond a million times the larger of the first loss and 1 per point."""
    return not value <= _GROWTH * max(first, float(n))


def stable_learning_rate(function: TrainedFunction) -> float | None:
    r"""Return the learning rate below which gradient descent is stable at the start, None if no bound is known.

    It is :math:`2 (1 + m) / (c\, \kappa^2 \lambda_{max}(\Theta))` with momentum m, the curvature c of the loss with respect to
    the outputs, and the empirical tangent kernel :math:`\Theta` of the training points (Golikov et al. 2022, section 6.1.2), by
    the Lanczos method on products with :math:`\Theta`, which is never formed.
    """
    schedule, curvature = function.schedule, function.loss.curvature
    if curvature is None or schedule.method == "adam":
        return None
    theta = function.theta0.detach()

    def product(vector: Tensor) -> Tensor:
        with torch.enable_grad():
            point = theta.clone().requires_grad_()
            outputs = function.outputs(point)
            probe = torch.zeros_like(outputs, requires_grad=True)
            # The gradient is linear in the probe, so its derivative with respect to the probe is a product with the Jacobian.
            (pulled,) = torch.autograd.grad(outputs, point, probe, create_graph=True)
            (along,) = torch.autograd.grad(outputs, point, vector.view_as(outputs), retain_graph=True)
            (pushed,) = torch.autograd.grad(pulled, probe, along)
        return pushed.reshape(-1)

    size = function.outputs(theta).numel()
    largest = largest_eigenvalue(product, size, theta, tol=1e-3)
    return 2 * (1 + (schedule.momentum or 0.0)) / (curvature * largest) if largest > 0 else None


def warn_diverged(function: TrainedFunction, step: int, first: float, value: float) -> str:
    """Warn that training diverged, name a learning rate that would have been stable, and return the status."""
    schedule = function.schedule
    status = f"Training diverged and was stopped after {step} steps: L went from {first:.3g} to {value:.3g}"
    rate = stable_learning_rate(function)
    if rate is not None and math.isfinite(rate):
        advice = (
            f"at the start gradient descent is stable below learning_rate = {rate:.3g}, got {schedule.learning_rate:g}"
        )
    else:
        advice = f"use a smaller learning_rate than {schedule.learning_rate:g}"
    warnings.warn(f"{status}. {advice[0].upper()}{advice[1:]}.", DivergenceWarning, stacklevel=5)
    return f"{status}; {advice}."
