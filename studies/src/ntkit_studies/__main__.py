"""``python -m ntkit_studies``: lists the experiments, runs one, or rewrites the report of stored results."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from ntkit.errors import NtkitError

from ._index import NAMES, find, listing, of_folder
from .skeleton._command_line import fail, one_line, run_command
from .skeleton._report import write_report

_PROGRAM = "python -m ntkit_studies"


def main(arguments: Sequence[str] | None = None) -> int:
    """Read the command line and return the exit status."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    # What follows a name are options of that experiment.
    settings = {"allow_interspersed_args": False, "ignore_unknown_options": True}
    return run_command(_command, given, _PROGRAM, context_settings=settings)


def _command(
    name: Annotated[
        str, typer.Argument(help="An experiment; without a name they are listed.", show_default=False)
    ] = "",
    options: Annotated[
        list[str] | None, typer.Argument(help="Its options; NAME --help shows them.", show_default=False)
    ] = None,
    report: Annotated[
        Path | None, typer.Option("--report", metavar="FOLDER", help="Write the report of stored results again.")
    ] = None,
) -> None:
    """List the experiments, run one, or write the report of stored results again."""
    if name:
        if name not in NAMES:
            fail(_PROGRAM, f"there is no experiment {name!r}. Name one of {', '.join(NAMES)}.")
        raise typer.Exit(find(name).main(options or []))
    if report is None:
        print(listing())
        return
    try:
        experiment = of_folder(report)
        results = experiment.read(report)
        for path in write_report(experiment.report(results), results, report):
            print(path.resolve())
    except (NtkitError, OSError) as error:
        fail(_PROGRAM, one_line(error))


if __name__ == "__main__":
    sys.exit(main())
