"""Kernels of infinitely wide networks on small tables, beside an RBF support vector machine and a random forest.

The protocol is that of Arora et al. 2019c, "Harnessing the power of infinitely wide deep nets on small-data tasks": depth,
number of fixed layers and C (or ridge) are chosen on one split into training and validation points, and the accuracy is
the mean over four folds. Run it with ``python -m ntkit.experiments.uci --data FILE``; without data it runs on four tables
that scikit-learn carries. A run that was stopped goes on where it was.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from ntkit.datasets import SplitTable, load_uci
from ntkit.errors import InputError, NtkitError

from ._command_line import Progress, options_of, progress_bars, read_options
from ._threads import one_thread_an_operation
from ._uci_methods import METHODS, Grids, evaluate
from ._uci_scores import Score, scores
from ._uci_store import Record, ResultFile, fingerprint

__all__ = ["QUICK", "UCIResult", "main", "run"]

QUICK = Grids(depth=2, costs=(0.1, 10.0), ridges=(0.1, 1e-3), gammas=(0.25, 1.0), forest_features=(1.0,), trees=10)


@dataclass(frozen=True)
class UCIResult:
    """What the study found.

    Attributes
    ----------
    tables
        The data sets, in the order of the records.
    methods
        The names of the methods compared.
    records
        By data set and method.
    grids, seed
        What it was asked.
    """

    tables: tuple[SplitTable, ...]
    methods: tuple[str, ...]
    records: dict[tuple[str, str], Record]
    grids: Grids
    seed: int

    def accuracy(self, data: str, method: str) -> float:
        """Give the mean accuracy over the folds of one data set."""
        return float(np.mean(self.records[data, method].outcome.test))

    def scores(self) -> dict[str, Score]:
        """Compare the methods over all data sets."""
        return scores({m: [self.accuracy(table.name, m) for table in self.tables] for m in self.methods})


def run(
    tables: Sequence[SplitTable] | None = None,
    methods: Iterable[str] | None = None,
    store: ResultFile | Path | None = None,
    grids: Grids | None = None,
    seed: int = 0,
    workers: int | None = None,
    progress: Progress | None = None,
) -> UCIResult:
    """Run the study, or what is left of it.

    Parameters
    ----------
    tables
        The data sets; None is :func:`ntkit.datasets.load_uci` without a file.
    methods
        Some of "NTK SVM", "NNGP SVM", "NTK ridge", "NNGP ridge", "RBF SVM" and "random forest"; None is all of them.
    store
        Where each result is written as soon as it is there, and those of earlier runs on the same data with the same
        grids and seed are taken from. None keeps nothing.
    grids
        The settings to choose from; None is the study's own.
    seed
        Decides the random forest; everything else has nothing random.
    workers
        How many results to compute at a time; None is the number of cores.
    progress
        Called with what is computed, how much is done and how much there is, about in units of work.

    Examples
    --------
    >>> result = run(load_uci()[2:3], ["NTK SVM", "RBF SVM"], grids=QUICK)
    >>> result.scores()["NTK SVM"].accuracy > 0.9
    True
    """
    tables = tuple(load_uci() if tables is None else tables)
    names, grids = _method_names(methods), grids or Grids()
    if len({table.name for table in tables}) < max(len(tables), 1):
        raise InputError("tables must be one or more data sets with different names.")
    file = ResultFile(store) if isinstance(store, Path) else store
    report = progress or (lambda what, done, there_are: None)
    keys = {table.name: fingerprint(table, grids, seed) for table in tables}
    found = {
        (table.name, name): file.get(table.name, name, keys[table.name]) if file else None
        for table in tables
        for name in names
    }
    records = {place: record for place, record in found.items() if record is not None}
    # The largest first, so that no worker is left alone with one at the end; small ones cost about as much as 500 points.
    work = {table.name: len(table) ** 2 + 500**2 for table in tables}
    total, done = sum(work.values()) * len(names), sum(work[data] for data, _ in records)
    report("data sets x methods", done, total)

    def job(table: SplitTable, name: str) -> Record:
        start = time.perf_counter()
        try:
            outcome = evaluate(METHODS[name](table, grids, seed), table)
        except Exception as error:
            error.add_note(f"in {name} on {table.name}")
            raise
        return Record(table.name, name, keys[table.name], outcome, time.perf_counter() - start)

    # scikit-learn, torch and the kernels compute outside the interpreter's lock, so threads are enough.
    with one_thread_an_operation(), ThreadPoolExecutor(workers or os.cpu_count()) as pool:
        jobs: list[Future[Record]] = [
            pool.submit(job, table, name)
            for table in sorted(tables, key=len, reverse=True)
            for name in names
            if (table.name, name) not in records
        ]
        try:
            for future in as_completed(jobs):
                record = future.result()
                records[record.data, record.method] = record
                if file:
                    file.add(record)
                done += work[record.data]
                report("data sets x methods", done, total)
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise
    return UCIResult(tables, names, records, grids, seed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the study from the command line and give the exit status.

    Parameters
    ----------
    arguments
        Those of the command line; None takes the program's own.
    """
    parser = options_of("uci", __doc__, "ntkit-uci", "a folder (%(default)s)")
    parser.add_argument("--data", type=Path, help="an .npz file, see ntkit.datasets.load_uci (four bundled tables)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="these data sets alone")
    parser.add_argument("--methods", nargs="+", metavar="NAME", help=f"some of {', '.join(map(repr, METHODS))}")
    parser.add_argument("--workers", type=int, help="results to compute at a time (the number of cores)")
    options = read_options(parser, arguments)
    if options.workers is not None and options.workers < 1:
        parser.error(f"--workers must be at least 1. Got {options.workers}.")
    from ._uci_report import console_table, write_reports  # rich is optional

    try:
        tables = _only(load_uci(options.data), options.only)
        methods = _method_names(options.methods)
        options.output.mkdir(parents=True, exist_ok=True)
        store = ResultFile(options.output / "results.jsonl")
    except (NtkitError, OSError) as error:
        parser.error(str(error))
    if store.unreadable:
        print(
            f"{store.unreadable} unreadable lines in results.jsonl are left aside and computed again.", file=sys.stderr
        )

    try:
        with progress_bars() as progress:
            grids = QUICK if options.quick else None
            result = run(tables, methods, store, grids, options.seed, options.workers, progress)
    except KeyboardInterrupt:
        print("Stopped. The same command goes on with what is left.", file=sys.stderr)
        return 130
    console_table(result)
    for path in write_reports(result, options.output):
        print(path)
    return 0


def _method_names(methods: Iterable[str] | None) -> tuple[str, ...]:
    names = tuple(METHODS) if methods is None else tuple(dict.fromkeys(methods))
    unknown = [name for name in names if name not in METHODS]
    if unknown or not names:
        raise InputError(f"methods must be some of {', '.join(map(repr, METHODS))}. Got {unknown or 'none'}.")
    return names


def _only(tables: tuple[SplitTable, ...], names: Sequence[str] | None) -> tuple[SplitTable, ...]:
    unknown = sorted(set(names or ()) - {table.name for table in tables})
    if unknown:
        raise InputError(f"--only must name data sets of the file: {', '.join(t.name for t in tables)}. Got {unknown}.")
    return tables if names is None else tuple(table for table in tables if table.name in names)


if __name__ == "__main__":
    sys.exit(main())
