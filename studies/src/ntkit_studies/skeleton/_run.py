"""The request and the results of a run."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import UnionType
from typing import Any, Generic, Literal, TypeVar

from ntkit.errors import InputError

from ._files import write_whole
from ._manifest import Data, Manifest
from ._records import decode, encode, record_lines, rounded

__all__ = ["Progress", "Results", "Run", "Size", "read_results", "share_nothing", "silent", "write_results"]

S = TypeVar("S")
C = TypeVar("C")
R = TypeVar("R")

Size = Literal["quick", "default", "full"]
"""The size of a run: a few seconds and too small to mean anything; some minutes; the paper's own sizes."""

Progress = Callable[[str, int, int], None]
"""Called with what is being computed, how much of it is done and the total."""


@dataclass(frozen=True)
class Run(Generic[S]):
    """The request of one run.

    Attributes
    ----------
    settings
        The experiment's own.
    seed
        Seed of everything random.
    data
        The user's file; None: what the package embeds.
    folder
        Where large intermediate results, such as kernels, are kept.
    progress
        Called as the computation proceeds.
    """

    settings: S
    seed: int
    data: Path | None
    folder: Path
    progress: Progress


def silent(what: str, done: int, there_are: int) -> None:
    """Report no progress."""


def share_nothing(run: Run[S]) -> Run[S]:
    """Return the run itself: the ``prepare`` of an experiment whose cells share nothing else."""
    return run


@dataclass(frozen=True)
class Results(Generic[S, C, R]):
    """The results of a run: enough to rewrite its report without computing anything.

    Attributes
    ----------
    settings, seed, data
        The request.
    values
        Results by cell, in the order of the cells.
    manifest
        Their provenance.
    """

    settings: S
    seed: int
    data: Data | None
    values: Mapping[C, R]
    manifest: Manifest

    @property
    def from_file(self) -> bool:
        """Whether the data came from the user's file."""
        return self.data is not None and not self.data.embedded

    @property
    def seconds(self) -> dict[C, float]:
        """Duration of each cell."""
        return dict(zip(self.values, self.manifest.cell_seconds, strict=True))


def write_results(results: Results[Any, Any, Any], folder: Path) -> None:
    """Write ``results.json``, whose bytes depend only on the request, and ``manifest.json``.

    Both have one record per line. Numbers have thirteen significant digits, enough for ranks and for differences of values
    near one; the last ones of float64 are rounding.
    """
    cells = [{"cell": encode(cell), "result": rounded(encode(result))} for cell, result in results.values.items()]
    content = {
        "experiment": results.manifest.experiment,
        "settings": encode(results.settings),
        "seed": results.seed,
        "data": encode(results.data),
        "cells": cells,
    }
    write_whole(folder / "results.json", record_lines(content, "cells"))
    write_whole(folder / "manifest.json", record_lines(rounded(encode(results.manifest))))


def read_results(
    folder: Path, settings: type[S], cell: type[C] | UnionType, result: type[R] | UnionType
) -> Results[S, C, R]:
    """Read what :func:`write_results` wrote.

    Raises
    ------
    InputError
        If the folder has no such files, or they have another form.
    """
    try:
        content, notes = (
            json.loads((folder / name).read_text(encoding="utf-8")) for name in ("results.json", "manifest.json")
        )
        values = {decode(cell, one["cell"]): decode(result, one["result"]) for one in content["cells"]}
        data = None if content["data"] is None else decode(Data, content["data"])
        manifest = decode(Manifest, notes)
        if len(manifest.cell_seconds) != len(values):
            raise ValueError("the manifest is of other results")
        return Results(decode(settings, content["settings"]), int(content["seed"]), data, values, manifest)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InputError(f"{folder} must hold results.json and manifest.json of this experiment: {error}") from error
