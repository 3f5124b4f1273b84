"""Recursive feature machines on tasks that depend on few inputs, and on small tables.

Kernel regression learns its metric M from the gradients of its own predictor (Radhakrishnan et al. 2022). Tasks: y = x0 x1 of
many Gaussian inputs, with fixed settings and with those that ``RFMRegressor()`` chooses; y = x0 x1 1{x5 > 0}, the low-rank task
of the authors' public code; y = x0 x1 once more with the tangent kernel of a network. With ``--data FILE`` also the accuracy of
``RFMClassifier()`` on UCI tables, beside the plain tangent kernel. ``benchmarks/rfm.py`` sets xrfm beside all of it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ntkit import NTKClassifier, RFMClassifier, RFMRegressor, infinite_width
from ntkit.errors import InputError
from ntkit.features import rfm

from .._networks import blank
from .._uci_tables import SplitTable, load_uci
from ..skeleton import Report, Results, Run, Size, check_at_least, experiment_of
from ._rfm_records import Accuracies, Course, Fit, Kernel, TableCell, Task
from ._rfm_report import TABLES, claims, comparisons, sections

__all__ = [
    "BANDWIDTH",
    "EXPERIMENT",
    "RIDGE",
    "TABLES",
    "Drawn",
    "Settings",
    "draw_low_rank",
    "draw_product",
    "network",
]

BANDWIDTH, RIDGE = 10.0, 1e-3
"""The fixed settings."""

_FITS: tuple[tuple[Task, Kernel, float | None], ...] = (
    ("product", "laplace", 1.0),
    ("product", "gaussian", 1.0),
    ("product", "laplace", None),
    ("product", "gaussian", None),
    ("low rank", "laplace", 1.0),
    ("low rank", "laplace", 0.5),
    ("tangent kernel", "ntk", 1.0),
    ("tangent kernel", "laplace", 1.0),
)


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    n, d, test
        Training points, inputs and test points of y = x0 x1.
    low_rank_n, low_rank_d
        Training points, as many test points, and inputs of y = x0 x1 1{x5 > 0}.
    ntk_n, ntk_d
        Training points and inputs of y = x0 x1 with the tangent kernel.
    updates, ntk_updates
        Of the metric.
    tables
        Of the file, by name.
    seeds
        Draws of the data.
    """

    n: int = 2000
    d: int = 100
    test: int = 1500
    low_rank_n: int = 4000
    low_rank_d: int = 20
    ntk_n: int = 1000
    ntk_d: int = 50
    updates: int = 5
    ntk_updates: int = 4
    tables: tuple[str, ...] = TABLES
    seeds: int = 3

    def __post_init__(self) -> None:
        check_at_least(self, 10, "n", "low_rank_n", "ntk_n", "test")
        check_at_least(self, 2, "d", "ntk_d")
        check_at_least(self, 6, "low_rank_d")
        check_at_least(self, 1, "updates", "ntk_updates", "seeds")


