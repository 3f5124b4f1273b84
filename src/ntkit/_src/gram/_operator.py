"""Gram matrices as linear operators whose tiles are read, or computed, when they are needed."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import torch
from linear_operator.operators import LinearOperator
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import check_memory, check_pairs, shown
from ntkit._src.kernels import Kernel
from ntkit.errors import InputError

from ._plan import Task, Tile, TilePlan, default_tile
from ._store import TileStore

_DENSE_TILE = 1024

Index = int | slice | Tensor


class GramOperator(LinearOperator):  # type: ignore[misc, unused-ignore]
    """A matrix K(x1, x2) of which one tile at a time is in memory, as a :mod:`linear_operator`.

    ``gram @ v`` reads each stored tile once. ``gram[rows, columns]`` returns a part as a tensor.
    """

    plan: TilePlan

    def _set_up(self, plan: TilePlan, dtype: torch.dtype, device: torch.device) -> None:
        self.plan, self._dtype, self._device = plan, dtype, device

    @abstractmethod
    def tile(self, tile: Tile) -> Tensor:
        """Return a tile of the plan, shape ``plan.tile_shape(tile)``."""

    @property
    def dtype(self) -> torch.dtype:
        """The dtype of the entries."""
        return self._dtype

    @property
    def device(self) -> torch.device:
        """The device on which tiles are returned."""
        return self._device

    @property
    def symmetric(self) -> bool:
        """Whether it is K(x, x)."""
        return self.plan.symmetric

    def tiles(self) -> Iterator[tuple[slice, slice, Tensor]]:
        """Yield rows, columns and values of every stored tile; the next is fetched while one is in use."""
        tiles = list(self.plan.tiles())
        with ThreadPoolExecutor(1) as reader:
            following = reader.submit(self.tile, tiles[0])
            for number, tile in enumerate(tiles):
                values = following.result()
                if number + 1 < len(tiles):
                    following = reader.submit(self.tile, tiles[number + 1])
                yield self.plan.rows(tile), self.plan.columns(tile), values

    def product(self, v: Tensor) -> Tensor:
        """Return K v for v of shape (n2, k), in v's dtype: float32 entries times a float64 v add up in float64."""
        total = v.new_zeros(self.plan.shape[0], v.shape[1])
        with torch.no_grad():
            for rows, columns, values in self.tiles():
                values = values.to(v.dtype)
                total[rows] += values @ v[columns]
                if self.symmetric and rows != columns:
                    total[columns] += values.T @ v[rows]
        return total

    def block(self, rows: Index | None = None, columns: Index | None = None) -> Tensor:
        """Return the entries of some rows and columns as a tensor, shape (rows, columns); None means all of them."""
        return self._block(_positions(rows, self.plan.shape[0]), _positions(columns, self.plan.shape[1]))

    def _block(self, rows: Tensor, columns: Tensor) -> Tensor:
        out = torch.empty(len(rows), len(columns), dtype=self.dtype, device=self.device)
        size = self.plan.size
        for i in torch.unique(rows // size).tolist():
            for j in torch.unique(columns // size).tolist():
                turned = self.symmetric and i > j
                values = self.tile(Tile(j, i) if turned else Tile(i, j))
                values = values.T if turned else values
                own, other = (rows // size == i).nonzero()[:, 0], (columns // size == j).nonzero()[:, 0]
                out[own[:, None], other] = values[rows[own][:, None] - i * size, columns[other] - j * size]
        return out

    def __getitem__(self, index: Any) -> Any:
        rows, columns = index if isinstance(index, tuple) else (index, slice(None))
        if isinstance(rows, Tensor) and isinstance(columns, Tensor):
            raise InputError(
                "two tensors of indices could mean a block or single entries. Write gram.block(rows, columns) for the block."
            )
        part = self.block(rows, columns)
        part = part[:, 0] if isinstance(columns, int) else part
        return part[0] if isinstance(rows, int) else part

    def restricted(self, rows: Tensor) -> GramOperator:
        """Return K of some of the points, shape (m, m), for their positions of shape (m,); the matrix must be symmetric."""
        return _Restricted(self, rows)

    def to_dense(self) -> Tensor:
        """Return the whole matrix as a tensor, if it fits into memory; a ``MemoryLimitError`` otherwise."""
        n1, n2 = self.plan.shape
        check_memory(
            n1 * n2 * self.dtype.itemsize,
            f"the whole matrix of {n1} x {n2} {self.dtype} entries",
            "Work with it as it is stored: ntkit.solve(gram, y) chooses a method that fits.",
        )
        out = torch.empty(n1, n2, dtype=self.dtype, device=self.device)
        for rows, columns, values in self.tiles():
            self.plan.put(out, rows, columns, values)
        return out

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> NDArray[Any]:
        """Return the whole matrix as an array, for NumPy and scikit-learn."""
        return np.asarray(self.to_dense().numpy(), dtype)

    def __len__(self) -> int:
        return self.plan.shape[0]

    def _diagonal(self) -> Tensor:
        return torch.cat([self.tile(Tile(i, i)).diagonal() for i in range(min(self.plan.grid))])

    def _matmul(self, rhs: Tensor) -> Tensor:
        return self.product(rhs if rhs.ndim == 2 else rhs[:, None]).reshape(self.plan.shape[0], *rhs.shape[1:])

    def _size(self) -> torch.Size:
        return torch.Size(self.plan.shape)

    def _transpose_nonbatch(self) -> GramOperator:
        if not self.symmetric:
            raise InputError("a stored K(x1, x2) has no transpose here. Compute K(x2, x1), or take gram.to_dense().T.")
        return self

    def __repr__(self) -> str:
        return f"{type(self).__name__}(shape={self.plan.shape}, dtype={self.dtype}, tile={self.plan.size})"


class StoredGram(GramOperator):
    """A Gram matrix on disk, stored by :func:`ntkit.gram` and opened by :func:`ntkit.open_gram`.

    Every solver, :class:`~ntkit.GradientFlow`, :func:`~ntkit.leave_one_out`, :class:`~ntkit.LabelAware` and the estimators
    (``kernel="precomputed"``) accept it as a Gram matrix. Tiles are checked against their checksums when they are first read.
    """

    def __init__(self, store: TileStore) -> None:
        super().__init__(store=store)
        self.store = store
        self._set_up(store.plan, getattr(torch, store.manifest.dtype), torch.device("cpu"))

    @property
    def path(self) -> str:
        """The path of the store."""
        return str(self.store.path)

    @property
    def complete(self) -> bool:
        """Whether every tile was computed."""
        return not self.store.missing

    def tile(self, tile: Tile) -> Tensor:
        return torch.from_numpy(self.store.read(tile))

    def __repr__(self) -> str:
        missing = len(self.store.missing)
        there = "complete" if not missing else f"{missing} of {len(self.plan)} tiles missing"
        return f"StoredGram({self.path!r}, shape={self.plan.shape}, dtype={self.dtype}, tile={self.plan.size}, {there})"


class KernelGram(GramOperator):
    """K(x1, x2), or K(x1, x1) if ``x2`` is None, recomputed, ``tile`` rows and columns at a time, whenever it is needed."""

    def __init__(self, kernel: Kernel, x1: Tensor, x2: Tensor | None = None, tile: int | None = None) -> None:
        super().__init__(kernel=kernel, x1=x1, x2=x2, tile=tile)
        self.kernel, self.x1, self.x2 = kernel, x1, x2
        shape = (len(x1), len(x1 if x2 is None else x2))
        self._set_up(TilePlan(shape, default_tile(x1, tile), x2 is None), x1.dtype, x1.device)

    def tile(self, tile: Tile) -> Tensor:
        return Task(self.kernel, self.x1, self.x2, self.plan, self.dtype).compute(tile)

    def tiles(self) -> Iterator[tuple[slice, slice, Tensor]]:
        # The kernel is multithreaded, so computing the next tile in parallel to the work on this one gains nothing.
        return ((self.plan.rows(tile), self.plan.columns(tile), self.tile(tile)) for tile in self.plan.tiles())

    def _block(self, rows: Tensor, columns: Tensor) -> Tensor:
        with torch.no_grad():
            other = self.x1 if self.x2 is None else self.x2
            # Symmetry is not used: x2 holds the columns even if it is x1.
            values = self.kernel(_rows(self.x1, rows), _rows(other, columns))
        return check_pairs(values, (len(rows), len(columns)), "kernel(x1, x2)")

    def restricted(self, rows: Tensor) -> GramOperator:
        return KernelGram(self.kernel, _rows(self.x1, rows), tile=self.plan.size)

    def _diagonal(self) -> Tensor:
        with torch.no_grad():
            if self.x2 is not None:
                return super()._diagonal()
            parts = torch.split(self.x1, self.plan.size)
            return torch.cat([check_pairs(self.kernel.diag(part), (len(part),), "kernel.diag(x)") for part in parts])


class _Restricted(GramOperator):
    """Some rows of a symmetric matrix and the same columns."""

    def __init__(self, gram: GramOperator, rows: Tensor) -> None:
        super().__init__(gram=gram, rows=rows)
        self.gram, self.rows = gram, rows
        self._set_up(TilePlan((len(rows), len(rows)), gram.plan.size, True), gram.dtype, gram.device)

    def tile(self, tile: Tile) -> Tensor:
        return self.block(self.plan.rows(tile), self.plan.columns(tile))

    def _block(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.gram.block(self.rows[rows], self.rows[columns])

    def _diagonal(self) -> Tensor:
        whole: Tensor = self.gram.diagonal()
        return whole[self.rows]


class DenseGram(GramOperator):
    """A symmetric matrix in memory, shape (n, n), with the interface of those that are not."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__(matrix)
        self.matrix = matrix
        self._set_up(TilePlan((len(matrix), len(matrix)), _DENSE_TILE, True), matrix.dtype, matrix.device)

    def tile(self, tile: Tile) -> Tensor:
        return self.matrix[self.plan.rows(tile), self.plan.columns(tile)]

    def product(self, v: Tensor) -> Tensor:
        if v.dtype == self.dtype:
            return self.matrix @ v
        return torch.cat([rows.to(v.dtype) @ v for rows in torch.split(self.matrix, self.plan.size)])

    def _block(self, rows: Tensor, columns: Tensor) -> Tensor:
        return self.matrix[rows.to(self.device)[:, None], columns.to(self.device)]

    def to_dense(self) -> Tensor:
        return self.matrix


def _rows(x: Tensor, index: Tensor) -> Tensor:
    """Return some rows of x, without a copy if they are consecutive."""
    first = int(index[0]) if len(index) else 0
    if bool((index == torch.arange(first, first + len(index))).all()):
        return x[first : first + len(index)]
    return x[index.to(x.device)]


def _positions(index: Index | None, n: int) -> Tensor:
    """Return the positions that an index refers to, shape (m,)."""
    if index is None:
        return torch.arange(n)
    if isinstance(index, slice):
        return torch.arange(n)[index] if (index.step or 1) > 0 else torch.tensor(range(n)[index])
    positions = torch.as_tensor([index] if isinstance(index, int) else index).cpu()
    if positions.dtype == torch.bool:
        positions = positions.nonzero()[:, 0]
    positions = torch.where(positions < 0, positions + n, positions)
    if positions.ndim != 1 or (positions.numel() and not (int(positions.min()) >= 0 and int(positions.max()) < n)):
        raise InputError(f"indices must be in a row and between -{n} and {n - 1}. Got {shown(index)}.")
    return positions
