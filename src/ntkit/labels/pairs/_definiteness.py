"""How far a symmetric matrix is from positive semidefinite, and what makes it so."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit.solvers import check_gram, factorize_exactly

__all__ = ["Definiteness", "definiteness", "shift_needed"]


@dataclass(frozen=True)
class Definiteness:
    """What of a Gram matrix is negative.

    Attributes
    ----------
    smallest
        The smallest eigenvalue.
    shift
        What to add to the diagonal where that is negative: twice its absolute value, so that the smallest eigenvalue
        changes its sign. Zero where nothing is needed.
    ridge
        The same relative to trace(K)/n; infinite where the trace is not positive, and no ridge can be in proportion to it.
    """

    smallest: float
    shift: float
    ridge: float


def definiteness(gram: Tensor) -> Definiteness:
    """Find the smallest eigenvalue of a Gram matrix, shape (n, n), in float64, and what it needs to be definite.

    All eigenvalues are computed, which costs as much as some four factorisations. Iterations that find the smallest alone take
    as long: the low end of a kernel's spectrum is crowded.

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
    """Return the shift of :func:`definiteness` for a regression with a ridge, looking for no eigenvalues where it is not needed.

    Where K + r/2 trace(K)/n I has a Cholesky factor, no eigenvalue of K takes away more than half of the ridge: zero.
    """
    return 0.0 if factorize_exactly(gram, ridge / 2) is not None else definiteness(gram).shift
