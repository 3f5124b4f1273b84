"""What experiments with finite networks share: a table of numbers that a stopped run fills further, and the command line."""

from __future__ import annotations

import argparse
import json
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import InputError
from ntkit.plots import Table, new_figure

__all__ = ["Cell", "Progress", "fill", "open_bars", "parser", "print_table", "read_options", "table"]

Progress = Callable[[str, int, int], None]
"""Called with what is being computed, how much of it is done and how much there is."""

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
                _write(path, settings, found)
        if progress is not None:
            progress(cell[0], sum(c[0] == cell[0] for c in cells[: number + 1]), sum(c[0] == cell[0] for c in cells))
    if path is not None:
        _write(path, settings, found)
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


def _write(path: Path, settings: Mapping[str, Any], cells: Mapping[str, float]) -> None:
    """Write a new file and put it in the old one's place, so that a run stopped here leaves one of them whole."""
    fresh = path.with_name(path.name + ".part")
    fresh.write_text(json.dumps({"settings": dict(settings), "cells": dict(cells)}, indent=1) + "\n", encoding="utf-8")
    os.replace(fresh, path)


def parser(name: str, description: str | None) -> argparse.ArgumentParser:
    """Give the options that every experiment has."""
    options = argparse.ArgumentParser(prog=f"python -m ntkit.experiments.{name}", description=description)
    options.add_argument(
        "--output",
        type=Path,
        default=Path(f"ntkit-{name.replace('_', '-')}.json"),
        help="the numbers (%(default)s), with the figure beside it as .png; a file of the same settings is gone on from",
    )
    options.add_argument("--seed", type=int, default=0, help="decides all that is random (%(default)s)")
    options.add_argument("--quick", action="store_true", help="a few seconds, too small to mean anything")
    return options


def read_options(options: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and end the program now, not after the computation, if something is missing."""
    chosen = options.parse_args(arguments)
    if not 0 <= chosen.seed < 2**31:
        options.error(f"--seed must be between 0 and {2**31 - 1}. Got {chosen.seed}.")
    if chosen.output.suffix == ".png":
        options.error(f"--output must not end in .png, where the figure goes. Got {chosen.output}.")
    try:
        open_bars()
        new_figure()
    except ImportError as error:
        options.error(f"the experiment needs matplotlib and rich: pip install 'ntkit[plot,cli]' ({error})")
    if not chosen.output.name:
        options.error(f"cannot write to {chosen.output}: it is a folder. Name a file with --output.")
    for path in (chosen.output, chosen.output.with_suffix(".png")):
        existed = path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            options.error(f"cannot write to {path}: {error.strerror}. Name another file with --output.")
        if not existed:
            path.unlink()
    return chosen


def open_bars() -> AbstractContextManager[Progress]:
    """Give progress bars on the standard error stream."""
    from ._digits_report import progress_bars

    return progress_bars()


def print_table(source: Table) -> None:
    """Print a table in the terminal."""
    import rich.box
    import rich.table
    from rich.console import Console

    shown = rich.table.Table(title=source.caption, title_justify="left", box=rich.box.SIMPLE_HEAD)
    for number, name in enumerate(source.header):
        shown.add_column(name, justify="right" if number else "left")
    for row in source.rows:
        shown.add_row(*row)
    Console().print(shown)
