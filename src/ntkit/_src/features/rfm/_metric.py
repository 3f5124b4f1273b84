"""The metric M of a recursive feature machine, computed from an average gradient outer product."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

__all__ = ["Metric", "Scale", "metric_from"]

Scale = Literal["max", "trace"] | None


@dataclass(frozen=True)
class Metric:
    """A positive semidefinite matrix M and its root.

    Attributes
    ----------
    matrix, root
        M and M^1/2, shape (d, d), or their diagonals, shape (d,).
    """

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
