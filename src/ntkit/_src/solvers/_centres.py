"""Representative rows of a Gram matrix: pivots of a partial Cholesky factorisation, and centres of a Nystrom approximation."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal, get_args

import torch
from torch import Tensor

from ntkit._src.common import check_choice, check_integer, shown
from ntkit._src.gram import GramOperator
from ntkit.errors import InputError, SingularKernelError

from ._lapack import reliable_pivots

Pivoting = Literal["random", "greedy", "uniform"]
Centres = Literal["uniform", "rpcholesky", "leverage", "kmeans++"]
_POOL, _LEAST_POOL = 10, 2000  # candidates per centre, and at least
_LARGEST_JITTER = {torch.float32: 1e-3, torch.float64: 1e-6}
_BLOCK = 32
_EXHAUSTED = 1e-14  # fraction of the trace: the remainder below it is rounding


@dataclass(frozen=True)
class PivotedCholesky:
    """K is near F F^T, F computed from the rows ``pivots`` of K in the order in which they were chosen."""

    factor: Tensor  # F, shape (n, r), float64
    pivots: Tensor  # shape (r,)
    left: float  # trace(K - F F^T) / trace(K)


def pivoted_cholesky(
    gram: GramOperator, rank: int, pivoting: Pivoting = "random", generator: torch.Generator | None = None
) -> PivotedCholesky:
    """Approximate a positive semidefinite matrix from at most ``rank`` of its columns; only these and the diagonal are read.

    Blocks of columns are chosen by what is left of the diagonal: in proportion to it (Chen et al. 2023), or the largest. Inside a
    block, candidates are accepted as if they were chosen one at a time (Epperly, Tropp, Webber 2024).
    """
    n = gram.shape[0]
    diagonal = gram.diagonal().double().clone()
    trace = float(diagonal.sum())
    factor = torch.zeros(n, rank, dtype=torch.float64, device=gram.device)
    pivots: list[Tensor] = []
    used, block = 0, max(_BLOCK, rank // 8)
    taken = torch.zeros(n, dtype=torch.bool, device=gram.device)
    while used < rank and trace > 0 and float(diagonal.sum()) > _EXHAUSTED * trace:
        chosen = _choose(diagonal, taken, min(block, rank - used), pivoting, generator)
        if not len(chosen):
            break
        before = factor[:, :used]
        square = gram.block(chosen.cpu(), chosen.cpu()).double() - before[chosen] @ before[chosen].T
        lower, kept = _accept(square, pivoting, generator)
        if not len(kept):  # the remainder is rounding
            break
        chosen = chosen[kept]
        taken[chosen] = True
        columns = gram.block(None, chosen.cpu()).double() - before @ before[chosen].T
        added = torch.linalg.solve_triangular(lower, columns.T, upper=False).T
        factor[:, used : used + len(chosen)] = added
        diagonal = (diagonal - added.square().sum(1)).clamp_min_(0)
        diagonal[taken] = 0
        pivots.append(chosen)
        used += len(chosen)
    found = torch.cat(pivots) if pivots else torch.zeros(0, dtype=torch.long)
    left = float(diagonal.sum()) / trace if trace > 0 else 0.0
    return PivotedCholesky(factor[:, :used], found.cpu(), left)


def _choose(
    diagonal: Tensor, taken: Tensor, wanted: int, pivoting: Pivoting, generator: torch.Generator | None
) -> Tensor:
    """Return up to ``wanted`` rows that were not taken, each once."""
    weights = diagonal.clone()
    if pivoting == "uniform":
        weights = (~taken).double()
    there = int((weights > 0).sum())
    if not there:
        return torch.zeros(0, dtype=torch.long, device=diagonal.device)
    if pivoting == "greedy":
        return torch.topk(weights, min(wanted, there)).indices
    return weighted_draw(weights, min(wanted, there), generator)


def weighted_draw(weights: Tensor, count: int, generator: torch.Generator | None) -> Tensor:
    """Draw rows in proportion to weights of shape (n,), each at most once; torch.multinomial is limited to 2^24 rows."""
    # The first of exponential clocks with these rates to ring are such a draw.
    clocks = torch.empty(len(weights), dtype=torch.float64).exponential_(generator=generator).to(weights.device)
    return torch.topk(torch.where(weights > 0, clocks / weights, torch.inf), count, largest=False).indices


def _accept(square: Tensor, pivoting: Pivoting, generator: torch.Generator | None) -> tuple[Tensor, Tensor]:
    """Factorise the remainder of the candidates, dropping those that the others already span."""
    kept: list[int] = []
    largest = float(square.diagonal().max())
    lower = torch.zeros_like(square)
    lots = torch.rand(len(square), generator=generator, dtype=torch.float64).tolist()
    for row in range(len(square)):
        solved = torch.zeros(0, dtype=square.dtype, device=square.device)
        if kept:
            part = lower[: len(kept), : len(kept)]
            solved = torch.linalg.solve_triangular(part, square[kept, row][:, None], upper=False)[:, 0]
        before = float(square[row, row])
        pivot = before - float(solved @ solved)
        least = {"random": lots[row], "greedy": 0.5, "uniform": 0.0}[pivoting]
        if pivot > max(least * before, 1e-10 * largest):
            lower[len(kept), : len(kept)] = solved
            lower[len(kept), len(kept)] = pivot**0.5
            kept.append(row)
    size = len(kept)
    return lower[:size, :size], torch.tensor(kept, dtype=torch.long, device=square.device)


def choose_centres(
    gram: GramOperator,
    n_centres: int,
    how: Centres = "rpcholesky",
    ridge: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Choose centres among the rows of a Gram matrix; this reads at most 10 M x M of its entries, 2,000 x M for small M.

    All methods but "uniform" look at 10 M rows, at least 2,000, drawn uniformly. "rpcholesky": pivots of the randomly pivoted
    Cholesky factorisation (Chen et al. 2023). "leverage": drawn in proportion to approximate ridge leverage scores
    :math:`\ell_i = k_{ii} - k_{iS} (K_{SS} + \mu I)^{-1} k_{Si}` from M rows S drawn uniformly (Musco and Musco 2017), with
    :math:`\mu` = ridge trace(K)/n. "kmeans++": each drawn in proportion to its squared distance, in the kernel's feature space,
    from those drawn before (Arthur and Vassilvitskii 2007).

    Returns distinct row numbers, shape (M,); fewer if the kernel cannot tell that many rows apart.
    """
    n = gram.shape[0]
    if n_centres > n:
        raise InputError(
            f"n_centres must be at most n = {n}, the number of rows. Got {n_centres}: with as many centres as rows use "
            "method='cholesky'."
        )
    check_choice("centres", how, get_args(Centres), ", or row numbers")
    if how == "uniform":
        return _draw(n, n_centres, generator)
    pool = _draw(n, min(n, max(_POOL * n_centres, _LEAST_POOL)), generator)
    part = gram.restricted(pool)
    if how == "rpcholesky":
        return pool[pivoted_cholesky(part, n_centres, "random", generator).pivots]
    if how == "kmeans++":
        return pool[_spread(part, n_centres, generator)]
    return pool[_leveraged(part, n_centres, ridge, generator)]


