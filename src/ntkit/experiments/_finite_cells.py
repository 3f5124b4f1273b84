"""A table of numbers, by curve, width and draw, that a stopped run fills further."""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import InputError

from ._command_line import Progress, check_writable, options_of, read_options
from ._files import write_json

__all__ = ["Cell", "file_options", "fill", "read_file_options", "table"]

Cell = tuple[str, int, int]
"""A curve, a width and the number of a draw."""


def fill(
    cells: Sequence[Cell],
    compute: Callable[[Cell], float],
    settings: Mapping[str, Any],
    path: Path | None = None,
    progress: Progress | None = None,
) -> dict[Cell, float]:
    """Compute every cell that the file does not have, and write the file after each.

    Parameters
    ----------
    cells
        In the order of computation.
    compute
        Gives the number of a cell; must depend on nothing but the cell and the settings.
    settings
        Plain values. A file made with other settings is refused.
    path
        A JSON file; None keeps nothing.
    progress
        Called after each cell.
    """
    found = _read(path, settings) if path is not None and path.exists() and path.stat().st_size else {}
    for number, cell in enumerate(cells):
        key = "/".join(map(str, cell))
        if key not in found:
            found[key] = float(compute(cell))
            if path is not None:
                write_json(path, {"settings": dict(settings), "cells": found})
        if progress is not None:
            progress(cell[0], sum(c[0] == cell[0] for c in cells[: number + 1]), sum(c[0] == cell[0] for c in cells))
    if path is not None:
        write_json(path, {"settings": dict(settings), "cells": found})
    return {cell: found["/".join(map(str, cell))] for cell in cells}


def table(cells: Mapping[Cell, float], curve: str, widths: Sequence[int], draws: int) -> NDArray[Any]:
    """Give the numbers of one curve, shape (widths, draws)."""
    return np.array([[cells[curve, width, draw] for draw in range(draws)] for width in widths])


def _read(path: Path, settings: Mapping[str, Any]) -> dict[str, float]:
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        made_with, cells = content["settings"], {str(key): float(value) for key, value in content["cells"].items()}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise InputError(
            f"{path} must be a result of this experiment, to go on from. Name another --output."
        ) from error
    if made_with != json.loads(json.dumps(settings)):
        raise InputError(f"{path} was made with other settings. Name another --output, or remove it.")
    return cells


def file_options(name: str, description: str | None) -> argparse.ArgumentParser:
    """Give the options of an experiment whose numbers go to a file that a later run goes on from."""
    return options_of(
        name,
        description,
        f"ntkit-{name.replace('_', '-')}.json",
        "the numbers (%(default)s), with the figure beside it as .png; a file of the same settings is gone on from",
    )


def read_file_options(options: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line; the file and the figure beside it must be writable."""
    chosen = read_options(options, arguments)
    if chosen.output.suffix == ".png":
        options.error(f"--output must not end in .png, where the figure goes. Got {chosen.output}.")
    check_writable(options, chosen.output, chosen.output.with_suffix(".png") if chosen.output.name else chosen.output)
    return chosen
