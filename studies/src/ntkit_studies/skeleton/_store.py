"""The results of an experiment's cells on disk, one line of JSON each, so that an interrupted run can resume."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Generic, TypeVar

from ntkit.errors import InputError

from ._records import canonical, decode, encode

__all__ = ["CellStore", "Stored"]

C = TypeVar("C")
R = TypeVar("R")


@dataclass(frozen=True)
class Stored(Generic[R]):
    """The stored result of one cell.

    Attributes
    ----------
    result
        The result of its computation.
    seconds
        Its wall-clock time.
    """

    result: R
    seconds: float


class CellStore(Generic[C, R]):
    """An append-only file of results.

    A result is found by its cell and by a key, a text that stands for everything else it depends on: results of other
    settings, data or versions stay in the file but are not used. A line that cannot be read, such as the last one of a
    killed run, stays too, and its result is recomputed. Of two lines for the same result the last counts.

    Parameters
    ----------
    path
        Path of the file, which is created when the first result is added.
    cell, result
        The frozen dataclasses that a line holds, or unions of them.

    Attributes
    ----------
    unreadable
        Number of lines that could not be read.

    Raises
    ------
    InputError
        If the file exists and is not such a store.
    """

    def __init__(self, path: Path, cell: type[C] | UnionType, result: type[R] | UnionType) -> None:
        self._path = path
        self._known: dict[tuple[str, str], Stored[R]] = {}
        self.unreadable = 0
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if text.strip() and not text.lstrip().startswith("{"):
            raise InputError(f"{path} is not a store of results. Move it away, or name another folder with --output.")
        # If the last line is incomplete, the next one must not be appended to it.
        self._cut_off = bool(text) and not text.endswith("\n")
        for line in filter(str.strip, text.split("\n")):
            try:
                found: dict[str, Any] = json.loads(line)
                place = str(found["key"]), canonical(decode(cell, found["cell"]))
                self._known[place] = Stored(decode(result, found["result"]), decode(float, found["seconds"]))
            except (ValueError, KeyError, TypeError):
                self.unreadable += 1

    def get(self, key: str, cell: C) -> Stored[R] | None:
        """Return the stored result of a cell under a key, or None."""
        return self._known.get((key, canonical(cell)))

    def add(self, key: str, cell: C, stored: Stored[R]) -> None:
        """Write a result and sync it to disk."""
        content = {"key": key, "cell": encode(cell), "result": encode(stored.result), "seconds": stored.seconds}
        line = json.dumps(content) + "\n"
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._cut_off else "") + line)
            file.flush()
            os.fsync(file.fileno())
        self._cut_off = False
        self._known[key, canonical(cell)] = stored
