"""``ntkit evaluate``: cross-validation against standard methods."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Annotated, Any

import numpy as np
import typer
from sklearn.compose import TransformedTargetRegressor
from sklearn.ensemble import (
    HistGradientBoostingClassifier,
    HistGradientBoostingRegressor,
    RandomForestClassifier,
    RandomForestRegressor,
)
from sklearn.metrics import accuracy_score, r2_score
from sklearn.model_selection import KFold, StratifiedKFold
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC, SVR

from ntkit._src.estimators import tabular_pipeline
from ntkit.errors import InputError

from ._console import Drop, Json, Scheduler, command, connected, emit, note, table_text
from ._data import Data
from ._fit import build_estimator, fit_on
from ._tables import Problem, Task, read_problem
from ._terminal import progress_bars

_SVM_ROWS = 20_000


@command("ntkit evaluate houses.csv --target price --folds 10")
def evaluate(
    data: Data,
    target: Annotated[str, typer.Option(help="Name of the column to predict.")],
    task: Annotated[Task, typer.Option(help="What the target is.")] = Task.AUTO,
    drop: Drop = None,
    folds: Annotated[int, typer.Option(min=2, help="How many parts to cross-validate with.")] = 5,
    seed: Annotated[int, typer.Option(min=0, help="Decides the parts and all that is random in the methods.")] = 0,
    scheduler: Scheduler = None,
    json: Json = False,
) -> None:
    """Cross-validate against RBF SVM, forest and boosting.

    The model is the one that ntkit fit would write. The others have scikit-learn's defaults and get the same encoded columns;
    the encoding is fitted only on the training parts. The score is accuracy for classes and R2 for numbers: mean and standard
    deviation over the parts.
    """
    problem = read_problem(data, target, task, drop or ())
    parts = _parts(problem, folds, seed)
    methods = _methods(problem, len(parts[0][0]), seed)
    scores: dict[str, list[float]] = {name: [] for name in methods}
    seconds = dict.fromkeys(methods, 0.0)
    score = accuracy_score if problem.task is Task.CLASSIFICATION else r2_score
    with progress_bars() as progress, connected(scheduler) as client:
        done, total = 0, len(parts) * len(methods)
        for train, test in parts:
            for name, make in methods.items():
                start = time.perf_counter()
                model = make()
                # The others have no kernel matrix of ours to compute.
                where = client if name == "ntkit" else None
                fit_on(where, model, problem.features.iloc[train], problem.target[train])
                predicted = model.predict(problem.features.iloc[test])
                seconds[name] += time.perf_counter() - start
                scores[name].append(float(score(problem.target[test], predicted)))
                done += 1
                progress("fits", done, total)
    if len(problem.target) > _SVM_ROWS:
        note(f"left out: RBF SVM, whose time grows with the square of the rows, at more than {_SVM_ROWS:,} rows.")
    measure = "accuracy" if problem.task is Task.CLASSIFICATION else "R2"
    found: dict[str, dict[str, Any]] = {
        name: {
            "scores": own,
            "mean": float(np.mean(own)),
            "std": float(np.std(own, ddof=1)),
            "seconds": round(seconds[name], 3),
        }
        for name, own in scores.items()
    }
    result = {"task": problem.task.value, "measure": measure, "rows": len(problem.target), "folds": folds, "seed": seed}
    rows = [
        [name, f"{one['mean']:.4f}", f"{one['std']:.4f}", f"{one['seconds']:.1f}"]
        for name, one in sorted(found.items(), key=lambda item: -item[1]["mean"])
    ]
    emit({**result, "methods": found}, json, table_text(["method", measure, "std", "seconds"], rows))


def _parts(problem: Problem, folds: int, seed: int) -> list[tuple[Any, Any]]:
    n = len(problem.target)
    if problem.task is Task.REGRESSION:
        if folds > n // 2:
            raise InputError(f"--folds must be at most half of the {n} rows. Got {folds}.")
        return list(KFold(folds, shuffle=True, random_state=seed).split(np.empty(n)))
    classes, counts = np.unique(problem.target, return_counts=True)
    if counts.min() < folds:
        rare = classes[counts.argmin()]
        raise InputError(
            f"--folds must be at most the rows of the rarest class, {rare!s} with {counts.min()}. Got {folds}: write --folds "
            f"{max(2, counts.min())}, or merge classes."
        )
    return list(StratifiedKFold(folds, shuffle=True, random_state=seed).split(np.empty(n), problem.target))


def _methods(problem: Problem, rows: int, seed: int) -> dict[str, Callable[[], Any]]:
    if problem.task is Task.CLASSIFICATION:
        others: dict[str, Callable[[], Any]] = {
            "RBF SVM": SVC,
            "random forest": lambda: RandomForestClassifier(random_state=seed),
            "gradient boosting": lambda: HistGradientBoostingClassifier(random_state=seed),
        }
    else:
        others = {
            # The SVM's defaults assume targets of unit variance.
            "RBF SVM": lambda: TransformedTargetRegressor(SVR(), transformer=StandardScaler()),
            "random forest": lambda: RandomForestRegressor(random_state=seed),
            "gradient boosting": lambda: HistGradientBoostingRegressor(random_state=seed),
        }
    if len(problem.target) > _SVM_ROWS:
        del others["RBF SVM"]
    found: dict[str, Callable[[], Any]] = {"ntkit": lambda: build_estimator(problem.task, rows)}
    for name, make in others.items():
        found[name] = lambda make=make: tabular_pipeline(make())  # type: ignore[misc]
    return found
