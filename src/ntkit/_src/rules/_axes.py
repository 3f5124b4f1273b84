"""Position axes of covariances: merged into one axis of tokens, mapped at both ends, compared."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.program import Keep, Keeps

from ._covariance import Covariance, Moments


def merged(k: Tensor, keeps: Keeps) -> Tensor:
    """Merge the position axes: (pairs, P1, P1', P2, P2', ...) to (pairs, P, P'), or (pairs, P1, P2, ...) to (pairs, P)."""
    if all(keep is Keep.SAME for keep in keeps):
        return k.flatten(k.ndim - len(keeps))
    rank, start = len(keeps), k.ndim - 2 * len(keeps)
    order = [start + 2 * axis + side for side in (0, 1) for axis in range(rank)]
    k = k.permute(*range(start), *order)
    return k.flatten(start + rank).flatten(start, start + rank - 1)


def unmerged(k: Tensor, positions: tuple[int, ...], same: bool, others: tuple[int, ...] | None = None) -> Tensor:
    """Undo :func:`merged`; ``others`` are the positions of x' if it has others than x."""
    if same:
        split: Tensor = k.unflatten(-1, positions)
        return split
    rank, start = len(positions), k.ndim - 2
    k = k.unflatten(-1, others or positions).unflatten(start, positions)
    order = [start + side * rank + axis for axis in range(rank) for side in (0, 1)]
    return k.permute(*range(start), *order)


def spread_tokens(k: Tensor, positions: tuple[int, ...], keeps: Keeps, pair_dims: int) -> Covariance:
    """Return a covariance (P, P) that all pairs of inputs share, reduced to ``keeps``."""
    k = unmerged(k, positions, same=False)[(None,) * pair_dims]
    return Covariance(k, None, (Keep.ALL,) * len(keeps)).restrict(keeps)


@dataclass(frozen=True)
class Tokens:
    """K and Theta with all position axes merged into one, shape (pairs, P, P'), or (pairs, P) if only K[a, a] is kept."""

    nngp: Tensor
    ntk: Tensor | None

    @classmethod
    def of(cls, x: Covariance) -> Tokens:
        """Merge the position axes."""
        x = x.settled()
        return cls(merged(x.nngp, x.keeps), None if x.ntk is None else merged(x.ntk, x.keeps))

    @property
    def transposed(self) -> Tokens:
        """The covariance with the two inputs exchanged; all pairs of tokens must be kept."""
        return Tokens(self.nngp.mT, None if self.ntk is None else self.ntk.mT)


def own_tokens(side: Moments, read: int) -> Tensor:
    """Return K(x, x) of a node that keeps all pairs of positions, shape (n, P, P)."""
    own = side.own[read]
    return merged(own, (Keep.ALL,) * ((own.ndim - 1) // 2))


def both_sides(first: Tensor, k: Tensor, second: Tensor, pair_dims: int, same: bool) -> Tensor:
    """Return A(x) K A(x')^T, shape (n1, n2, ..., Q, Q'), or its diagonal, shape (n1, n2, ..., Q), if ``same``.

    A has shape (n, Q, P), or (1, Q, P) if all inputs share it; K (n1, n2, ..., P, P'), or (n, ..., P, P') if ``pair_dims`` is 1.
    """
    pairs = "ac" if pair_dims == 2 else "aa"
    after = "q" if same else "r"
    given, output = pairs[:pair_dims], "q" if same else "qr"
    return torch.einsum(f"{given}...ij,{pairs[0]}qi,{pairs[1]}{after}j->{given}...{output}", k, first, second)


def diagonal_mask(covariance: Covariance, axes: tuple[int, ...]) -> Tensor:
    """Return ones where p = p' along all of ``axes`` and zeros elsewhere, broadcastable against the covariance."""
    k = covariance.nngp
    mask = k.new_ones((1,) * k.ndim)
    for axis in axes:
        if covariance.keeps[axis] is Keep.ALL:
            first, second = covariance.dims(axis)
            shape = [1] * k.ndim
            shape[first] = shape[second] = k.shape[first]
            mask = mask * torch.eye(shape[first], dtype=k.dtype, device=k.device).reshape(shape)
    return mask
