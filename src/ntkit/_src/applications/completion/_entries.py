"""The observed entries of a matrix, dense with gaps or sparse, and additive effects of rows and columns on them."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Entries:
    """Observed entries of a matrix of shape (k, d)."""

    rows: NDArray[np.int64]  # rows, columns: the position of each entry, shape (m,), sorted by row, then by column
    columns: NDArray[np.int64]
    values: NDArray[np.float64]  # shape (m,)
    shape: tuple[int, int]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def transposed(self) -> Entries:
        """The entries of the transposed matrix."""
        order = np.lexsort((self.rows, self.columns))
        return Entries(self.columns[order], self.rows[order], self.values[order], self.shape[::-1])

    def where(self, kept: NDArray[np.bool_]) -> Entries:
        """Return some of the entries, by a mask of shape (m,)."""
        return Entries(self.rows[kept], self.columns[kept], self.values[kept], self.shape)

    def with_values(self, values: NDArray[np.float64]) -> Entries:
        """Return the same positions with other values, shape (m,)."""
        return Entries(self.rows, self.columns, values, self.shape)

    def row_slices(self) -> list[slice]:
        """Return the slices of the entries of each row, k of them."""
        starts = np.searchsorted(self.rows, np.arange(self.shape[0] + 1))
        return [slice(int(a), int(b)) for a, b in pairwise(starts)]

    def patterns(self) -> Iterator[tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.float64]]]:
        """Yield each set of observed columns (s,), the rows that have it (g,), and their values (s, g); none for empty rows."""
        slices = self.row_slices()
        groups: dict[bytes, list[int]] = {}
        for row, part in enumerate(slices):
            if part.start < part.stop:
                groups.setdefault(self.columns[part].tobytes(), []).append(row)
        for rows in groups.values():
            columns = self.columns[slices[rows[0]]]
            yield columns, np.array(rows), np.stack([self.values[slices[row]] for row in rows], 1)

    def matrix(self, missing_values: float, sparse: bool) -> Any:
        """Return the matrix in the user's form: with gaps, or sparse."""
        if sparse:
            return scipy.sparse.csr_array((self.values, (self.rows, self.columns)), shape=self.shape)
        dense = np.full(self.shape, float(missing_values))
        dense[self.rows, self.columns] = self.values
        return dense


def read_entries(matrix: Any, missing_values: float) -> Entries:
    """Read the observed entries of a checked matrix, shape (k, d), dense or sparse."""
    if scipy.sparse.issparse(matrix):
        found = scipy.sparse.coo_array(matrix)
        found.sum_duplicates()
        kept = found.data != 0
        rows, columns, values = found.coords[0][kept], found.coords[1][kept], found.data[kept]
        order = np.lexsort((columns, rows))
        rows, columns, values = rows[order], columns[order], values[order]
    else:
        observed = ~np.isnan(matrix) if math.isnan(missing_values) else matrix != missing_values
        rows, columns = np.nonzero(observed)
        values = matrix[rows, columns]
    return Entries(
        np.asarray(rows, np.int64), np.asarray(columns, np.int64), np.asarray(values, np.float64), matrix.shape
    )


_MOST_ITERATIONS = 300
_TOLERANCE = 1e-9
_START = 10.0
_RANGE = (1e-12, 1e12)


@dataclass(frozen=True, eq=False)
class Offsets:
    """Row and column effects: an entry is mean + r_i + c_j plus a residual."""

    mean: float  # of all entries, when both effects are zero
    columns: NDArray[np.float64]  # c, shape (d,); zero for columns without entries
    row_shrinkage: float  # How many entries the ridge is worth: r_i is the sum of n_i residuals over n_i plus this.
    column_shrinkage: float

    def of_rows(self, entries: Entries) -> NDArray[np.float64]:
        """Return r, shape (k,), of any matrix with these columns; zero for rows without entries."""
        left = entries.values - self.mean - self.columns[entries.columns]
        return _effects(entries.rows, left, entries.shape[0], self.row_shrinkage)

    def remove(self, entries: Entries) -> Entries:
        """Return the residuals of the entries."""
        rows = self.of_rows(entries)
        return entries.with_values(entries.values - self.mean - rows[entries.rows] - self.columns[entries.columns])

    def table(self, entries: Entries) -> NDArray[np.float64]:
        """Return mean + r_i + c_j, shape (k, d), for the matrix of the entries."""
        return self.mean + self.of_rows(entries)[:, None] + self.columns


def no_offsets(entries: Entries) -> Offsets:
    """Return offsets that are all zero."""
    return Offsets(0.0, np.zeros(entries.shape[1]), np.inf, np.inf)


def fit_offsets(entries: Entries) -> Offsets:
    r"""Fit row and column effects by alternating ridge regressions.

    For given columns :math:`r_i = \sum_j (y_{ij} - \mu - c_j) / (n_i + \lambda)`, and likewise for given rows. The ridge
    :math:`\lambda = \sigma^2 / \tau^2` is the ratio of the variance of the residuals to that of the effects, both estimated in
    the same iterations (variational EM), so there is nothing to tune.
    """
    k, d = entries.shape
    values, n = entries.values, len(entries)
    row_counts = np.bincount(entries.rows, minlength=k)
    column_counts = np.bincount(entries.columns, minlength=d)
    mean, noise = float(values.mean()), float(values.var())
    if noise <= (1e-12 * float(np.abs(values).max())) ** 2:
        return Offsets(mean, np.zeros(d), np.inf, np.inf)
    size, columns = noise**0.5, np.zeros(d)
    of_rows, of_columns = _START, _START
    for _ in range(_MOST_ITERATIONS):
        rows = _effects(entries.rows, values - mean - columns[entries.columns], k, of_rows)
        before, columns = columns, _effects(entries.columns, values - mean - rows[entries.rows], d, of_columns)
        left = values - rows[entries.rows] - columns[entries.columns]
        mean = float(left.mean())
        spread_rows, spread_columns = noise / (row_counts + of_rows), noise / (column_counts + of_columns)
        known = float((row_counts * spread_rows).sum() + (column_counts * spread_columns).sum())
        noise = float(((left - mean) ** 2).sum() + known) / n
        of_rows = _ratio(noise, rows, spread_rows, row_counts)
        of_columns = _ratio(noise, columns, spread_columns, column_counts)
        if float(np.abs(columns - before).max()) <= _TOLERANCE * size:
            break
    return Offsets(mean, columns, of_rows, of_columns)


def _effects(index: NDArray[np.int64], left: NDArray[np.float64], size: int, shrinkage: float) -> NDArray[np.float64]:
    if np.isinf(shrinkage):
        return np.zeros(size)
    counts = np.bincount(index, minlength=size)
    return np.asarray(np.bincount(index, left, minlength=size) / (counts + shrinkage))


def _ratio(noise: float, effects: NDArray[Any], spread: NDArray[Any], counts: NDArray[np.int64]) -> float:
    variance = float((effects**2 + spread)[counts > 0].mean())
    return float(np.clip(noise / variance, *_RANGE)) if variance > 0 else _RANGE[1]
