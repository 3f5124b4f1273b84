"""The computation: the tiles of one kernel on some inputs, one after another."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import check_pairs, check_result
from ntkit._src.kernels import Kernel

from ._plan import Tile, TilePlan

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """A Gram matrix to be computed in tiles.

    Attributes
    ----------
    kernel
        The kernel.
    x1, x2
        The inputs, shape (n1, ...) and (n2, ...); ``x2`` is None for K(x1, x1).
    plan
        The tiles.
    stored
        The dtype that entries are rounded to.
    """

    kernel: Kernel
    x1: Tensor
    x2: Tensor | None
    plan: TilePlan
    stored: torch.dtype

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
        return values
