"""Tables of what ``table_runs.py`` found: scores of every method on every table, mean ranks, coverage of intervals, seconds.

    python benchmarks/tables.py RESULTS ... [--store NAME]

Methods are compared on the tables that all of them have fitted, with the same rows. Ranks are by R^2 of numbers and log loss of
classes, averaged over the folds of a table; the difference to a method is the mean over tables, with its standard error.
"""

from __future__ import annotations

import argparse
import json
from collections import defaultdict
from pathlib import Path

import numpy as np
from history import MISSING, Table, publish, started
from scipy.stats import rankdata
from table_list import listed

_MEASURES = {False: ("score", "R^2", 1), True: ("loss", "log loss", -1)}


def main() -> None:
    """Read the files, print the tables and store them."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("results", nargs="+", type=Path)
    parser.add_argument("--store", metavar="NAME", help="write the tables to docs/results/benchmarks/NAME.json")
    asked, start = parser.parse_args(), started()
    lines = [json.loads(line) for file in asked.results for line in file.read_text().splitlines()]
    marked = {table.name: f"{table.name} *" if table.arena else table.name for table in listed()}
    tables = []
    for classes, (key, measure, sign) in _MEASURES.items():
        found: dict[str, dict[str, list[dict[str, float]]]] = defaultdict(lambda: defaultdict(list))
        for line in lines:
            if line["classes"] == classes:
                name, method, rows, _ = line["key"]
                found[f"{marked[name]} ({rows})"][method].append(line)
        methods = sorted({method for one in found.values() for method in one})
        whole = {name: one for name, one in found.items() if set(one) == set(methods)}
        if not whole:
            continue
        values = np.array([[np.mean([fit[key] for fit in one[m]]) for m in methods] for one in whole.values()])
        seconds = np.array([[np.mean([fit["seconds"] for fit in one[m]]) for m in methods] for one in whole.values()])
        ranks = np.array([rankdata(-sign * row) for row in values])
        n = len(whole)
        cells = [[name, *(f"{value:.3f}" for value in row)] for name, row in zip(whole, values, strict=True)]
        tables.append(Table(("table", *methods), cells, f"{measure} on {n} tables (*: of TabArena)"))
        summary = []
        for column, method in enumerate(methods):
            gap = sign * (values[:, methods.index("ntkit")] - values[:, column]) if "ntkit" in methods else np.zeros(n)
            error = f"{gap.mean():+.3f} ± {gap.std(ddof=1) / n**0.5:.3f}" if n > 1 else MISSING
            best = f"{np.median(seconds[:, column]):.1f}"
            summary.append([method, f"{ranks[:, column].mean():.2f}", f"{values[:, column].mean():.3f}", error, best])
        header = ("method", "mean rank", f"mean {measure}", "ntkit better by", "median processor seconds")
        tables.append(
            Table(
                header, sorted(summary, key=lambda row: float(row[1])), f"{measure}, {n} tables, {len(methods)} methods"
            )
        )
    covered = {name: [line[name] for line in lines if name in line] for name in ("gaussian", "conformal")}
    cells = [
        [name, f"{np.mean(one):.3f}", f"{np.min(one):.3f}", f"{np.max(one):.3f}", f"{len(one)}"]
        for name, one in covered.items()
        if one
    ]
    if cells:
        tables.append(Table(("interval", "mean", "least", "most", "fits"), cells, "Coverage of nominal 90 % intervals"))
    publish(asked.store or "tables", tables, start, bool(asked.store))


if __name__ == "__main__":
    main()
