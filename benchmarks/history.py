"""The records of benchmark runs, with commit and machine: a line of JSON of ``make bench``, a file of every other script.

A script ends with ``publish``, which prints its tables and with ``--store`` writes them to docs/results/benchmarks, from which
the site shows them.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import rich.table
import torch
from rich.console import Console

from ntkit._src.gram import write_atomically
from ntkit_studies.plots import Table
from ntkit_studies.skeleton._manifest import this_machine, versions
from ntkit_studies.skeleton._records import record_lines

__all__ = [
    "MISSING",
    "Start",
    "Table",
    "add_store",
    "append_record",
    "command_line",
    "number",
    "publish",
    "record",
    "show",
    "started",
    "store",
    "threads",
]

RESULTS = Path(__file__).parents[1] / "docs/results/benchmarks"
MISSING = "–"
"""The cell of what was not measured."""

_MEASURED = ("src", "benchmarks", "CMakeLists.txt", "pyproject.toml")  # a change of anything else changes no figure
_WIDTH = 140  # of a table where the output is no terminal, or a narrow one

_EFFICIENCY = (
    "entries x layers / s, float32",
    "of the roofline, float32",
    "of the roofline, float64",
    "speed-up by threads",
    "times the matrix product",
)


@dataclass(frozen=True)
class Start:
    """What held when a run began: later, others may have committed, and the run itself is part of the load.

    Attributes
    ----------
    commit
        The hash, with "-changed" if what is measured was not committed.
    date
        In UTC.
    load
        Mean number of processes that ran or waited, over the last 1, 5 and 15 minutes.
    """

    commit: str
    date: str
    load: tuple[float, float, float]


def started() -> Start:
    """Give commit, date and load of this moment."""
    commit = _git("rev-parse", "HEAD")
    paths = [f":/{path}" for path in _MEASURED]
    changed = commit != "unknown" and _git("status", "--porcelain", "--untracked-files=no", "--", *paths)
    date = datetime.now(UTC).isoformat(timespec="seconds")
    one, five, fifteen = (round(load, 2) for load in os.getloadavg())
    return Start(f"{commit}-changed" if changed else commit, date, (one, five, fifteen))


def add_store(parser: argparse.ArgumentParser) -> None:
    """Give a script the option ``--store``."""
    parser.add_argument(
        "--store",
        action="store_true",
        help="write the tables to docs/results/benchmarks/NAME.json, from which the site shows them",
    )


def publish(name: str, tables: Sequence[Table], start: Start, stored: bool) -> None:
    """Print tables and, if asked, store the same ones."""
    for table in tables:
        show(table)
    if stored:
        print(f"stored in {store(name, tables, start).name}", file=sys.stderr)


def show(table: Table) -> None:
    """Print a table; columns of numbers are aligned right."""
    columns = rich.table.Table(title=table.caption)
    for place, column in enumerate(table.header):
        has_words = any(row[place][:1].isalpha() for row in table.rows)
        columns.add_column(column, justify="left" if has_words else "right")
    for row in table.rows:
        columns.add_row(*row)
    # Brackets and colons in a cell are its text, no markup.
    Console(width=max(_WIDTH, Console().width), markup=False, emoji=False).print(columns)


def store(name: str, tables: Sequence[Table], start: Start, folder: Path | None = None) -> Path:
    """Write the record of a run as a whole file.

    Parameters
    ----------
    name
        Of the record: the script's, unless a script has several.
    tables
        What it measured.
    start
        What ``started`` gave when it began.
    folder
        Where to; None: docs/results/benchmarks.

    Returns
    -------
    Path
        The file.
    """
    made = {
        "benchmark": name,
        "command": command_line(sys.argv),
        **asdict(start),
        "machine": asdict(this_machine()),
        "versions": versions(),
        "tables": [
            {"caption": table.caption, "header": list(table.header), "rows": [list(row) for row in table.rows]}
            for table in tables
        ],
    }
    path = (folder or RESULTS) / f"{name}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(path, record_lines(made, "tables").encode())
    return path


def command_line(arguments: Sequence[str]) -> str:
    """Give the command as typed, but only the name of a file elsewhere, and of a Python elsewhere only that it is one.

    Examples
    --------
    >>> command_line(["benchmarks/rfm.py", "--peer", "/opt/peer/bin/python3", "--uci=/data/uci.npz"])
    'python benchmarks/rfm.py --peer PYTHON --uci=uci.npz'
    """
    script, *rest = arguments
    return f"python benchmarks/{Path(script).name} {shlex.join(map(_without_folder, rest))}".rstrip()


def _without_folder(argument: str) -> str:
    option, equals, value = argument.partition("=") if argument.startswith("--") else ("", "", argument)
    if value.startswith(("/", "..", "~")):
        name = Path(value).name
        value = "PYTHON" if name.startswith("python") else name
    return f"{option}{equals}{value}"


def number(value: float | None, digits: int = 3) -> str:
    """Give a number with some significant digits and no exponent.

    Examples
    --------
    >>> number(1034.2), number(0.00073456), number(None)
    ('1030', '0.000735', '–')
    """
    if value is None:
        return MISSING
    return np.format_float_positional(value, precision=digits, unique=False, fractional=False, trim="-")


def threads() -> str:
    """Give the number of torch's threads in words, for a caption."""
    count = torch.get_num_threads()
    return f"{count} thread{'s' * (count > 1)}"


def record(machine: Mapping[str, Any], rows: Sequence[Mapping[str, Any]], peer: str | None) -> dict[str, Any]:
    """Give the record of one run: of every case milliseconds per entry, ratios to the peer's better type, and efficiency."""
    times: dict[str, dict[str, float]] = {}
    ratios: dict[str, dict[str, float]] = {}
    for row in rows:
        theirs = [row[name] for name in ("neural-tangents float32", "neural-tangents float64") if row.get(name)]
        own = {"float32": row["native float32"], "float64": row["native float64"], "reference": row.get("reference")}
        found = {**own, "neural-tangents": min(theirs) if theirs else None}
        times[row["case"]] = {name: 1e3 * value for name, value in found.items() if value is not None}
        given = {kind: row.get(f"ratio {kind}") for kind in ("float32", "float64")}
        ratios[row["case"]] = {name: value for name, value in given.items() if value is not None}
    now = started()
    return {
        "commit": now.commit,
        "date": now.date,
        "machine": dict(machine),
        "peer": peer,
        "milliseconds per entry": times,
        "ratios": ratios,
        "efficiency": {row["case"]: {name: row[name] for name in _EFFICIENCY if row.get(name)} for row in rows},
    }


def append_record(path: Path, made: Mapping[str, Any]) -> None:
    """Add a record to the end of the file."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(made) + "\n")
        file.flush()
        os.fsync(file.fileno())


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return done.stdout.strip()
