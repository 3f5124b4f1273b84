"""Ratings of items by users: from a file such as MovieLens' u.data, or drawn of low rank."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import InputError

__all__ = ["FILES", "Split", "draw_ratings", "load_ratings", "split_ratings"]

FILES = (
    "ratings as text, one a line: user, item and rating, such as MovieLens-100k's u.data (a drawn matrix of low rank)"
)
"""What ``--data`` takes."""


@dataclass(frozen=True, eq=False)
class Split:
    """A matrix with gaps and the entries to predict.

    Attributes
    ----------
    matrix
        Training ratings, shape (users, items), NaN where there is none.
    rows, columns, values
        The test ratings, each of shape (m,).
    """

    matrix: NDArray[np.float64]
    rows: NDArray[np.int64]
    columns: NDArray[np.int64]
    values: NDArray[np.float64]

    def error(self, completed: NDArray[Any]) -> float:
        """Return the root mean square error on the test ratings of a completed matrix."""
        return float(np.sqrt(np.mean((completed[self.rows, self.columns] - self.values) ** 2)))


def load_ratings(path: Path) -> NDArray[np.float64]:
    """Read ratings, shape (n, 3): user and item numbered from 0, and the rating; further columns are not read."""
    try:
        text = path.read_text(encoding="latin-1").replace("::", "\t").replace(",", "\t")
        lines = [line.split() for line in text.splitlines() if line.strip()]
        if lines and not lines[0][0].isdigit():
            lines = lines[1:]  # names of the columns
        found = np.array([[int(line[0]), int(line[1]), float(line[2])] for line in lines])
    except (OSError, ValueError, IndexError) as error:
        raise InputError(
            f"{path} must have a user, an item and a rating on each line, as u.data of MovieLens-100k has: {error}"
        ) from error
    if not len(found) or not np.isfinite(found).all():
        raise InputError(f"{path} must hold finite ratings. Got {len(found)} lines.")
    for column in (0, 1):
        found[:, column] = np.unique(found[:, column], return_inverse=True)[1]
    return found


def draw_ratings(users: int, items: int, seed: int) -> NDArray[np.float64]:
    """Draw ratings from 1 to 5 of rank four with row and column effects and noise, about a fifth of them known."""
    random = np.random.default_rng(seed)
    table = 3.5 + 0.4 * random.normal(size=(users, 1)) + 0.5 * random.normal(size=items)
    table += 0.35 * random.normal(size=(users, 4)) @ random.normal(size=(4, items))
    table = np.clip(np.rint(table + 0.6 * random.normal(size=table.shape)), 1, 5)
    rows, columns = np.nonzero(random.random(table.shape) < 0.2)
    return np.stack([rows, columns, table[rows, columns]], 1)


def split_ratings(ratings: NDArray[np.float64], share: float, seed: int) -> Split:
    """Hold a share of the ratings out at random."""
    rows, columns = ratings[:, 0].astype(np.int64), ratings[:, 1].astype(np.int64)
    order = np.random.default_rng(seed).permutation(len(ratings))
    test, train = np.split(order, [round(share * len(ratings))])
    matrix = np.full((int(rows.max()) + 1, int(columns.max()) + 1), np.nan)
    matrix[rows[train], columns[train]] = ratings[train, 2]
    return Split(matrix, rows[test], columns[test], ratings[test, 2])
