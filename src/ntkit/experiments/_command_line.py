"""The command line that experiments share: their options, checks before the computation, progress bars, tables."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from ntkit.plots import Table, new_figure

__all__ = ["Progress", "check_writable", "given", "options_of", "print_table", "progress_bars", "read_options"]

Progress = Callable[[str, int, int], None]
"""Called with what is being computed, how much of it is done and how much there is."""


def options_of(name: str, description: str | None, output: str, output_help: str) -> argparse.ArgumentParser:
    """Give the options that every experiment has."""
    options = argparse.ArgumentParser(prog=f"python -m ntkit.experiments.{name}", description=description)
    options.add_argument("--output", type=Path, default=Path(output), help=output_help)
    options.add_argument("--seed", type=int, default=0, help="decides all that is random (%(default)s)")
    options.add_argument("--threads", type=int, help="threads (torch's choice)")
    options.add_argument("--quick", action="store_true", help="a few seconds, too small to mean anything")
    return options


def read_options(options: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    """Read the command line, and end the program now, not after the computation, if something is missing."""
    chosen = options.parse_args(arguments)
    if not 0 <= chosen.seed < 2**31:
        options.error(f"--seed must be between 0 and {2**31 - 1}. Got {chosen.seed}.")
    if chosen.threads is not None:
        if chosen.threads < 1:
            options.error(f"--threads must be positive. Got {chosen.threads}.")
        torch.set_num_threads(chosen.threads)
    try:
        import rich.progress  # noqa: F401

        new_figure()
    except ImportError as error:
        options.error(f"the experiment needs matplotlib and rich: pip install 'ntkit[plot,cli]' ({error})")
    return chosen


def given(chosen: argparse.Namespace, *names: str) -> dict[str, Any]:
    """Give the options, of those named, that the command line has; several values as a tuple."""
    values = {name: getattr(chosen, name) for name in names}
    return {
        name: tuple(value) if isinstance(value, list) else value for name, value in values.items() if value is not None
    }


def check_writable(options: argparse.ArgumentParser, *paths: Path) -> None:
    """End the program now, not after the computation, if a file could not be written."""
    for path in paths:
        if not path.name:
            options.error(f"cannot write to {path}: it is a folder. Name a file with --output.")
        existed = path.exists()
        try:
            path.open("ab").close()
        except OSError as error:
            options.error(f"cannot write to {path}: {error.strerror}. Name another file with --output.")
        if not existed:
            path.unlink()


@contextmanager
def progress_bars() -> Iterator[Progress]:
    """Show a bar for each thing computed, on the standard error stream."""
    from rich import progress
    from rich.console import Console

    columns = (
        progress.TextColumn("{task.description}"),
        progress.BarColumn(),
        progress.TextColumn("{task.percentage:>3.0f}%"),
        progress.TimeElapsedColumn(),
        progress.TimeRemainingColumn(),
    )
    with progress.Progress(*columns, console=Console(stderr=True)) as bars:
        tasks: dict[str, progress.TaskID] = {}

        def report(what: str, done: int, there_are: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=there_are)
            bars.update(tasks[what], completed=done)

        yield report


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