_QUICK = Settings(
    n=60, d=6, test=40, low_rank_n=60, low_rank_d=6, ntk_n=30, ntk_d=4, updates=2, ntk_updates=1, tables=TABLES[:1], seeds=2
)  # fmt: skip


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size; the default has those of the published tasks."""
    return {"quick": _QUICK, "default": Settings(), "full": Settings(seeds=10)}[size]


@dataclass(frozen=True)
class Drawn:
    """A task's data.

    Attributes
    ----------
    x, y
        Training inputs, shape (n, d), and targets, shape (n,).
    x_test, y_test
        Those of the test.
    """

    x: NDArray[np.float64]
    y: NDArray[np.float64]
    x_test: NDArray[np.float64]
    y_test: NDArray[np.float64]


def draw_product(n: int, d: int, test: int, seed: int) -> Drawn:
    """Draw y = x0 x1 of standard normal inputs."""
    x = np.random.default_rng(seed).normal(size=(n + test, d))
    y = x[:, 0] * x[:, 1]
    return Drawn(x[:n], y[:n], x[n:], y[n:])


def draw_low_rank(n: int, d: int, test: int, seed: int) -> Drawn:
    """Draw y = x0 x1 1{x5 > 0} of normal inputs with standard deviation 1/2."""
    x = np.random.default_rng(seed).normal(size=(n + test, d)) * 0.5
    y = x[:, 0] * x[:, 1] * (x[:, 5] > 0)
    return Drawn(x[:n], y[:n], x[n:], y[n:])


def network(inputs: int) -> nn.Module:
    """Give the network whose tangent kernel is used, with one hidden layer, its weights zero."""
    return blank(lambda: nn.Sequential(nn.Linear(inputs, 64), nn.ReLU(), nn.Linear(64, 1)), torch.float64)


def cells(run: Run[Settings]) -> list[Fit | TableCell]:
    """Give a cell for each task, kernel, power and seed, and one for each table if there is a file."""
    seeds = range(run.seed, run.seed + run.settings.seeds)
    fits = [Fit(task, kernel, power, seed) for task, kernel, power in _FITS for seed in seeds]
    return [*fits, *(TableCell(name) for name in run.settings.tables if run.data is not None)]


@dataclass(frozen=True)
class _Shared:
    settings: Settings
    tables: dict[str, SplitTable]


def prepare(run: Run[Settings]) -> _Shared:
    """Read the tables."""
    if run.data is None:
        return _Shared(run.settings, {})
    tables = {table.name: table for table in load_uci(run.data)}
    unknown = [name for name in run.settings.tables if name not in tables]
    if unknown:
        raise InputError(f"--tables must name tables of {run.data}: {', '.join(tables)}. Got {', '.join(unknown)}.")
    return _Shared(run.settings, tables)


def compute(shared: _Shared, cell: Fit | TableCell) -> Course | Accuracies:
    """Fit one machine, or compare the classifiers on one table."""
    if isinstance(cell, TableCell):
        return _classified(shared.tables[cell.table])
    drawn = _drawn(shared.settings, cell.task, cell.seed)
    if cell.power is not None:
        settings = _fixed(shared.settings, cell, drawn.x.shape[1])
        return _course(drawn, settings, settings.iterations, "")
    best = RFMRegressor(kernel=cell.kernel).fit(drawn.x, drawn.y).choice_.best
    factor = best.bandwidth[1] if isinstance(best.bandwidth, tuple) else 1.0
    text = f"{factor:g} times the median distance, ridge {best.ridge:g}, power {best.power:g}, "
    text += f"{'diagonal' if best.diagonal else 'full'} M, {best.iterations} updates"
    kernel = rfm.DistanceKernel(_distance(cell.kernel), None, factor)
    updates = max(shared.settings.updates, best.iterations)
    settings = rfm.RFMSettings(kernel, updates, best.ridge, best.power, best.diagonal, False, "max")
    return _course(drawn, settings, best.iterations, text)


def _drawn(settings: Settings, task: Task, seed: int) -> Drawn:
    if task == "product":
        return draw_product(settings.n, settings.d, settings.test, seed)
    if task == "low rank":
        return draw_low_rank(settings.low_rank_n, settings.low_rank_d, settings.low_rank_n, seed)
    return draw_product(settings.ntk_n, settings.ntk_d, settings.test, seed)


def _fixed(settings: Settings, cell: Fit, inputs: int) -> rfm.RFMSettings:
    assert cell.power is not None
    kernel: rfm.MetricKernel
    if cell.kernel == "ntk":
        kernel = rfm.DifferentiableKernel(infinite_width(network(inputs), b_std=0.1).ntk)
    else:
        kernel = rfm.DistanceKernel(_distance(cell.kernel), BANDWIDTH)
    updates = settings.ntk_updates if cell.task == "tangent kernel" else settings.updates
    # The public code of the low-rank task leaves M as it comes.
    return rfm.RFMSettings(kernel, updates, RIDGE, cell.power, False, False, None if cell.task == "low rank" else "max")


def _distance(kernel: Kernel) -> Literal["laplace", "gaussian"]:
    return "laplace" if kernel == "laplace" else "gaussian"


def _course(drawn: Drawn, settings: rfm.RFMSettings, used: int, chosen: str) -> Course:
    """Give the test errors after each update, and the diagonal of M after those in use."""
    offset = drawn.y.mean()
    x, x_test = torch.from_numpy(drawn.x), torch.from_numpy(drawn.x_test)
    y, y_test = torch.from_numpy(drawn.y - offset)[:, None], torch.from_numpy(drawn.y_test - offset)[:, None]
    errors, diagonal = [], torch.empty(0)
    for number, state in enumerate(rfm.recursion(x, y, settings)):
        errors.append(float((state.predict(x_test) - y_test).square().mean()))
        if number == used:
            metric = state.metric.matrix
            diagonal = metric if metric.ndim == 1 else metric.diagonal()
    scaled = (diagonal / diagonal.max()).tolist()
    return Course(tuple(errors), float(np.var(drawn.y_test)), tuple(scaled), used, chosen)


def _classified(table: SplitTable) -> Accuracies:
    models = RFMClassifier(), NTKClassifier(tune="loo", calibration=None)
    found = []
    for model in models:
        fitted = [model.fit(table.X[fit], table.y[fit]).predict(table.X[test]) for fit, test in table.folds]
        own = [np.mean(guess == table.y[test]) for guess, (_, test) in zip(fitted, table.folds, strict=True)]
        found.append(tuple(float(one) for one in own))
    return Accuracies(*found)


def report(results: Results[Settings, Fit | TableCell, Course | Accuracies]) -> Report:
    """Show what was found; only the default settings get a verdict."""
    default = replace(results.settings, tables=TABLES, seeds=1) == Settings(seeds=1)
    size = _size(results.settings)
    numbers = [replace(one, size=size, paper_size=_size(Settings())) for one in comparisons(results.values, default)]
    said = [replace(one, size=size, paper_size=_size(Settings())) for one in claims(results.values, default)]
    text = " ".join((__doc__ or "").split())
    return Report("Recursive feature machines", text, sections(results.values), numbers, said)


def _size(settings: Settings) -> str:
    return f"n = {settings.n:,}, {settings.low_rank_n:,} and {settings.ntk_n:,}"


EXPERIMENT = experiment_of(
    globals(),
    name="rfm_tasks",
    title="Recursive feature machines: error and learned metric by update, and accuracy on small tables.",
    reproduces="Radhakrishnan et al. 2022, the low-rank task of their code, and tasks like it",
    files="tables as an .npz file or the folder of the UCI collection, as ntkit_studies.load_uci reads (none: left out)",
    selects=("seeds", "tables"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
