"""What every solver returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

from ._status import Status

__all__ = ["Solution"]


@dataclass(frozen=True)
class Solution:
    """The solution of a linear system, how it was reached, and how good it is.

    Attributes
    ----------
    value
        The solution a, shape (n,) or (n, k) like the right-hand side; or (M,) or (M, k) for M centres.
    status
        One English sentence: the method, what had to be added to the matrix, the residual. ``status.outcome``, an
        :class:`~ntkit.solvers.Outcome`, is for programs.
    stats
        Numbers about the run. Every method reports ``residual``, the largest over the columns of
        ``||A a - y|| / ||y||`` for the system A a = y that it solves. Cholesky adds ``ridge`` and ``jitter`` (both as
        multiples of ``trace(K)/n``), ``scale`` (``trace(K)/n``) and ``refinements`` (steps of iterative refinement that
        were kept); :class:`~ntkit.solvers.Indefinite` ``negative``, ``condition`` and ``rank``; methods for
        large n add ``iterations``, ``seconds`` and ``bytes`` (of memory that the method holds), those with centres
        ``misfit``, ``||K_nM a - y|| / ||y||``.
    centres
        For methods with centres their row numbers, shape (M,): f(x) = K(x, X[centres]) a. None: f(x) = K(x, X) a.

    Examples
    --------
    >>> import torch, ntkit
    >>> solution = ntkit.solve(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([3.0, 3.0]))
    >>> solution.value
    tensor([1., 1.])
    >>> solution.stats["jitter"]
    0.0
    >>> solution.status.outcome
    <Outcome.SOLVED: 'solved'>
    """

    value: Tensor
    status: Status
    stats: Mapping[str, float]
    centres: Tensor | None = None
