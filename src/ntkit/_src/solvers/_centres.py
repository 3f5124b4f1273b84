"""The choice of centres of a Nystrom approximation."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor

from ntkit._src.common import shown
from ntkit._src.gram import GramOperator
from ntkit.errors import InputError

from ._pivoted_cholesky import pivoted_cholesky, weighted_draw

__all__ = ["Centres", "choose_centres"]

Centres = Literal["uniform", "rpcholesky", "leverage", "kmeans++"]
_POOL, _LEAST_POOL = 10, 2000  # candidates per centre, and at least


def choose_centres(
    gram: GramOperator,
    n_centres: int,
    how: Centres = "rpcholesky",
    ridge: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Choose centres among the rows of a Gram matrix; this reads at most 10 M x M of its entries, 2,000 x M for small M.

    Parameters
    ----------
    gram : GramOperator of shape (n, n)
        K.
    n_centres : int
        M.
    how : {"uniform", "rpcholesky", "leverage", "kmeans++"}, default "rpcholesky"
        All but "uniform" look at 10 M rows, at least 2,000, drawn uniformly. "rpcholesky": pivots of the randomly pivoted
        Cholesky factorisation (Chen et al. 2023). "leverage": drawn in proportion to approximate ridge leverage scores
        :math:`\ell_i = k_{ii} - k_{iS} (K_{SS} + \mu I)^{-1} k_{Si}` from M rows S drawn uniformly (Musco and Musco 2017).
        "kmeans++": each drawn in proportion to its squared distance, in the kernel's feature space, from those drawn before
        (Arthur and Vassilvitskii 2007).
    ridge : float, default 0
        Ridge of the leverage scores, relative to ``trace(K)/n``.
    generator : torch.Generator, optional
        The source of randomness.

    Returns
    -------
    Tensor of shape (M,)
        Distinct row numbers; fewer if the kernel cannot tell that many rows apart.

    Examples
    --------
    >>> import torch
    >>> from ntkit._src.gram import DenseGram
    >>> gram = torch.eye(4).repeat_interleave(25, 0).repeat_interleave(25, 1)  # four points, 25 times each
    >>> sorted((choose_centres(DenseGram(gram), 8) // 25).tolist())
    [0, 1, 2, 3]
    """
    n = gram.shape[0]
    if n_centres > n:
        raise InputError(
            f"n_centres must be at most n = {n}, the number of rows. Got {n_centres}: with as many centres as rows use "
            "method='cholesky'."
        )
    if how not in ("uniform", "rpcholesky", "leverage", "kmeans++"):
        raise InputError(
            f"centres must be 'uniform', 'rpcholesky', 'leverage', 'kmeans++' or row numbers. Got {shown(how)}."
        )
    if how == "uniform":
        return _draw(n, n_centres, generator)
    pool = _draw(n, min(n, max(_POOL * n_centres, _LEAST_POOL)), generator)
    part = gram.restricted(pool)
    if how == "rpcholesky":
        return pool[pivoted_cholesky(part, n_centres, "random", generator).pivots]
    if how == "kmeans++":
        return pool[_spread(part, n_centres, generator)]
    return pool[_leveraged(part, n_centres, ridge, generator)]


def _draw(n: int, count: int, generator: torch.Generator | None) -> Tensor:
    return torch.randperm(n, generator=generator)[:count]


def _spread(gram: GramOperator, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw rows in proportion to their squared distance from those already drawn, several at a time."""
    diagonal = gram.diagonal().double()
    chosen = torch.randint(len(diagonal), (1,), generator=generator)
    nearest = torch.full_like(diagonal, torch.inf)
    added, step = chosen, max(1, count // 64)
    while True:
        cross = gram.block(None, added).double()
        distance = diagonal[:, None] + diagonal[added] - 2 * cross
        nearest = torch.minimum(nearest, distance.min(1).values.clamp_min(0))
        nearest[added] = 0
        wanted = min(step, count - len(chosen))
        there = int((nearest > 1e-12 * float(diagonal.max())).sum())
        if not wanted or not there:
            return chosen
        added = weighted_draw(nearest, min(wanted, there), generator)
        chosen = torch.cat([chosen, added])


def _leveraged(gram: GramOperator, count: int, ridge: float, generator: torch.Generator | None) -> Tensor:
    diagonal = gram.diagonal().double()
    sample = _draw(len(diagonal), count, generator)
    shift = max(ridge, 1e-8) * float(diagonal.mean())
    # A sample of s of p rows represents all of them, so the ridge of its matrix is scaled by s/p.
    square = gram.block(sample, sample).double()
    square.diagonal().add_(shift * count / len(diagonal))
    lower = torch.linalg.cholesky(square)
    cross = gram.block(sample, None).double()
    scores = diagonal - torch.linalg.solve_triangular(lower, cross, upper=False).square().sum(0)
    return weighted_draw(scores.clamp_min(1e-12 * float(diagonal.max())), count, generator)
