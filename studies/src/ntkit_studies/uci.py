"""Kernels of infinitely wide networks on small tables, compared with an RBF support vector machine and a random forest.

The protocol is that of Arora et al. 2019c, "Harnessing the power of infinitely wide deep nets on small-data tasks": depth,
number of fixed layers and C (or ridge) are chosen on one split into training and validation points, and the accuracy is
the mean over four folds. Run it with ``python -m ntkit_studies uci --data FILE``; without data it runs on four tables
that scikit-learn ships.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from dataclasses import dataclass, fields, replace

import numpy as np

from ntkit.errors import InputError

from ._uci_methods import METHODS, Grids, Outcome, evaluate
from ._uci_report import Outcomes, sections
from ._uci_tables import SplitTable, load_uci
from .skeleton import (
    Estimate,
    Report,
    Results,
    Run,
    Size,
    check_at_least,
    duration,
    experiment_of,
    fitted_seconds,
)

__all__ = ["EXPERIMENT", "QUICK", "Settings", "Study", "main", "outcomes_of", "run"]


@dataclass(frozen=True)
class Settings(Grids):
    """What is run.

    Attributes
    ----------
    only
        Only these data sets; None: all.
    methods
        Some of the methods; None: all.
    depth
        Most weight layers of the networks: 1 is the linear kernel.
    costs
        C of the support vector machines, those of Arora et al. 2019c.
    ridges
        Of kernel regression, relative to trace(K)/n; the largest first, as the smoothest.
    gammas
        Of the RBF kernel exp(-gamma |x - x'|^2), times the number of features; as many as there are networks.
    forest_features
        Features that a split of the forest tries, as multiples of their number's square root.
    trees
        Of the forest.
    """

    only: tuple[str, ...] | None = None
    methods: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 1, "depth", "trees")
        if min(self.costs, default=0) <= 0:
            raise InputError(f"costs must be positive. Got {self.costs}.")
        unknown = [name for name in self.methods or () if name not in METHODS]
        if unknown or self.methods == ():
            raise InputError(f"methods must be some of {', '.join(map(repr, METHODS))}. Got {unknown or 'none'}.")


QUICK = Settings(depth=2, costs=(0.1, 10.0), ridges=(0.1, 1e-3), gammas=(0.25, 1.0), forest_features=(1.0,), trees=10)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default is the study's own."""
    return QUICK if size == "quick" else Settings()


@dataclass(frozen=True)
class Study:
    """A cell: one method on one data set."""

    data: str
    method: str


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    tables: dict[str, SplitTable]


def cells(run: Run[Settings]) -> list[Study]:
    """Return one cell per data set and method, the largest data sets first, so that no worker is left alone at the end."""
    tables = sorted(_tables(run), key=len, reverse=True)
    methods = METHODS if run.settings.methods is None else dict.fromkeys(run.settings.methods)
    return [Study(table.name, method) for table in tables for method in methods]


def prepare(run: Run[Settings]) -> _Shared:
    """Load the data sets."""
    return _Shared(run, {table.name: table for table in _tables(run)})


def _tables(run: Run[Settings]) -> Sequence[SplitTable]:
    tables, names = load_uci(run.data), run.settings.only
    if names is None:
        return tables
    unknown = sorted(set(names) - {table.name for table in tables})
    if unknown:
        raise InputError(f"--only must name data sets of the file: {', '.join(t.name for t in tables)}. Got {unknown}.")
    return [table for table in tables if table.name in names]


def compute(shared: _Shared, cell: Study) -> Outcome:
    """Choose the settings of a method on a data set and measure them."""
    table, settings = shared.tables[cell.data], shared.run.settings
    return evaluate(METHODS[cell.method](table, settings, shared.run.seed), table)


def outcomes_of(results: Results[Settings, Study, Outcome]) -> Outcomes:
    """Return the outcomes by method, then by data set in the order of their names."""
    found: Outcomes = {}
    for cell, outcome in sorted(results.values.items(), key=lambda item: item[0].data):
        found.setdefault(cell.method, {})[cell.data] = outcome
    return {method: found[method] for method in METHODS if method in found}


def report(results: Results[Settings, Study, Outcome]) -> Report:
    """Compare the methods over all data sets."""
    outcomes, seconds = outcomes_of(results), dict.fromkeys(METHODS, 0.0)
    for cell, one in results.seconds.items():
        seconds[cell.method] += one
    count = len(next(iter(outcomes.values())))
    introduction = (
        f"The exact kernels of infinitely wide fully connected ReLU networks, computed by ntkit, on {count} small tables, "
        "beside scikit-learn's RBF support vector machine and random forest, after Arora et al. 2019, “Harnessing the power "
        "of infinitely wide deep nets on small-data tasks”."
    )
    grids = Grids(**{field.name: getattr(results.settings, field.name) for field in fields(Grids)})
    return Report("ntkit on small tables", introduction, sections(outcomes, seconds, grids, results.seed))


_TRIAL, _TREES = 100, 20  # points of the smaller of two trials, and trees of a forest
_FOREST = "random forest"


def estimate(run: Run[Settings]) -> Estimate:
    """Time the methods on random points: kernels grow as n^2 at these sizes, the forest as n and as its trees."""
    settings, tables = run.settings, _tables(run)
    methods = METHODS if settings.methods is None else dict.fromkeys(settings.methods)
    few = replace(settings, trees=min(_TREES, settings.trees))

    def trial(n: int, names: Sequence[str]) -> None:
        for name in names:
            evaluate(METHODS[name](_random_table(n), few, run.seed), _random_table(n))

    kernels = [name for name in methods if name != _FOREST]
    of_table = fitted_seconds(lambda n: trial(n, kernels), _TRIAL, 2)
    seconds = sum(of_table(len(table)) for table in tables)
    if _FOREST in methods:
        forest = duration(lambda: trial(_TRIAL, [_FOREST])) * settings.trees / few.trees
        seconds += sum(forest * max(1.0, len(table) / _TRIAL) for table in tables)
    workers = os.cpu_count() or 1
    memory = 8.0 * 4 * workers * max(map(len, tables)) ** 2
    basis = f"Measured here: all methods on {_TRIAL} random points, the kernels on {2 * _TRIAL} too; {workers} tables at a time."
    return Estimate(seconds / workers, memory, basis, "some of the tables (--only) or methods (--methods)")


def _random_table(n: int) -> SplitTable:
    draws = np.random.default_rng(0)
    order, part = draws.permutation(n), n // 4
    parts = [order[at * part : (at + 1) * part] for at in range(4)]
    folds = tuple((np.setdiff1d(order, one), one) for one in parts)
    return SplitTable(
        "trial", draws.standard_normal((n, 10)), np.arange(n) % 2, order[: n // 2], order[n // 2 :], folds
    )


EXPERIMENT = experiment_of(
    globals(),
    name="uci",
    title="Kernels of fully connected networks on small tables, compared with an RBF SVM and a random forest.",
    reproduces="Arora et al. 2019c, the study on UCI tables",
    embedded="tables",
    files="the folder of the collection or an .npz file, see ntkit_studies.load_uci (four bundled tables)",
    selects=("only", "methods"),
    parallel=True,
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
