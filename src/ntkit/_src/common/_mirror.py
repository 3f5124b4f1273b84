"""Symmetric matrices from one computed triangle: the other is its mirror image, to the bit."""

from __future__ import annotations

from torch import Tensor

from ._row_blocks import row_blocks

__all__ = ["mirror_rows", "mirror_upper"]

_BLOCK_ROWS = 512  # a block and its image fit into the cache


def mirror_upper(matrix: Tensor) -> Tensor:
    """Copy the upper triangle of a square matrix, shape (n, n), below the diagonal, in place, and return the matrix.

    Examples
    --------
    >>> import torch
    >>> mirror_upper(torch.tensor([[1.0, 2.0], [0.0, 3.0]]))
    tensor([[1., 2.],
            [2., 3.]])
    """
    for rows in row_blocks(len(matrix), _BLOCK_ROWS):
        mirror_rows(matrix, rows.start, rows.stop)
    return matrix


def mirror_rows(matrix: Tensor, start: int, stop: int) -> None:
    """Make rows and columns ``start`` to ``stop`` symmetric, from what these rows hold right of the diagonal."""
    square = matrix[start:stop, start:stop]
    square.copy_(square.triu() + square.triu(1).mT)
    matrix[stop:, start:stop] = matrix[start:stop, stop:].mT
