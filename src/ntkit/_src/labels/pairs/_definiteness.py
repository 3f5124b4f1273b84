"""How far a symmetric matrix is from being positive semidefinite."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.solvers import check_gram

__all__ = ["Definiteness", "definiteness"]

# Rounding moves the eigenvalues of an n x n matrix, n up to some thousands, by a few eps times the largest.
_ROUNDING = 10.0


@dataclass(frozen=True)
class Definiteness:
    """The ends of the spectrum of a Gram matrix.

    Attributes
    ----------
    smallest, largest
        Its smallest and its largest eigenvalue.
    negative
        The number of eigenvalues that are negative by more than rounding.
    """

    smallest: float
    largest: float
    negative: int


def definiteness(gram: Tensor) -> Definiteness:
    """Find the smallest eigenvalue of a Gram matrix, shape (n, n), in float64, and how many are negative.

    All eigenvalues are computed, which costs as much as about four factorisations. Iterations that find only the smallest
    take as long, because the low end of a kernel's spectrum is crowded.

    Examples
    --------
    >>> definiteness(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    Definiteness(smallest=-1.0, largest=3.0, negative=1)
    """
    matrix = check_gram(gram).detach()
    values = torch.linalg.eigvalsh(matrix.double())
    rounding = _ROUNDING * torch.finfo(matrix.dtype).eps * float(values.abs().max())
    return Definiteness(float(values[0]), float(values[-1]), int((values < -rounding).sum()))
