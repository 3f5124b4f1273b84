"""Where tiles are stored: in one NumPy file to be mapped into memory, or as the chunks of a Zarr array."""

from __future__ import annotations

import math
import os
import shutil
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import MissingDependencyError

from ._files import TEMPORARY, plain_errors, sync_folder, write_atomically
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


def write_chunk(path: Path, tile: Tile, size: int, values: NDArray[Any]) -> None:
    """Write one chunk of an uncompressed array; chunks at the edges are padded with NaN."""
    if values.shape != (size, size):
        whole = np.full((size, size), np.nan, values.dtype)
        whole[: values.shape[0], : values.shape[1]] = values
        values = whole
    chunk = path / "c" / str(tile.i) / str(tile.j)
    if not chunk.parent.exists():
        chunk.parent.mkdir(parents=True, exist_ok=True)
        sync_folder(chunk.parent.parent)
    write_atomically(chunk, np.ascontiguousarray(values).data.cast("B"))


class ZarrStore(TileStore):
    """A Zarr array in version 3 of the format, one chunk per tile, no compression; missing chunks read as NaN."""

    # A symmetric matrix has only the chunks on and above the diagonal. Zarr writes chunks without syncing them, so ntkit writes
    # them itself; Zarr's own reader checks the result in the tests.

    @staticmethod
    def manifest_path(path: Path) -> Path:
        return path / "ntkit.json"

    @classmethod
    def create(cls, path: Path, manifest: Manifest) -> ZarrStore:
        try:
            import zarr
        except ImportError as error:
            raise MissingDependencyError(
                "storing a Gram matrix as .zarr needs the package zarr: write pip install 'ntkit[scale]', or store it as .npy."
            ) from error
        making = path.with_name(path.name + TEMPORARY)
        with plain_errors(path, "creating"):
            shutil.rmtree(making, ignore_errors=True)  # left by a killed run
            making.parent.mkdir(parents=True, exist_ok=True)
            zarr.create_array(
                store=str(making),
                shape=manifest.shape,
                chunks=(manifest.tile, manifest.tile),
                dtype=manifest.dtype,
                compressors=None,
                filters=None,
                fill_value=math.nan,
                attributes={
                    "ntkit": "the manifest is in ntkit.json; of a symmetric matrix only the upper tiles are stored"
                },
            )
            write_atomically(cls.manifest_path(making), manifest.to_json().encode())
            making.rename(path)
            sync_folder(path.parent)
        return cls(path, manifest)

    def remove(self) -> None:
        with plain_errors(self.path, "removing"):
            self.manifest_path(self.path).unlink()  # first, so that a partial store does not count
            shutil.rmtree(self.path)

    def sweep(self) -> None:
        for left in self.path.rglob(f"*{TEMPORARY}"):
            left.unlink(missing_ok=True)

    def _write(self, tile: Tile, values: NDArray[Any]) -> None:
        write_chunk(self.path, tile, self.plan.size, values)

    def _read(self, tile: Tile) -> NDArray[Any] | None:
        size = self.plan.size
        try:
            whole = np.fromfile(self.path / "c" / str(tile.i) / str(tile.j), self.dtype)
        except FileNotFoundError:
            return None
        if whole.size != size * size:
            return None
        rows, columns = self.plan.tile_shape(tile)
        return np.ascontiguousarray(whole.reshape(size, size)[:rows, :columns])
