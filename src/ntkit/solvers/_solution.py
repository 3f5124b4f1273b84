"""What every solver returns."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Solution"]


@dataclass(frozen=True)
class Solution:
    """The solution of a linear system, how it was reached, and how good it is.

    Attributes
    ----------
    value
        The solution, shape (n,) or (n, k) like the right-hand side.
    status
        One English sentence: the method, what had to be added to the matrix, the residual.
    stats
        Numbers about the run. Every method gives ``residual``, the largest over the columns of
        ``||A a - y|| / ||y||``; Cholesky adds ``ridge`` and ``jitter`` (both as multiples of ``trace(K)/n``),
        ``scale`` (``trace(K)/n``) and ``refinements`` (steps of iterative refinement that were kept).

    Examples
    --------
    >>> import torch, ntkit
    >>> solution = ntkit.solve(torch.tensor([[2.0, 1.0], [1.0, 2.0]]), torch.tensor([3.0, 3.0]))
    >>> solution.value
    tensor([1., 1.])
    >>> solution.stats["jitter"]
    0.0
    """

    value: Tensor
    status: str
    stats: Mapping[str, float]
