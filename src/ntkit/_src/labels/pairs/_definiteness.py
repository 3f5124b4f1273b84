"""How far a symmetric matrix is from being positive semidefinite, and what would make it so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.solvers import check_gram, factorize_exactly

__all__ = ["Definiteness", "definiteness", "shift_needed"]


@dataclass(frozen=True)
class Definiteness:
    """The negative part of a Gram matrix.

    Attributes
    ----------
    smallest
        The smallest eigenvalue.
    shift
        What to add to the diagonal if that is negative: twice its absolute value, so that the smallest eigenvalue
        changes sign. Zero if nothing is needed.
    ridge
        The same relative to trace(K)/n; infinite if the trace is not positive, since no ridge can be proportional to it.
    """

    smallest: float
    shift: float
    ridge: float


def definiteness(gram: Tensor) -> Definiteness:
    """Find the smallest eigenvalue of a Gram matrix, shape (n, n), in float64, and what it needs to be definite.

    All eigenvalues are computed, which costs as much as about four factorisations. Iterations that find only the smallest
    take as long, because the low end of a kernel's spectrum is crowded.

    Examples
    --------
    >>> definiteness(torch.tensor([[1.0, 2.0], [2.0, 1.0]]))
    Definiteness(smallest=-1.0, shift=2.0, ridge=2.0)
    """
    matrix = check_gram(gram).detach()
    smallest = float(torch.linalg.eigvalsh(matrix.double())[0])
    shift = 2 * max(0.0, -smallest)
    scale = float(matrix.diagonal().double().mean())
    return Definiteness(smallest, shift, shift / scale if scale > 0 else math.inf)


def shift_needed(gram: Tensor, ridge: float) -> float:
    """Return the shift of :func:`definiteness` for a regression with a ridge, without computing eigenvalues if not needed.

    If K + r/2 trace(K)/n I has a Cholesky factor, no eigenvalue of K offsets more than half of the ridge: the shift is zero.
    """
    return 0.0 if factorize_exactly(gram, ridge / 2) is not None else definiteness(gram).shift
