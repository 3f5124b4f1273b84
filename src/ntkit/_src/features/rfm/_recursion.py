"""The recursion: regress, take the predictor's gradients, compute the metric from them, regress again."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ntkit._src.solvers import Solution, best_factor

from ._metric_kernels import MetricKernel

Scale = Literal["max", "trace"] | None


@dataclass(frozen=True)
class Metric:
    """A positive semidefinite matrix M and its root M^1/2, shape (d, d), or their diagonals, shape (d,)."""

    matrix: Tensor
    root: Tensor

    @classmethod
    def identity(cls, d: int, diagonal: bool, like: Tensor) -> Metric:
        """Return M = I."""
        one = torch.ones(d).to(like) if diagonal else torch.eye(d).to(like)
        return cls(one, one)

    def transform(self, x: Tensor) -> Tensor:
        """Return M^1/2 x for the rows of x, shape (n, d)."""
        return x * self.root if self.root.ndim == 1 else x @ self.root


def metric_from(agop: Tensor, power: float, scale: Scale) -> Metric | None:
    """Return M = AGOP^power, scaled so that its largest entry is 1, or its trace d; None if the AGOP is zero."""
    if not bool((agop > 0).any()):
        return None
    top = agop.max()
    agop = agop / top  # so that no power overflows
    if agop.ndim == 1:
        matrix, root = agop**power, agop ** (power / 2)
    else:
        values, vectors = torch.linalg.eigh(agop)
        values = values.clamp_min(0)
        matrix = agop if power == 1 else _symmetric(vectors, values**power)
        root = _symmetric(vectors, values ** (power / 2))
    if scale == "max":
        divisor = matrix.max()
    elif scale == "trace":
        divisor = (matrix if matrix.ndim == 1 else matrix.diagonal()).mean()
    else:
        divisor = top**-power
    return Metric(matrix / divisor, root / divisor.sqrt())


def _symmetric(vectors: Tensor, values: Tensor) -> Tensor:
    product: Tensor = (vectors * values) @ vectors.T
    return (product + product.T) / 2


@dataclass(frozen=True)
class RFMSettings:
    """The settings of a recursion.

    Attributes
    ----------
    kernel
        Kernel of transformed points.
    iterations
        Number of updates of the metric.
    ridge, power
        The ridge relative to trace(K)/n; the p of M = AGOP^p.
    diagonal, center_gradients
        Whether M is diagonal; whether the mean gradient is subtracted first.
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
    metric, kernel
        M, and the kernel with its bandwidth set.
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


def recursion(x: Tensor, y: Tensor, settings: RFMSettings, roots: Tensor | None = None) -> Iterator[RFMState]:
    """Yield the predictor of y, shape (n, c), from x, shape (n, d), for M = I and after each update of the metric.

    ``roots``, shape (n,), are square roots of weights, of mean square one, of the points in the squared error and the metric.
    """
    metric = Metric.identity(x.shape[1], settings.diagonal, x)
    each = None if roots is None else roots[:, None]
    for iteration in range(settings.iterations + 1):
        u = metric.transform(x)
        kernel, gram = settings.kernel.fit(u)
        system, targets = (gram, y) if each is None else (each * gram * each.mT, each * y)
        _, solution = best_factor(system, targets, settings.ridge)
        if each is not None:
            solution = replace(solution, value=each * solution.value)
        residual = float((gram @ solution.value - y).square().mean())
        yield RFMState(metric, kernel, u, solution, residual)
        if iteration < settings.iterations:
            gradients = kernel.gradients(u, gram, solution.value)
            gradients = gradients if each is None else each[:, None] * gradients
            metric = metric_from(_agop(gradients, metric, settings), settings.power, settings.scale) or metric


def _agop(gradients: Tensor, metric: Metric, settings: RFMSettings) -> Tensor:
    """Return the average gradient outer product in x of gradients in u = M^1/2 x, shape (n, c, d), or its diagonal."""
    if settings.center_gradients:
        gradients = gradients - gradients.mean(0)
    flat, n = gradients.reshape(-1, gradients.shape[2]), len(gradients)
    if metric.root.ndim == 1:
        return (flat * metric.root).square().sum(0) / n
    inner = torch.mm(flat.T, flat) / n
    product = metric.root @ inner @ metric.root
    return (product + product.T) / 2
