"""The observed entries of a matrix, read from arrays with gaps and from sparse matrices."""

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
        """Yield each set of observed columns (s,), the rows that have it (g,), and their values, shape (s, g).

        Rows without entries have no pattern.
        """
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
