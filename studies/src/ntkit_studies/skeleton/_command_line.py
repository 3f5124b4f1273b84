"""The command line of an experiment: options, checks before the computation, progress bars, tables."""

from __future__ import annotations

import errno
import inspect
import re
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import torch
import typer

from ntkit.errors import NtkitError
from ntkit.plots import new_figure

from ..plots import Table
from ._estimate import announce
from ._files import check_folder, write_whole
from ._report import html, tables, write_report
from ._run import Progress, Results, Run, Size, silent
from ._settings import changed, option, options_of, read_toml, repeated

if TYPE_CHECKING:
    from ._experiment import Experiment

__all__ = ["Progress", "fail", "main", "one_line", "print_table", "run_command"]

_WIDEST = 1000
"""Characters of a table in a file."""


def main(experiment: Experiment[Any, Any, Any, Any], arguments: Sequence[str] | None) -> int:
    """Run an experiment and write its report; return the exit status."""

    def command(**chosen: Any) -> None:
        _run(experiment, chosen)

    parameters = _parameters(experiment)
    command.__doc__ = f"{experiment.title} Reproduces: {experiment.reproduces}."
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    command.__annotations__ = {one.name: one.annotation for one in parameters}
    given = sys.argv[1:] if arguments is None else arguments
    return run_command(command, repeated(given, type(experiment.sizes("default", False))), _program(experiment))


def run_command(command: Any, arguments: Sequence[str], program: str, **settings: Any) -> int:
    """Run a function as a program; return the exit status, or raise SystemExit(2) for arguments that it refuses."""
    app = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode=None)
    app.command(**settings)(command)
    try:
        app(list(arguments), prog_name=program)
    except SystemExit as end:
        if end.code == 2:
            raise
        return int(end.code or 0)
    return 0


def fail(program: str, text: str) -> NoReturn:
    """End the program with an error of one line."""
    print(f"{program}: error: {text}", file=sys.stderr)
    raise typer.Exit(2)


def one_line(error: BaseException) -> str:
    """Return the message of an error as sentences on one line."""
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return "the disk is full: make room, or write to another."
    sentences = re.sub(r"(?<=[^\s.:,;])\s*\n\s*(?=[A-Z])", ". ", str(error))  # a line without a full stop gets one
    return " ".join(sentences.split()) or type(error).__name__


def _program(experiment: Experiment[Any, Any, Any, Any]) -> str:
    return f"ntkit run {experiment.name}"


def _run(experiment: Experiment[Any, Any, Any, Any], chosen: dict[str, Any]) -> None:
    program = _program(experiment)
    _check(program, chosen)
    data, output = chosen.get("data"), chosen["output"]
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
        size: Size = "quick" if chosen["quick"] else "full" if chosen["full"] else "default"
        settings = experiment.sizes(size, data is not None)
        settings = settings if chosen["settings"] is None else read_toml(settings, chosen["settings"])
        settings = changed(settings, chosen)
        check_folder(output.parent if alone else output)
        if alone:
            _check_file(output)
        if size == "full" or settings not in (experiment.sizes(one, data is not None) for one in ("quick", "default")):
            announce(experiment, Run(settings, chosen["seed"], data, output.parent if alone else output, silent))
        with _progress_bars() as progress:
            folder, workers = (None if alone else output), chosen.get("workers")
            results = experiment.run(settings, chosen["seed"], data, folder, progress, workers, preview)
        report = experiment.report(results)
        if alone:
            write_whole(output, html(report, results))
            written = [output]
        else:
            written = [output / "results.json", *write_report(report, results, output)]
    except KeyboardInterrupt:
        print("Interrupted. " + ("" if alone else "The same command resumes the run."), file=sys.stderr)
        raise typer.Exit(130) from None
    except (FileExistsError, NotADirectoryError) as error:
        fail(program, f"--output must be a folder, or an .html file in one. {error.filename} is a file.")
    except (NtkitError, OSError) as error:
        fail(program, one_line(error))
    for table in tables(report):
        print_table(table)
    print(f"{time.perf_counter() - start:.0f} seconds. Written:")
    for path in written:
        print(path.resolve())


def _parameters(experiment: Experiment[Any, Any, Any, Any]) -> list[inspect.Parameter]:
    default = Path(experiment.output or f"ntkit-results/{experiment.name}")
    where = f"a folder, where an interrupted run resumes; or an .html file, for only the report ({default})"
    full = "the paper's own sizes: hours or days; says first what it takes"
    found = [
        option("output", Path, default, where),
        option("seed", int, 0, "seed of everything random (0)"),
        option("threads", int | None, None, "threads per operation (torch's choice)"),
        option("quick", bool, False, "a few seconds, too small to mean anything"),
        option("full", bool, False, full),
        option("settings", Path | None, None, "a TOML file with some of the settings below"),
    ]
    if experiment.files:
        found.append(option("data", Path | None, None, experiment.files))
    if experiment.parallel:
        found.append(option("workers", int | None, None, "cells to compute at a time (the number of cores)"))
    return [*found, *options_of(type(experiment.sizes("default", False)))]


def _check(program: str, chosen: dict[str, Any]) -> None:
    if chosen["quick"] and chosen["full"]:
        fail(program, "--full is not allowed with --quick.")
    if not 0 <= chosen["seed"] < 2**31:
        fail(program, f"--seed must be between 0 and {2**31 - 1}. Got {chosen['seed']}.")
    for name in ("threads", "workers"):
        if chosen.get(name) is not None and chosen[name] < 1:
            fail(program, f"--{name} must be at least 1. Got {chosen[name]}.")
    if chosen["threads"] is not None:
        torch.set_num_threads(chosen["threads"])
    try:
        new_figure()
    except ImportError as error:
        fail(program, f"the experiment needs matplotlib: pip install 'ntkit[plot,cli]' ({one_line(error)})")


@contextmanager
def _progress_bars() -> Iterator[Progress]:
    """Show a progress bar for each computation, on the standard error stream."""
    from rich.console import Console
    from rich.progress import Progress as Bars
    from rich.progress import TaskID, TimeElapsedColumn

    bars = Bars(*Bars.get_default_columns(), TimeElapsedColumn(), console=Console(stderr=True))
    tasks: dict[str, TaskID] = {}

    def report(what: str, done: int, total: int) -> None:
        bars.start()  # at the first report: no empty line where nothing is computed
        if what not in tasks:
            tasks[what] = bars.add_task(what, total=total)
        bars.update(tasks[what], completed=done)

    try:
        yield report
    finally:
        if tasks:
            bars.stop()


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
