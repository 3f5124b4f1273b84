"""Pairs of inputs with their base kernel, inner products and distances: the input of an estimator of "same class?"."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Protocol, runtime_checkable

import torch
from scipy.spatial.distance import cdist
from torch import Tensor

from ntkit._src.common import mirror_rows, on_threads

_BLOCK_ROWS, _TILE_ROWS = 512, 256


@dataclass(frozen=True)
class Pairs:
    """All pairs (x1_i, x2_j) with their base kernel.

    Attributes
    ----------
    x1
        Shape (n1, ...).
    x2
        Shape (n2, ...), or None if the pairs are those of x1 with itself.
    k
        The base kernel K(x1_i, x2_j), shape (n1, n2); symmetric if ``x2`` is None.
    """

    x1: Tensor
    x2: Tensor | None
    k: Tensor

    @cached_property
    def products(self) -> PairProducts:
        """Inner products and L1 distances of the flattened inputs; computed once, on first use."""
        return pair_products(self.x1.flatten(1), None if self.x2 is None else self.x2.flatten(1))

    def take(self, rows: Tensor, columns: Tensor | None = None) -> Pairs:
        """Return the pairs of some rows and columns, integers of shape (m,); without columns, of the rows with themselves."""
        x2 = self.x1 if self.x2 is None else self.x2
        both = rows if columns is None else columns
        k = self.k[rows][:, both]
        return _Part(self.x1[rows], None if columns is None else x2[columns], k, self, rows, columns)


@dataclass(frozen=True)
class _Part(Pairs):
    """A subset of some pairs, which shares their products."""

    whole: Pairs
    rows: Tensor
    columns: Tensor | None

    @cached_property
    def products(self) -> PairProducts:
        return self.whole.products.take(self.rows, self.rows if self.columns is None else self.columns)


@runtime_checkable
class PairEstimator(Protocol):
    r"""An estimator of "same class?", :math:`Z(x, x')`: the two methods that :class:`~ntkit.LabelAware` calls.

    Examples
    --------
    The average target among training pairs of a similar base kernel, a histogram:

    >>> import torch, ntkit
    >>> class Histogram:
    ...     def fit(self, pairs, labels):
    ...         self.edges = torch.quantile(pairs.k.flatten(), torch.linspace(0, 1, 6, dtype=pairs.k.dtype))[1:-1]
    ...         bins, targets = torch.bucketize(pairs.k, self.edges), labels @ labels.T
    ...         self.means = torch.stack([targets[bins == b].mean() for b in range(5)])
    ...     def __call__(self, pairs):
    ...         return self.means[torch.bucketize(pairs.k, self.edges)].to(pairs.k)
    >>> x = torch.randn(30, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    >>> base = ntkit.infinite_width(torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 1))).ntk
    >>> kernel = ntkit.LabelAware(base, pairs=Histogram(), strength=0.1).fit(x, x[:, 0] > 0)
    >>> kernel(x[:3]).shape
    torch.Size([3, 3])
    """

    def fit(self, pairs: Pairs, labels: Tensor) -> object:
        r"""Learn from all ordered training pairs; the return value is not used.

        Parameters
        ----------
        pairs : Pairs
            ``pairs.x1`` are the training inputs, ``pairs.x2`` is None, ``pairs.k`` is their base Gram matrix.
        labels : Tensor of shape (n, c), float64
            The target of a pair is the entry of ``labels @ labels.T``: :math:`y_i y_j` with labels -1 and 1 in one column for two
            classes, :math:`1\{y_i = y_j\}` with one-hot rows for more.
        """

    def __call__(self, pairs: Pairs) -> Tensor:
        """Return Z, of the shape, dtype and device of ``pairs.k``; each entry depends only on its own pair, symmetrically."""
        ...


@dataclass(frozen=True)
class RowMoments:
    """What the features of a pair need to know about each vector, computed in float64; every field has shape (n,)."""

    norm: Tensor
    spread: Tensor  # ||x - mean(x) 1||, zero for a constant vector
    shifted_square: Tensor  # ||x - s 1||^2, with s the shift of the products
    shifted_sum: Tensor  # sum(x - s 1)

    def take(self, rows: Tensor | slice) -> RowMoments:
        """Return the moments of some rows."""
        return RowMoments(self.norm[rows], self.spread[rows], self.shifted_square[rows], self.shifted_sum[rows])


@dataclass(frozen=True)
class PairProducts:
    """The quantities that cost O(d) per pair; every pair feature follows from them in O(1)."""

    inner: Tensor  # (x1_i - s 1).(x2_j - s 1), shape (n1, n2)
    l1: Tensor  # ||x1_i - x2_j||_1, shape (n1, n2)
    # s, the mean of all coordinates: distances and correlations do not depend on it and lose no digits to it.
    shift: float
    dimension: int  # d, the length of a vector
    rows: RowMoments  # of x1
    columns: RowMoments  # of x2

    def take(self, rows: Tensor | slice, columns: Tensor | slice) -> PairProducts:
        """Return those of some rows and columns: a copy, or a view for slices."""
        inner, l1 = self.inner[rows][:, columns], self.l1[rows][:, columns]
        return PairProducts(inner, l1, self.shift, self.dimension, self.rows.take(rows), self.columns.take(columns))


def pair_products(x1: Tensor, x2: Tensor | None = None) -> PairProducts:
    """Compute the products of all pairs of rows, shapes (n1, d), (n2, d); without x2 symmetric to the bit, at half the work."""
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
    shifted, parts = x - shift, []
    for own, moved in zip(x.split(_BLOCK_ROWS), shifted.split(_BLOCK_ROWS), strict=True):
        wide, moved = own.double(), moved.double()
        norm, spread = wide.norm(dim=1), (wide - wide.mean(1, keepdim=True)).norm(dim=1)
        # The mean of equal numbers is off by rounding: their remainder does not count as spread.
        spread = torch.where(spread > 8 * torch.finfo(wide.dtype).eps * norm, spread, 0)
        parts.append((norm, spread, (moved * moved).sum(1), moved.sum(1)))
    return shifted, RowMoments(*(torch.cat(part).to(x.dtype) for part in zip(*parts, strict=True)))


def l1_distances(x1: Tensor, x2: Tensor | None = None) -> Tensor:
    r"""Return :math:`\|x_i - x'_j\|_1`, shape (n1, n2), summed in float64; without x2 symmetric to the bit, at half the work.

    On the CPU SciPy computes 1.9e9 entries per second and core, whereas :func:`torch.cdist` reaches 1.0e9.
    """
    if x1.device.type != "cpu":
        return torch.cdist(x1.double(), (x1 if x2 is None else x2).double(), p=1.0).to(x1.dtype)
    rows = x1.detach().double().numpy()
    columns = rows if x2 is None else x2.detach().double().numpy()
    out = x1.new_empty(len(rows), len(columns))

    def compute(tile: tuple[int, int]) -> None:
        start, other = tile
        stop, end = start + _TILE_ROWS, other + _TILE_ROWS
        distances = torch.from_numpy(cdist(rows[start:stop], columns[other:end], "cityblock"))
        out[start:stop, other:end] = distances
        if x2 is None and other > start:
            out[other:end, start:stop] = distances.T

    tiles = [
        (start, other)
        for start in range(0, len(rows), _TILE_ROWS)
        for other in range(start if x2 is None else 0, len(columns), _TILE_ROWS)
    ]
    on_threads(compute, tiles)
    return out
