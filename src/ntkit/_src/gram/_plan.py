"""The tiles of a Gram matrix: which rows and columns each holds, which of them are computed, and how."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from ntkit._src.common import check_integer, check_pairs, check_result, mirror_upper
from ntkit._src.kernels import Kernel

_IMAGES, _VECTORS = 1024, 4096


@dataclass(frozen=True, order=True)
class Tile:
    """One tile by its position in the grid: row ``i`` and column ``j`` of tiles."""

    i: int
    j: int


@dataclass(frozen=True)
class TilePlan:
    """A matrix cut into tiles of equal size; those at the right and lower edge may be smaller."""

    shape: tuple[int, int]  # (n1, n2) of the matrix
    size: int  # rows and columns of a tile
    symmetric: bool  # whether the matrix is K(x, x): then only tiles with i <= j are computed and stored

    @property
    def grid(self) -> tuple[int, int]:
        """Number of tiles along each axis."""
        return -(-self.shape[0] // self.size), -(-self.shape[1] // self.size)

    def tiles(self) -> Iterator[Tile]:
        """Return every tile that is computed, column by column: a column's inputs are read once."""
        rows, columns = self.grid
        return (Tile(i, j) for j in range(columns) for i in range(min(rows, j + 1) if self.symmetric else rows))

    def rows(self, tile: Tile) -> slice:
        """Return the rows of the matrix that a tile holds."""
        return slice(tile.i * self.size, min((tile.i + 1) * self.size, self.shape[0]))

    def columns(self, tile: Tile) -> slice:
        """Return the columns of the matrix that a tile holds."""
        return slice(tile.j * self.size, min((tile.j + 1) * self.size, self.shape[1]))

    def tile_shape(self, tile: Tile) -> tuple[int, int]:
        """Return the shape of a tile."""
        rows, columns = self.rows(tile), self.columns(tile)
        return rows.stop - rows.start, columns.stop - columns.start

    def tile_entries(self, tile: Tile) -> int:
        """Count the entries of a tile."""
        rows, columns = self.tile_shape(tile)
        return rows * columns

    @property
    def entries(self) -> int:
        """Number of entries that are computed."""
        return sum(self.tile_entries(tile) for tile in self.tiles())

    def put(self, matrix: Any, rows: slice, columns: slice, values: Any) -> None:
        """Write a tile into the whole matrix, a tensor or an array, and below the diagonal of a symmetric one."""
        matrix[rows, columns] = values
        if self.symmetric:
            matrix[columns, rows] = values.T

    def __len__(self) -> int:
        rows, columns = self.grid
        return rows * (rows + 1) // 2 if self.symmetric else rows * columns


def default_tile(x: Tensor, tile: int | None) -> int:
    """Return the tile size: the requested one, or one that takes about a second for the kernel of a typical network."""
    if tile is None:
        return _VECTORS if x.ndim == 2 else _IMAGES
    return check_integer("tile", tile, 1)


@dataclass(frozen=True)
class Task:
    """A Gram matrix to be computed in tiles."""

    kernel: Kernel
    x1: Tensor  # x1, x2: the inputs, shape (n1, ...) and (n2, ...); ``x2`` is None for K(x1, x1)
    x2: Tensor | None
    plan: TilePlan
    stored: torch.dtype  # the dtype that entries are rounded to

    def compute(self, tile: Tile) -> Tensor:
        """Compute one tile, shape ``plan.tile_shape(tile)``; on the diagonal of a symmetric matrix as K(x, x)."""
        rows, columns = self.plan.rows(tile), self.plan.columns(tile)
        with torch.no_grad():
            if self.plan.symmetric and tile.i == tile.j:
                values = self.kernel(self.x1[rows])
            else:
                values = self.kernel(self.x1[rows], (self.x1 if self.x2 is None else self.x2)[columns])
        values = check_pairs(values, self.plan.tile_shape(tile), "kernel(x1, x2)").detach().to(self.stored)
        check_result(values)
        # K(x, x) of a kernel that rounds its two halves otherwise: a stored matrix is symmetric to the bit.
        return mirror_upper(values.clone()) if self.plan.symmetric and tile.i == tile.j else values
