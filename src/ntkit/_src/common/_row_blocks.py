"""Blocks of rows, in which large matrices are processed, and the mirrored triangles of symmetric ones."""

from __future__ import annotations

from collections.abc import Iterator

from torch import Tensor

__all__ = ["block_rows", "mirror_rows", "mirror_upper", "row_blocks", "split_rows"]

_BLOCK_BYTES = 2**26
_FEWEST_ROWS = 64
_MIRRORED_ROWS = 512  # a block and its image fit into the cache


def block_rows(columns: int, itemsize: int) -> int:
    """Return how many rows with this many columns fill a block of 64 MiB, but never fewer than 64."""
    return max(_FEWEST_ROWS, _BLOCK_BYTES // (columns * itemsize))


def row_blocks(rows: int, size: int) -> Iterator[slice]:
    """Yield the slices of 0, ..., rows - 1, each of ``size`` rows except perhaps the last."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def split_rows(x: Tensor, columns: int) -> Iterator[Tensor]:
    """Split points, shape (m, ...), into batches whose kernel with ``columns`` others fills one block."""
    for rows in row_blocks(len(x), block_rows(columns, x.element_size())):
        yield x[rows]


def mirror_upper(matrix: Tensor) -> Tensor:
    """Copy the upper triangle of a square matrix, shape (n, n), below the diagonal, in place, and return the matrix."""
    for rows in row_blocks(len(matrix), _MIRRORED_ROWS):
        mirror_rows(matrix, rows.start, rows.stop)
    return matrix


def mirror_rows(matrix: Tensor, start: int, stop: int) -> None:
    """Make rows and columns ``start`` to ``stop`` symmetric, from what these rows hold right of the diagonal."""
    square = matrix[start:stop, start:stop]
    square.copy_(square.triu() + square.triu(1).mT)
    matrix[stop:, start:stop] = matrix[start:stop, stop:].mT
