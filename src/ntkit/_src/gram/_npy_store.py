"""Tiles in one NumPy file: the whole matrix, both triangles, to be mapped into memory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ._files import plain_errors, sync_folder, write_atomically
from ._plan import Tile
from ._store import Manifest, TileStore


class NpyStore(TileStore):
    """An ``.npy`` file of the whole matrix. Its name ends in ``.partial`` until the last tile is written."""

    def __init__(self, path: Path, manifest: Manifest) -> None:
        super().__init__(path, manifest)
        self._maps: dict[str, np.memmap[Any, Any]] = {}

    @staticmethod
    def manifest_path(path: Path) -> Path:
        return path.with_name(path.name + ".ntkit.json")

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> NpyStore:
        partial = _partial(path)
        with plain_errors(path, "creating"):
            path.parent.mkdir(parents=True, exist_ok=True)
            array = np.lib.format.open_memmap(partial, mode="w+", dtype=manifest.dtype, shape=manifest.shape)
            del array
            try:
                with open(partial, "r+b") as file:
                    # Allocate all of it now: writing to a mapped sparse file crashes the program when the disk is full.
                    os.posix_fallocate(file.fileno(), 0, partial.stat().st_size)
                    os.fsync(file.fileno())
            except OSError:
                partial.unlink()
                raise
            write_atomically(cls.manifest_path(path), manifest.to_json().encode())
        return cls(path, manifest)

    def remove(self) -> None:
        with plain_errors(self.path, "removing"):
            self.manifest_path(self.path).unlink()  # first, so that a partial store does not count
            for file in (self.path, _partial(self.path), self._journal):
                file.unlink(missing_ok=True)

    def finish(self) -> None:
        self._maps.clear()
        if _partial(self.path).exists():
            with plain_errors(self.path, "renaming to"):
                os.replace(_partial(self.path), self.path)
                sync_folder(self.path.parent)

    def _matrix(self, mode: Literal["r", "r+"]) -> np.memmap[Any, Any]:
        if mode not in self._maps:
            file = self.path if self.path.exists() else _partial(self.path)
            found = np.lib.format.open_memmap(file, mode=mode)
            if found.shape != self.plan.shape or found.dtype != self.dtype:
                raise OSError(f"it holds {found.dtype} of shape {found.shape}, not what its manifest says")
            self._maps[mode] = found
        return self._maps[mode]

    def _write(self, tile: Tile, values: NDArray[Any]) -> None:
        matrix = self._matrix("r+")
        self.plan.put(matrix, self.plan.rows(tile), self.plan.columns(tile), values)
        matrix.flush()

    def _read(self, tile: Tile) -> NDArray[Any] | None:
        try:
            matrix = self._matrix("r")
        except (FileNotFoundError, ValueError):  # missing, truncated, or not an .npy file
            return None
        rows, columns = self.plan.rows(tile), self.plan.columns(tile)
        if (
            self.plan.symmetric
            and tile not in self._checked
            and (matrix[rows, columns] != matrix[columns, rows].T).any()
        ):
            return None
        return np.array(matrix[rows, columns])


def _partial(path: Path) -> Path:
    return path.with_name(path.name + ".partial")
