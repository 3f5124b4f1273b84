"""Sums of kernels, each in a metric of its own."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.kernels import Kernel

from ._metric_kernels import MetricKernel


@dataclass(frozen=True, eq=False)
class MetricPart:
    """A term w k(M^1/2 x, M^1/2 x') of a sum; ``name`` says in words what it is."""

    name: str
    weight: float
    root: Tensor  # M^1/2, shape (d, e), or its diagonal, shape (d,)
    kernel: MetricKernel

    def transform(self, x: Tensor) -> Tensor:
        """Return M^1/2 x for the rows of x, shape (n, d)."""
        root = self.root.to(x)
        return x * root if root.ndim == 1 else x @ root


@dataclass(frozen=True, eq=False)
class MetricSum(Kernel):
    r"""The kernel :math:`\sum_m w_m k_m(M_m^{1/2} (x - c), M_m^{1/2} (x' - c))`, that of the automatic model of tables."""

    parts: tuple[MetricPart, ...]
    center: Tensor | None = None  # c, shape (d,)

    def _rows(self, x: Tensor) -> Tensor:
        return x.flatten(1) if self.center is None else x.flatten(1) - self.center.to(x)

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        rows, others, total = self._rows(x1), None if x2 is None else self._rows(x2), None
        for part in self.parts:
            values = part.kernel.gram(part.transform(rows), None if others is None else part.transform(others))
            # A kernel may keep the matrix that it returns, so the first product is a new one.
            total = part.weight * values if total is None else total.add_(values, alpha=part.weight)
        assert total is not None
        return total

    def diag(self, x: Tensor) -> Tensor:
        rows = self._rows(x)
        return torch.stack([part.weight * part.kernel.diag(part.transform(rows)) for part in self.parts]).sum(0)
