"""Stored matrices: a manifest that identifies them, and tiles that count once their checksums are in a journal."""

from __future__ import annotations

import json
import os
import zlib
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import StoreError

from ._files import plain_errors, write_atomically
from ._plan import Tile, TilePlan

_FORMAT = 1


@dataclass(frozen=True)
class Manifest:
    """Everything that determines the entries of a stored matrix."""

    shape: tuple[int, int]  # (n1, n2) of the matrix
    tile: int  # rows and columns of a tile
    symmetric: bool  # whether it is K(x1, x1), of which only tiles on and above the diagonal are stored
    dtype: str  # the dtype of stored entries: "float32" or "float64"
    kernel: Mapping[str, str]  # the fingerprint of the kernel, part by part (:func:`kernel_fingerprint`)
    x1: str  # x1, x2: fingerprints of the data; ``x2`` is None if the matrix is symmetric
    x2: str | None
    library: str  # the version of ntkit
    format: int = _FORMAT  # the version of this layout

    def to_json(self) -> str:
        """Return the manifest as text."""
        return json.dumps(asdict(self), indent=1)

    @staticmethod
    def from_json(text: str, path: object) -> Manifest:
        """Read a manifest from text, or raise an error if it is not one."""
        try:
            found = json.loads(text)
            if found["format"] != _FORMAT:
                raise StoreError(
                    f"{path} has the layout {found['format']}, and this version of ntkit knows {_FORMAT}. Use the version that "
                    f"wrote it ({found.get('library')}), or remove it."
                )
            found["shape"] = tuple(found["shape"])
            return Manifest(**{field.name: found[field.name] for field in fields(Manifest)})
        except (ValueError, KeyError, TypeError) as error:
            raise StoreError(
                f"{path} must be the manifest of a stored Gram matrix. Got a file that cannot be read as one ({error!r}). Remove "
                "the store, or name another path."
            ) from error

    def differences(self, wanted: Manifest) -> list[str]:
        """Return what is stored and what was requested, wherever the two differ."""
        found = []
        for field in fields(Manifest):
            stored, asked = getattr(self, field.name), getattr(wanted, field.name)
            if stored == asked:
                continue
            if isinstance(stored, Mapping):
                found += [
                    f"{name}: {_shown(stored.get(name))} is stored, {_shown(asked.get(name))} requested"
                    for name in dict.fromkeys([*stored, *asked])
                    if stored.get(name) != asked.get(name)
                ]
            elif field.name in ("x1", "x2"):
                found.append(f"{field.name}: other data are stored (their bits, shape or dtype differ)")
            else:
                found.append(f"{field.name}: {_shown(stored)} is stored, {_shown(asked)} requested")
        return found


def _shown(value: Any) -> str:
    return "nothing" if value is None else str(value)


def checksum(values: NDArray[Any]) -> int:
    """Return the CRC-32 of an array's bytes."""
    return zlib.crc32(np.ascontiguousarray(values).data.cast("B"))


def _line(tile: Tile, sum_: int) -> str:
    return json.dumps({"i": tile.i, "j": tile.j, "crc32": sum_}) + "\n"


class TileStore(ABC):
    """The tiles of one matrix on disk, at the path where the user finds it."""

    # A manifest identifies the matrix; a journal has one line per finished tile: its position and checksum. Lines are only ever
    # appended, so a killed run leaves at worst a partial line at the end, which is ignored.

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
        line = _line(tile, sum_)
        with plain_errors(self.path, "writing to"), open(self._journal, "ab") as file:
            if file.tell() and not self._ends_with_newline():
                line = "\n" + line  # after a partial line of a killed run
            file.write(line.encode())
            file.flush()
            os.fsync(file.fileno())
        self._sums[tile] = sum_
        self._checked.discard(tile)

    def read(self, tile: Tile) -> NDArray[Any]:
        """Return a tile, which must have been computed, checked against its checksum when it is first read."""
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

    def forget_damaged(self) -> None:
        """Read every tile in the journal, and rewrite the journal without those that are missing or damaged."""
        for tile, sum_ in list(self._sums.items()):
            values = self._read(tile)
            if values is not None and checksum(values) == sum_:
                self._checked.add(tile)
            else:
                del self._sums[tile]
        with plain_errors(self.path, "writing to"):
            write_atomically(self._journal, "".join(_line(tile, sum_) for tile, sum_ in self._sums.items()).encode())

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
