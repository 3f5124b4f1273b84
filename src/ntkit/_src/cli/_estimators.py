"""The estimator for a table."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from torch import nn

from ntkit._src.estimators import NTKClassifier, NTKRegressor, tabular_pipeline

from ._tables import Task

EXACT_ROWS = 8192
"""Up to this many rows the whole kernel matrix is factorised, as by ``ntkit.solve(method="auto")``."""


def build_estimator(
    task: Task,
    rows: int,
    module: nn.Module | None = None,
    shape: tuple[int, ...] | None = None,
    centres: int | None = None,
) -> BaseEstimator:
    """Return the recommended estimator, which has nothing to tune.

    Parameters
    ----------
    task
        Classification or regression.
    rows
        Number of rows to fit.
    module
        The network; None is the default of the estimators.
    shape
        Shape of one input; the columns are then its entries, used unchanged. None encodes and standardises columns first.
    centres
        How many rows to take as centres (Nystrom); None: all rows up to :data:`EXACT_ROWS`, beyond the solver's default.
    """
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
    """Fit an estimator, its kernel matrices on a Dask cluster where a client is given.

    Parameters
    ----------
    client
        Of the cluster, ``"local"``, or None for this process.
    estimator
        An estimator of ntkit, or a pipeline that ends in one; with no client any.
    features, target
        What to fit, n rows.
    """
    if client is None:
        estimator.fit(features, target)
        return
    last = estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator
    with last._on_cluster(client):
        estimator.fit(features, target)
