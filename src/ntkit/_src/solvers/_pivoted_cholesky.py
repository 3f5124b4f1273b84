"""Partial pivoted Cholesky factorisation: a low-rank approximation of a Gram matrix from some of its columns."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from ntkit._src.gram import GramOperator

__all__ = ["PivotedCholesky", "Pivoting", "pivoted_cholesky", "weighted_draw"]

Pivoting = Literal["random", "greedy", "uniform"]
_BLOCK = 32
_EXHAUSTED = 1e-14  # fraction of the trace: the remainder below it is rounding


@dataclass(frozen=True)
class PivotedCholesky:
    """K is near F F^T.

    Attributes
    ----------
    factor
        F, shape (n, r), float64.
    pivots
        The r rows of K that it was computed from, shape (r,), in the order in which they were chosen.
    left
        trace(K - F F^T) / trace(K).
    """

    factor: Tensor
    pivots: Tensor
    left: float


def pivoted_cholesky(
    gram: GramOperator, rank: int, pivoting: Pivoting = "random", generator: torch.Generator | None = None
) -> PivotedCholesky:
    """Approximate a positive semidefinite matrix from ``rank`` of its columns; only these and the diagonal are read.

    Columns are chosen in blocks by the remaining diagonal, d = diag(K - F F^T): at random in proportion to it (randomly
    pivoted Cholesky, Chen et al. 2023: close to the best approximation of this rank in expectation), or the largest.
    Inside a block, a candidate is kept with a probability equal to the fraction of its d that remains after those kept before
    it (Epperly, Tropp, Webber 2024), so that blocks choose as single columns would, and only columns that are kept are read.

    Parameters
    ----------
    gram : GramOperator of shape (n, n)
        The matrix.
    rank : int
        Maximum number of columns; fewer if nothing but rounding is left of the matrix.
    pivoting : {"random", "greedy", "uniform"}, default "random"
        How they are chosen.
    generator : torch.Generator, optional
        For "random" and "uniform".
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
