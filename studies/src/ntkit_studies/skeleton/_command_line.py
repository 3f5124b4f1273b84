"""The command line of an experiment: options, checks before the computation, progress bars, tables."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from ntkit._src.cli._terminal import one_line, progress_bars
from ntkit.errors import NtkitError
from ntkit.plots import new_figure

from ..plots import Table
from ._estimate import announce
from ._files import check_folder, write_whole
from ._report import html, tables, write_report
from ._run import Progress, Results, Run, Size, silent
from ._settings import add_options, changed, read_toml

if TYPE_CHECKING:
    from ._experiment import Experiment

__all__ = ["Progress", "main", "print_table"]

_WIDEST = 1000
"""Characters of a table in a file."""


def main(experiment: Experiment[Any, Any, Any, Any], arguments: Sequence[str] | None) -> int:
    """Run an experiment and write its report; return the exit status."""
    options = _options(experiment)
    chosen = _read(options, arguments)
    data, output = getattr(chosen, "data", None), chosen.output
    alone = output.suffix == ".html"
    start = time.perf_counter()

    def preview(found: Results[Any, Any, Any]) -> None:
        """Show the first table among the progress bars, and write the page; the whole report replaces both."""
        report = experiment.report(found)
        print_table(tables(report)[0], stderr=True)
        page = output if alone else output / "report.html"
        write_whole(page, html(report, found))
        print(f"{time.perf_counter() - start:.0f} seconds. First figures: {page.resolve()}", file=sys.stderr)

    try:
        size: Size = "quick" if chosen.quick else "full" if chosen.full else "default"
        settings = experiment.sizes(size, data is not None)
        settings = settings if chosen.settings is None else read_toml(settings, chosen.settings)
        settings = changed(settings, vars(chosen))
        check_folder(output.parent if alone else output)
        if alone:
            _check_file(output)
        if size == "full" or settings not in (experiment.sizes(one, data is not None) for one in ("quick", "default")):
            announce(experiment, Run(settings, chosen.seed, data, output.parent if alone else output, silent))
        with progress_bars() as progress:
            folder, workers = (None if alone else output), getattr(chosen, "workers", None)
            results = experiment.run(settings, chosen.seed, data, folder, progress, workers, preview)
        report = experiment.report(results)
        if alone:
            write_whole(output, html(report, results))
            written = [output]
        else:
            written = [output / "results.json", *write_report(report, results, output)]
    except KeyboardInterrupt:
        print("Interrupted. " + ("" if alone else "The same command resumes the run."), file=sys.stderr)
        return 130
    except (FileExistsError, NotADirectoryError) as error:
        text = f"--output must be a folder, or an .html file in one. {error.filename} is a file."
        options.exit(2, f"{options.prog}: error: {text}\n")
    except (NtkitError, OSError) as error:
        options.exit(2, f"{options.prog}: error: {one_line(error)}\n")
    for table in tables(report):
        print_table(table)
    print(f"{time.perf_counter() - start:.0f} seconds. Written:")
    for path in written:
        print(path.resolve())
    return 0


def _options(experiment: Experiment[Any, Any, Any, Any]) -> argparse.ArgumentParser:
    description = f"{experiment.title} Reproduces: {experiment.reproduces}."
    options = argparse.ArgumentParser(prog=f"ntkit run {experiment.name}", description=description)
    default = experiment.output or f"ntkit-results/{experiment.name}"
    text = "a folder, where an interrupted run resumes; or an .html file, for only the report (%(default)s)"
    options.add_argument("--output", type=Path, default=Path(default), help=text)
    options.add_argument("--seed", type=int, default=0, help="seed of everything random (%(default)s)")
    options.add_argument("--threads", type=int, help="threads per operation (torch's choice)")
    size = options.add_mutually_exclusive_group()
    size.add_argument("--quick", action="store_true", help="a few seconds, too small to mean anything")
    size.add_argument(
        "--full", action="store_true", help="the paper's own sizes: hours or days; says first what it takes"
    )
    options.add_argument("--settings", type=Path, help="a TOML file with some of the settings below")
    if experiment.files:
        options.add_argument("--data", type=Path, help=experiment.files)
    if experiment.parallel:
        options.add_argument("--workers", type=int, help="cells to compute at a time (the number of cores)")
    add_options(options, type(experiment.sizes("default", False)))
    return options


def _read(options: argparse.ArgumentParser, arguments: Sequence[str] | None) -> argparse.Namespace:
    chosen = options.parse_args(arguments)
    if not 0 <= chosen.seed < 2**31:
        options.error(f"--seed must be between 0 and {2**31 - 1}. Got {chosen.seed}.")
    for name in ("threads", "workers"):
        if getattr(chosen, name, None) is not None and getattr(chosen, name) < 1:
            options.error(f"--{name} must be at least 1. Got {getattr(chosen, name)}.")
    if chosen.threads is not None:
        torch.set_num_threads(chosen.threads)
    try:
        import rich.progress  # noqa: F401

        new_figure()
    except ImportError as error:
        options.error(f"the experiment needs matplotlib and rich: pip install 'ntkit[plot,cli]' ({error})")
    return chosen


def _check_file(path: Path) -> None:
    existed = path.exists()
    path.open("ab").close()
    if not existed:
        path.unlink()


def print_table(source: Table, stderr: bool = False) -> None:
    """Print a table: in a terminal within its width, in a file or pipe as wide as it is. Nothing is cut off."""
    import rich.box
    import rich.table
    from rich.console import Console
    from rich.measure import Measurement

    shown = rich.table.Table(title=source.caption, title_justify="left", box=rich.box.SIMPLE_HEAD)
    for number, name in enumerate(source.header):
        shown.add_column(name, justify="right" if number else "left", overflow="fold")
    for row in source.rows:
        shown.add_row(*row)
    console = Console(markup=False, stderr=stderr)
    if not console.is_terminal:
        wide = Measurement.get(console, console.options.update(max_width=_WIDEST), shown).maximum
        console = Console(width=max(console.width, wide), markup=False, stderr=stderr)
    console.print(shown)
