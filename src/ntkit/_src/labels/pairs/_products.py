"""Inner products and L1 distances of all pairs of rows, and the norms of the rows."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import mirror_rows

from ._distances import l1_distances

__all__ = ["PairProducts", "RowMoments", "common_mean", "pair_products", "row_moments"]

_BLOCK_ROWS = 512


@dataclass(frozen=True)
class RowMoments:
    """What the features of a pair need to know about each vector; every field has shape (n,), computed in float64.

    Attributes
    ----------
    norm
        ||x||.
    spread
        ||x - mean(x) 1||, the norm about the vector's own mean; zero for a constant vector.
    shifted_square, shifted_sum
        ||x - s 1||^2 and sum(x - s 1), with s the shift of the products.
    """

    norm: Tensor
    spread: Tensor
    shifted_square: Tensor
    shifted_sum: Tensor

    def take(self, rows: Tensor | slice) -> RowMoments:
        """Return the moments of some rows."""
        return RowMoments(self.norm[rows], self.spread[rows], self.shifted_square[rows], self.shifted_sum[rows])


@dataclass(frozen=True)
class PairProducts:
    """The quantities that cost O(d) per pair; every pair feature follows from them in O(1).

    Attributes
    ----------
    inner
        (x1_i - s 1).(x2_j - s 1), shape (n1, n2).
    l1
        ||x1_i - x2_j||_1, shape (n1, n2).
    shift
        s, the mean of all coordinates. Distances and correlations do not depend on it and lose no digits to it; the inner
        product itself is recovered by undoing the shift.
    dimension
        d, the length of a vector.
    rows, columns
        Moments of x1 and of x2.
    """

    inner: Tensor
    l1: Tensor
    shift: float
    dimension: int
    rows: RowMoments
    columns: RowMoments

    def take(self, rows: Tensor, columns: Tensor | None) -> PairProducts:
        """Return a copy for some rows and columns; without columns, for the rows with themselves."""
        both = rows if columns is None else columns
        inner, l1 = self.inner[rows][:, both], self.l1[rows][:, both]
        return PairProducts(inner, l1, self.shift, self.dimension, self.rows.take(rows), self.columns.take(both))

    def tile(self, rows: slice, columns: slice) -> PairProducts:
        """Return a view of a tile."""
        inner, l1 = self.inner[rows, columns], self.l1[rows, columns]
        return PairProducts(inner, l1, self.shift, self.dimension, self.rows.take(rows), self.columns.take(columns))


def pair_products(x1: Tensor, x2: Tensor | None = None) -> PairProducts:
    """Compute the products of all pairs of rows; ``x2=None`` means ``x2 = x1``, at half the work, symmetric to the bit.

    Parameters
    ----------
    x1, x2 : Tensor of shape (n1, d) and (n2, d)

    Examples
    --------
    >>> pair_products(torch.tensor([[0.0, 1.0], [2.0, 5.0]])).l1
    tensor([[0., 6.],
            [6., 0.]])
    """
    shift = common_mean(x1, x2)
    left, rows = row_moments(x1, shift)
    if x2 is not None:
        right, columns = row_moments(x2, shift)
        return PairProducts(left @ right.T, l1_distances(x1, x2), shift, x1.shape[1], rows, columns)
    inner = x1.new_empty(len(x1), len(x1))
    for start in range(0, len(x1), _BLOCK_ROWS):
        stop = start + _BLOCK_ROWS
        torch.mm(left[start:stop], left[start:].T, out=inner[start:stop, start:])
        mirror_rows(inner, start, stop)
    return PairProducts(inner, l1_distances(x1), shift, x1.shape[1], rows, rows)


def common_mean(x1: Tensor, x2: Tensor | None) -> float:
    """Return the mean coordinate of the rows of one batch, or the mean of those of two."""
    means = [float(x.mean(dtype=torch.float64)) for x in (x1, x2) if x is not None]
    return sum(means) / len(means)


def row_moments(x: Tensor, shift: float) -> tuple[Tensor, RowMoments]:
    """Return x - s 1 and the moments, in blocks: a float64 copy of all rows is never held."""
    shifted = x - shift
    blocks = zip(x.split(_BLOCK_ROWS), shifted.split(_BLOCK_ROWS), strict=True)
    parts = [_moments_of_block(own, moved) for own, moved in blocks]
    return shifted, RowMoments(*(torch.cat(part).to(x.dtype) for part in zip(*parts, strict=True)))


def _moments_of_block(x: Tensor, shifted: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    wide, moved = x.double(), shifted.double()
    spread = (wide - wide.mean(1, keepdim=True)).norm(dim=1)
    norm = wide.norm(dim=1)
    # The mean of equal numbers is off by rounding: their remainder does not count as spread.
    spread = torch.where(spread > 8 * torch.finfo(wide.dtype).eps * norm, spread, 0)
    return norm, spread, (moved * moved).sum(1), moved.sum(1)
