"""Stored tiles: a tile counts once its checksum is in the journal, and is checked against it before it is used."""

from __future__ import annotations

import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import StoreError

from ._files import plain_errors, write_atomically
from ._manifest import Manifest
from ._plan import Tile, TilePlan

__all__ = ["TileStore", "checksum"]


def checksum(values: NDArray[Any]) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(values).data.cast("B"))


class TileStore(ABC):
    """The tiles of one matrix on disk.

    A manifest identifies the matrix; a journal has one line per finished tile: its position and checksum. Lines are only
    ever appended, so a killed run leaves at worst a partial line at the end, which is ignored.

    Parameters
    ----------
    path
        Where the user finds the matrix.
    manifest
        The identity of the matrix.
    """

    def __init__(self, path: Path, manifest: Manifest) -> None:
        self.path, self.manifest = path, manifest
        self.plan = TilePlan(manifest.shape, manifest.tile, manifest.symmetric)
        self.dtype: np.dtype[Any] = np.dtype(manifest.dtype)
        self._sums = self._read_journal()
        self._checked: set[Tile] = set()

    @staticmethod
    @abstractmethod
    def manifest_path(path: Path) -> Path:
        """Return the file that holds the manifest of the store at a path."""

    @classmethod
    @abstractmethod
    def create(cls, path: Path, manifest: Manifest) -> TileStore:
        """Create a store without tiles, atomically."""

    @abstractmethod
    def remove(self) -> None:
        """Delete the store."""

    @abstractmethod
    def _write(self, tile: Tile, values: NDArray[Any]) -> None:
        """Write the tile to disk and sync it."""

    @abstractmethod
    def _read(self, tile: Tile) -> NDArray[Any] | None:
        """Return the tile as stored on disk, in the tile's shape; None if there is none."""

    def finish(self) -> None:  # noqa: B027
        """Give the finished matrix its final name, if it had another before."""

    def sweep(self) -> None:  # noqa: B027
        """Delete partial tiles left by a killed run."""

    @classmethod
    def open(cls, path: Path) -> TileStore:
        """Open the store at a path."""
        notes = cls.manifest_path(path)
        with plain_errors(path, "reading"):
            return cls(path, Manifest.from_json(notes.read_text(encoding="utf-8"), notes))

    @property
    def missing(self) -> list[Tile]:
        """The tiles that are not in the journal."""
        return [tile for tile in self.plan.tiles() if tile not in self._sums]

    def write(self, tile: Tile, values: NDArray[Any]) -> None:
        """Store a tile, an array of the tile's shape: first its bytes, then its line in the journal."""
        values = np.ascontiguousarray(values, dtype=self.dtype)
        with plain_errors(self.path, "writing to"):
            self._write(tile, values)
        self.record(tile, checksum(values))

    def record(self, tile: Tile, sum_: int) -> None:
        """Add to the journal a tile that is on disk."""
        line = json.dumps({"i": tile.i, "j": tile.j, "crc32": sum_}) + "\n"
        with plain_errors(self.path, "writing to"), open(self._journal, "ab") as file:
            if file.tell() and not self._ends_with_newline():
                line = "\n" + line  # after a partial line of a killed run
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._sums[tile] = sum_
        self._checked.discard(tile)

    def read(self, tile: Tile) -> NDArray[Any]:
        """Return a tile, checked against its checksum when it is first read.

        Raises
        ------
        StoreError
            If it was never computed, or differs from what was written.
        """
        if tile not in self._sums:
            raise StoreError(
                f"tile ({tile.i}, {tile.j}) of {self.path} was not computed yet ({len(self.missing)} of {len(self.plan)} are "
                "missing). Run the same ntkit.gram(..., out=...) again: it computes what is missing."
            )
        with plain_errors(self.path, "reading"):
            values = self._read(tile)
        if values is not None and tile not in self._checked and checksum(values) == self._sums[tile]:
            self._checked.add(tile)
        if values is None or tile not in self._checked:
            raise StoreError(
                f"tile ({tile.i}, {tile.j}) of {self.path} is {'gone' if values is None else 'damaged'}: its checksum is not "
                "that of what was written. Run the same ntkit.gram(..., out=...) again: it recomputes damaged tiles."
            )
        return values

    def damaged(self) -> list[Tile]:
        """Read every tile in the journal, and return those that are missing or damaged."""
        bad = []
        for tile in list(self._sums):
            values = self._read(tile)
            if values is not None and checksum(values) == self._sums[tile]:
                self._checked.add(tile)
            else:
                bad.append(tile)
        return bad

    def forget(self, tiles: Iterable[Tile]) -> None:
        """Remove tiles from the journal, which is rewritten."""
        for tile in tiles:
            self._sums.pop(tile, None)
        lines = [json.dumps({"i": tile.i, "j": tile.j, "crc32": sum_}) + "\n" for tile, sum_ in self._sums.items()]
        with plain_errors(self.path, "writing to"):
            write_atomically(self._journal, "".join(lines).encode())

    @property
    def _journal(self) -> Path:
        notes = self.manifest_path(self.path)
        return notes.with_name(notes.name.removesuffix(".json") + "-tiles.jsonl")

    def _ends_with_newline(self) -> bool:
        with open(self._journal, "rb") as file:
            file.seek(-1, os.SEEK_END)
            return file.read(1) == b"\n"

    def _read_journal(self) -> dict[Tile, int]:
        sums: dict[Tile, int] = {}
        if self._journal.exists():
            valid = set(self.plan.tiles())
            for line in self._journal.read_bytes().splitlines():
                try:
                    found = json.loads(line)
                    tile, sum_ = Tile(found["i"], found["j"]), int(found["crc32"])
                except (ValueError, KeyError, TypeError):
                    continue
                if tile in valid:
                    sums[tile] = sum_
        return sums
