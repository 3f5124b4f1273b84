"""What is stored of each experiment: at what size, beside the paper's, and how many hours it took."""

from __future__ import annotations

import csv
import json
from pathlib import Path

__all__ = ["stored_runs"]

RESULTS = Path(__file__).parents[2] / "results"
"""The stored runs of a checkout; an installed package has none."""


def stored_runs(name: str, results: Path = RESULTS) -> list[str]:
    """Return a line for each stored run of an experiment: its folder, size, the paper's where that is another, and hours.

    Sizes are those of the first row that has one.

    Parameters
    ----------
    name
        Of the experiment.
    results
        The folder of all stored runs.

    Examples
    --------
    >>> stored_runs("no such experiment")
    []
    """
    lines = []
    for path in sorted((results / name).rglob("manifest.json")):
        seconds = sum(json.loads(path.read_text(encoding="utf-8"))["cell_seconds"])
        with path.with_name("results.csv").open(encoding="utf-8", newline="") as file:
            size = next((row["size"] for row in csv.DictReader(file) if row["size"]), "a size of its own")
        lines.append(f"{path.parent.relative_to(results)}: {size}, {seconds / 3600:.2g} h")
    return lines
