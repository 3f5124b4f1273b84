"""Merging several position axes into one axis of tokens, and splitting it again."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.program import Keep, Keeps

from ._covariance import Covariance

__all__ = ["merged", "spread_tokens", "unmerged"]


def merged(k: Tensor, keeps: Keeps) -> Tensor:
    """Merge the position axes: (pairs, P1, P1', P2, P2', ...) to (pairs, P, P'), or (pairs, P1, P2, ...) to (pairs, P)."""
    if all(keep is Keep.SAME for keep in keeps):
        return k.flatten(k.ndim - len(keeps))
    rank, start = len(keeps), k.ndim - 2 * len(keeps)
    order = [start + 2 * axis + side for side in (0, 1) for axis in range(rank)]
    k = k.permute(*range(start), *order)
    return k.flatten(start + rank).flatten(start, start + rank - 1)


def unmerged(k: Tensor, positions: tuple[int, ...], same: bool) -> Tensor:
    """Undo :func:`merged`."""
    if same:
        split: Tensor = k.unflatten(-1, positions)
        return split
    rank, start = len(positions), k.ndim - 2
    k = k.unflatten(-1, positions).unflatten(start, positions)
    order = [start + side * rank + axis for axis in range(rank) for side in (0, 1)]
    return k.permute(*range(start), *order)


def spread_tokens(k: Tensor, positions: tuple[int, ...], keeps: Keeps, pair_dims: int) -> Covariance:
    """Return a covariance (P, P) that all pairs of inputs share, reduced to ``keeps``."""
    k = unmerged(k, positions, same=False)[(None,) * pair_dims]
    return Covariance(k, None, (Keep.ALL,) * len(keeps)).restrict(keeps)
