"""Additive effects of rows and columns on their entries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ._entries import Entries

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