def default_centres(n: int) -> int:
    """Return the default number M of centres: 2,000 up to 250,000 rows.

    A solution takes a time of n M^2. Beyond, M falls so that this time stays the same, down to 1,000: at a million rows the order
    of sqrt(n) loses nothing of the rate of learning (Rudi et al. 2015).
    """
    return min(n, max(1000, min(2000, round(2000 * math.sqrt(250_000 / n)))))


def find_centres(
    gram: GramOperator, n_centres: int | None, centres: Centres | Tensor, ridge: float, seed: int
) -> Tensor:
    """Return the row numbers of the centres that :class:`Nystrom` and :class:`Falkon` are asked for, shape (M,)."""
    n = gram.shape[0]
    if not isinstance(centres, Tensor):
        m = default_centres(n) if n_centres is None else check_integer("n_centres", n_centres, 1)
        return choose_centres(gram, m, centres, ridge, torch.Generator().manual_seed(seed))
    rows = centres.cpu().long()
    inside = rows.ndim == 1 and len(rows) > 0 and int(rows.min()) >= 0 and int(rows.max()) < n
    if not inside or len(rows.unique()) < len(rows):
        raise InputError(
            f"centres must be row numbers from 0 to {n - 1}, each once, shape (M,). Got {shown(centres)}: leave them out and "
            "pass n_centres."
        )
    return rows


def factorise_centres(gram: GramOperator, centres: Tensor, scale: float) -> tuple[Tensor, float]:
    """Return L with L L^T = K_MM + jitter trace(K)/n I in float64, and the smallest jitter that works."""
    square = gram.block(centres, centres).cpu().double()
    square = (square + square.T) / 2
    eps, largest = torch.finfo(gram.dtype).eps, _LARGEST_JITTER[gram.dtype]
    # Rounding of float32 entries looks like small eigenvalues, by which one must not divide.
    jitter = 0.0 if gram.dtype == torch.float64 else 4 * eps
    while jitter <= largest:
        shifted = square.clone()
        shifted.diagonal().add_(jitter * scale)
        lower, info = torch.linalg.cholesky_ex(shifted)
        if not int(info) and reliable_pivots(lower, shifted.diagonal()):
            return lower, jitter
        jitter = max(10 * jitter, 4 * eps)
    raise SingularKernelError(
        f"the matrix K_MM of the {len(centres)} centres stays singular with a jitter of {largest:.0e} trace(K)/n: are centres "
        "repeated, or is the kernel not positive semidefinite? Choose them with centres='rpcholesky', or use fewer."
    )


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
