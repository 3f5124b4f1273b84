"""``ntkit fit``: from a table to a model file."""

from __future__ import annotations

import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from torch import nn

from ntkit._src.estimators import NTKClassifier, NTKRegressor, tabular_pipeline
from ntkit._src.estimators._tabular import category_columns
from ntkit._src.estimators.saved import save_model
from ntkit.errors import InputError

from ._console import Drop, Json, Scheduler, Shape, check_out, command, connected, emit, note, read_shape
from ._data import Data
from ._modules import read_module
from ._tables import Problem, Task, read_problem

EXACT_ROWS = 8192
"""Up to this many rows the whole kernel matrix of a network is factorised, as by ``ntkit.solve(method="auto")``."""


class Effort(StrEnum):
    """How long the automatic model searches."""

    FAST = "fast"
    DEFAULT = "default"
    BEST = "best"


@command(
    "ntkit fit houses.csv --target price --out houses.ntkit",
    "ntkit fit digits.npz --target y --module net.toml --shape 1,8,8 --out digits.ntkit",
    "ntkit fit images.npz --target y --module net.toml --shape 3,32,32 --out m.ntkit --scheduler tcp://10.0.0.1:8786",
)
def fit(
    data: Data,
    target: Annotated[str, typer.Option(help="Name of the column to predict.")],
    out: Annotated[Path, typer.Option(help="The model file to write.")],
    task: Annotated[Task, typer.Option(help="What the target is.")] = Task.AUTO,
    drop: Drop = None,
    module: Annotated[
        str | None, typer.Option(help="The network; default a sum of kernels, chosen automatically.")
    ] = None,
    shape: Shape = None,
    centres: Annotated[
        int | None, typer.Option(min=1, help="Centres of Nystrom's method; default none up to some 10,000 rows.")
    ] = None,
    effort: Annotated[Effort, typer.Option(help="How long to search.")] = Effort.DEFAULT,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Fit a model to a table, with nothing to tune.

    Columns may hold numbers, text and missing values. With --shape they are the entries of one input, such as the pixels of
    an image, and are used unchanged.
    """
    check_out(out, data)
    network, of_one = None if module is None else read_module(module), read_shape(shape)
    problem = read_problem(data, target, task, drop or (), keep_constant=of_one is not None)
    _say(problem, target)
    estimator = build_estimator(problem.task, len(problem.target), network, of_one, centres, effort)
    start = time.perf_counter()
    features: Any = problem.features if of_one is None else _plain(problem)
    with connected(scheduler) as client:
        fit_on(client, estimator, features, problem.target)
    seconds = time.perf_counter() - start
    categories = set(category_columns(problem.features))
    kinds = {name: "category" if name in categories else "number" for name in problem.features.columns}
    save_model(estimator, out, notes={"target": target, "task": problem.task.value, "columns": kinds})
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    result = {
        "model": str(out),
        "task": problem.task.value,
        "rows": len(problem.target),
        "columns": len(kinds),
        "left_out": list(problem.left_out),
        "features": int(last.n_features_in_),
        "ridge": float(last.ridge_),
        "status": str(last.solution_status_),
        "seconds": round(seconds, 3),
    }
    emit(
        result, json, f"{out}: {problem.task.value} of {target!r}, {len(problem.target):,} rows, {seconds:.1f} seconds."
    )


def _say(problem: Problem, target: str) -> None:
    if problem.task is Task.CLASSIFICATION:
        note(f"{target!r} has {len(set(problem.target.tolist()))} classes: classification.")
    else:
        note(f"{target!r} holds numbers: regression.")
    categories = category_columns(problem.features)
    if categories:
        shown = ", ".join(f"{name:.40}" for name in categories[:12]) + (", ..." if len(categories) > 12 else "")
        note(f"categories, since they do not hold numbers: {shown}")
    if problem.left_out:
        note(f"left out, since all rows have the same value: {', '.join(problem.left_out)}")


def _plain(problem: Problem) -> Any:
    """Return the columns as entries of inputs, shape (n, entries)."""
    if category_columns(problem.features) or problem.features.isna().any(axis=None):
        raise InputError("--shape needs columns of numbers without gaps. Leave --shape out to have columns encoded.")
    return problem.features.to_numpy("float64")


def build_estimator(
    task: Task,
    rows: int,
    module: nn.Module | None = None,
    shape: tuple[int, ...] | None = None,
    centres: int | None = None,
    effort: str = "default",
) -> BaseEstimator:
    """Return the recommended estimator for so many rows; columns are encoded, or the entries of inputs of a given shape."""
    if module is None and shape is None and centres is None:
        return tabular_pipeline((NTKClassifier if task is Task.CLASSIFICATION else NTKRegressor)(effort=str(effort)))
    options: dict[str, Any] = {
        "tune": "auto",
        "input_shape": shape,
        "solver": "nystrom" if centres is not None or rows > EXACT_ROWS else None,
        "n_centres": None if centres is None else min(centres, rows),
    }
    estimator: BaseEstimator = (
        NTKClassifier(module, **options)
        if task is Task.CLASSIFICATION
        else NTKRegressor(module, normalize_y=True, **options)
    )
    return tabular_pipeline(estimator) if shape is None else estimator


def fit_on(client: Any, estimator: Any, features: Any, target: Any) -> None:
    """Fit an estimator of ntkit, or a pipeline that ends in one, its kernel matrices on a Dask cluster if a client is given."""
    if client is None:
        estimator.fit(features, target)
        return
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    with last._on_cluster(client):
        estimator.fit(features, target)
