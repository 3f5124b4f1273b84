"""``ntkit list``, ``run`` and ``report``: the papers' tables and figures."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ntkit._src.experiments import NAMES, find, rebuild_reports

from ._console import Json, emit, examples

__all__ = ["add_to", "list_experiments", "report", "run"]


def add_to(app: typer.Typer) -> None:
    """Add the commands."""
    app.command("list", epilog=examples("ntkit list --json"))(list_experiments)
    app.command(
        context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
        options_metavar="[--quick | --full] [OPTIONS OF THE EXPERIMENT]",
        epilog=examples(
            "ntkit run cntk_cifar --quick", "ntkit run cntk_cifar --data cifar.npz --full", "ntkit run uci --help"
        ),
    )(run)
    app.command(epilog=examples("ntkit report ntkit-results", "ntkit report ntkit-results/uci"))(report)


def list_experiments(json: Json = False) -> None:
    """List the papers' tables and figures."""
    found = [find(name) for name in NAMES]
    wide = max(len(one.name) for one in found)
    lines = [f"{one.name:{wide}}  {one.reproduces}\n{'':{wide}}  {one.title}" for one in found]
    rows = [{"name": one.name, "reproduces": one.reproduces, "title": one.title, "data": one.files} for one in found]
    emit({"experiments": rows}, json, "\n".join(lines))


def _names(incomplete: str) -> list[str]:
    """Complete the name of an experiment."""
    return [name for name in NAMES if name.startswith(incomplete)]


def run(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="As ntkit list shows it.", autocompletion=_names)] = "",
) -> None:
    """Run one of them and compare the paper's numbers with ours.

    An interrupted run resumes. ntkit run NAME --help shows the settings of one. --quick takes at most two minutes on
    data that comes with the package.
    """
    if name in ("", "--help"):
        print(context.get_help())
        raise typer.Exit
    raise typer.Exit(find(name).main(context.args))


def report(
    folder: Annotated[Path, typer.Argument(help="Results of one experiment, or a folder of such folders.")] = Path(
        "ntkit-results"
    ),
    json: Json = False,
) -> None:
    """Rewrite the pages of stored results.

    With an index page of all of them. Nothing is computed.
    """
    written = [str(path) for path in rebuild_reports(folder)]
    emit({"written": written}, json, "\n".join(written))
