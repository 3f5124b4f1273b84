"""The results of the UCI study on disk, one line of JSON each, so that a run that was stopped goes on where it was."""

from __future__ import annotations

import hashlib
import json
import math
import os
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from ntkit.datasets import SplitTable
from ntkit.errors import InputError

from ._uci_methods import Grids, Outcome

__all__ = ["Record", "ResultFile", "fingerprint"]


@dataclass(frozen=True)
class Record:
    """One line of the file.

    Attributes
    ----------
    data, method
        Names of the data set and of the method.
    key
        What the result depends on besides its method, see :func:`fingerprint`.
    outcome
        The settings chosen and the accuracies.
    seconds
        Time on the clock that it took.
    """

    data: str
    method: str
    key: str
    outcome: Outcome
    seconds: float

    def line(self) -> str:
        """Give the record as one line of JSON."""
        return json.dumps(asdict(self)) + "\n"

    @classmethod
    def of_line(cls, line: str) -> Record:
        """Read one line; a ValueError, KeyError or TypeError where it is none of ours."""
        fields = json.loads(line)
        outcome, seconds = fields["outcome"], float(fields["seconds"])
        data, method, key = (fields[name] for name in ("data", "method", "key"))
        validation, test = float(outcome["validation"]), tuple(float(share) for share in outcome["test"])
        choice = {str(name): float(value) for name, value in outcome["choice"].items()}
        if not all(isinstance(name, str) for name in (data, method, key)) or not test:
            raise ValueError("no record")
        if not all(0 <= share <= 1 for share in (validation, *test)) or not math.isfinite(seconds):
            raise ValueError("no shares")
        return cls(data, method, key, Outcome(choice, validation, test), seconds)


class ResultFile:
    """A file of records that only ever grows.

    A line that cannot be read, such as the last one of a run that was killed, is left where it is and its result
    computed again. Where two lines give the same result the last one counts.

    Parameters
    ----------
    path
        Made when the first record is added.

    Attributes
    ----------
    unreadable
        How many lines could not be read.

    Raises
    ------
    InputError
        If there is such a file and it holds something else.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._records: dict[tuple[str, str, str], Record] = {}
        self.unreadable = 0
        text = path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
        if text.strip() and not text.lstrip().startswith("{"):
            raise InputError(f"{path} holds no results of this study. Move it away, or name another place.")
        # A file whose last line is cut off: the next record must not be glued to it.
        self._cut_off = bool(text) and not text.endswith("\n")
        for line in filter(str.strip, text.split("\n")):
            try:
                record = Record.of_line(line)
            except (ValueError, KeyError, TypeError, AttributeError):
                self.unreadable += 1
            else:
                self._records[record.data, record.method, record.key] = record

    def get(self, data: str, method: str, key: str) -> Record | None:
        """Give the record of a data set and a method, if it is there and of the same data and settings."""
        return self._records.get((data, method, key))

    def add(self, record: Record) -> None:
        """Write a record at once, through to the disk."""
        with self._path.open("a", encoding="utf-8") as file:
            file.write(("\n" if self._cut_off else "") + record.line())
            file.flush()
            os.fsync(file.fileno())
        self._cut_off = False
        self._records[record.data, record.method, record.key] = record


def fingerprint(table: SplitTable, grids: Grids, seed: int) -> str:
    """Give a short text that changes with the data, their splits, the grids and the seed."""
    digest = hashlib.sha256(json.dumps([table.name, asdict(grids), seed]).encode())
    for array in (table.X, table.y, table.train, table.validation, *(part for fold in table.folds for part in fold)):
        digest.update(str(array.shape).encode())
        digest.update(np.ascontiguousarray(array).tobytes())
    return digest.hexdigest()[:16]
