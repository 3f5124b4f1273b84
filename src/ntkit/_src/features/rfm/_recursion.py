"""The recursion: regress, take the predictor's gradients, compute the metric from them, regress again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.solvers import Solution, best_factor

from ._metric import Metric, Scale, metric_from
from ._metric_kernels import MetricKernel

__all__ = ["RFMSettings", "RFMState", "recursion"]


@dataclass(frozen=True)
class RFMSettings:
    """The settings of a recursion.

    Attributes
    ----------
    kernel
        Kernel of transformed points.
    iterations
        Number of updates of the metric.
    ridge
        Relative to trace(K)/n.
    power
        M = AGOP^power.
    diagonal
        Whether M is diagonal.
    center_gradients
        Whether the mean gradient is subtracted first.
    scale
        Which quantity of M is scaled to 1.
    """

    kernel: MetricKernel
    iterations: int
    ridge: float
    power: float
    diagonal: bool
    center_gradients: bool
    scale: Scale


@dataclass(frozen=True)
class RFMState:
    """The predictor after some updates of the metric.

    Attributes
    ----------
    metric
        M.
    kernel
        The kernel with its bandwidth set.
    points
        The transformed training points, shape (n, d).
    solution
        ``value`` is a, shape (n, c).
    residual
        The mean squared error on the training points.
    """

    metric: Metric
    kernel: MetricKernel
    points: Tensor
    solution: Solution
    residual: float

    def predict(self, x: Tensor) -> Tensor:
        """Return f(x) = k(M^1/2 x, M^1/2 X) a, shape (m, c)."""
        return self.kernel.gram(self.metric.transform(x), self.points) @ self.solution.value


def recursion(x: Tensor, y: Tensor, settings: RFMSettings) -> Iterator[RFMState]:
    """Yield the predictor for M = I, and after each update of the metric.

    Parameters
    ----------
    x
        Shape (n, d).
    y
        Shape (n, c).
    settings
        The settings.
    """
    metric = Metric.identity(x.shape[1], settings.diagonal, x)
    for iteration in range(settings.iterations + 1):
        u = metric.transform(x)
        kernel, gram = settings.kernel.fit(u)
        _, solution = best_factor(gram, y, settings.ridge)
        residual = float((gram @ solution.value - y).square().mean())
        yield RFMState(metric, kernel, u, solution, residual)
        if iteration < settings.iterations:
            gradients = kernel.gradients(u, gram, solution.value)
            metric = metric_from(_agop(gradients, metric, settings), settings.power, settings.scale) or metric


def _agop(gradients: Tensor, metric: Metric, settings: RFMSettings) -> Tensor:
    """Return the average gradient outer product in x of gradients in u = M^1/2 x, shape (n, c, d), or its diagonal."""
    if settings.center_gradients:
        gradients = gradients - gradients.mean(0)
    flat = gradients.reshape(-1, gradients.shape[2])
    n = len(gradients)
    if metric.root.ndim == 1:
        return (flat * metric.root).square().sum(0) / n
    inner = torch.mm(flat.T, flat) / n
    product = metric.root @ inner @ metric.root
    return (product + product.T) / 2
