"""``ntkit list``, ``run`` and ``report``: the papers' tables and figures, which are a distribution of their own."""

from __future__ import annotations

from collections.abc import Sequence
from importlib.metadata import entry_points
from pathlib import Path
from typing import Annotated, Protocol, cast

import typer

from ntkit.errors import MissingDependencyError

from ._console import Json, command, emit
from ._terminal import stopping_at_once

_GROUP = "ntkit.studies"
"""The entry points by which the studies are found; the one of the papers is called ``papers``."""


class Study(Protocol):
    """What the commands read of one study: its name on the command line, paper, title, and the file that ``--data`` takes."""

    name: str
    reproduces: str
    title: str
    files: str | None

    def main(self, arguments: Sequence[str] | None = None) -> int:
        """Run it with the rest of the command line and return the exit status."""


class Studies(Protocol):
    """What the entry point gives: the names of all studies in the order of the listing, and functions."""

    NAMES: Sequence[str]

    def find(self, name: str) -> Study:
        """Return a study by name."""

    def stored_runs(self, name: str) -> list[str]:
        """Say of each stored run of a study at what size it is, beside the paper's, and how many hours it took."""

    def rebuild_reports(self, folder: Path) -> list[Path]:
        """Rewrite the pages of stored results."""


def installed() -> Studies:
    """Return the installed studies; if there are none, say how to install them."""
    for found in entry_points(group=_GROUP, name="papers"):
        with stopping_at_once():
            return cast(Studies, found.load())
    raise MissingDependencyError(
        "the papers' studies are a package of their own: pip install ntkit-studies, or pip install ./studies in a checkout of "
        "ntkit."
    )


@command("ntkit list --json", name="list")
def list_studies(json: Json = False) -> None:
    """List the papers' tables and figures.

    Of each it shows what is stored: at what size, beside the paper's, and its hours.
    """
    studies = installed()
    found = [studies.find(name) for name in studies.NAMES]
    wide = max(len(one.name) for one in found)
    stored = {one.name: studies.stored_runs(one.name) for one in found}
    lines = []
    for one in found:
        below = [one.title, *(f"stored: {run}" for run in stored[one.name])]
        lines.append("\n".join([f"{one.name:{wide}}  {one.reproduces}", *(f"{'':{wide}}  {text}" for text in below)]))
    rows = [
        {
            "name": one.name,
            "reproduces": one.reproduces,
            "title": one.title,
            "data": one.files,
            "stored": stored[one.name],
        }
        for one in found
    ]
    emit({"studies": rows}, json, "\n".join(lines))


def _names(incomplete: str) -> list[str]:
    """Complete the name of a study."""
    try:
        return [name for name in installed().NAMES if name.startswith(incomplete)]
    except MissingDependencyError:
        return []


@command(
    "ntkit run cntk_cifar --quick",
    "ntkit run cntk_cifar --data cifar.npz --full",
    "ntkit run uci --help",
    context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []},
    options_metavar="[--quick | --full] [OPTIONS OF THE STUDY]",
)
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
    raise typer.Exit(installed().find(name).main(context.args))


@command("ntkit report ntkit-results", "ntkit report ntkit-results/uci")
def report(
    folder: Annotated[Path, typer.Argument(help="Results of one study, or a folder of such folders.")] = Path(
        "ntkit-results"
    ),
    json: Json = False,
) -> None:
    """Rewrite the pages of stored results.

    With an index page of all of them. Nothing is computed.
    """
    written = [str(path) for path in installed().rebuild_reports(folder)]
    emit({"written": written}, json, "\n".join(written))
