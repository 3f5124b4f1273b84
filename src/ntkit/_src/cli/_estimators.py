"""The estimator for a table."""

from __future__ import annotations

import math
from typing import Any

from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from torch import nn

from ntkit._src.estimators import NTKClassifier, NTKRegressor, tabular_pipeline

from ._tables import Task

__all__ = ["EXACT_ROWS", "build_estimator", "default_centres", "fit_on"]

EXACT_ROWS = 8192
"""Up to this many rows the whole kernel matrix is factorised, as by ``ntkit.solve(method="auto")``."""

_MOST_CENTRES, _LEAST_CENTRES = 2000, 1000
_FULL_ROWS = 250_000


def default_centres(rows: int) -> int | None:
    """Give how many of the rows to take as centres (Nystrom), or None for all of them.

    2,000 up to 250,000 rows. A fit takes a time of rows times centres squared, so beyond there are fewer, to the same time,
    down to 1,000: at a million rows, sqrt(rows) of them lose nothing of the rate of learning (Rudi et al. 2015).

    Examples
    --------
    >>> [default_centres(rows) for rows in (8_192, 8_193, 1_000_000)]
    [None, 2000, 1000]
    """
    if rows <= EXACT_ROWS:
        return None
    return max(_LEAST_CENTRES, min(_MOST_CENTRES, round(_MOST_CENTRES * math.sqrt(_FULL_ROWS / rows))))


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
        How many rows to take as centres; None: :func:`default_centres`.
    """
    number = default_centres(rows) if centres is None else centres
    options: dict[str, Any] = {
        "tune": "auto",
        "input_shape": shape,
        "n_centres": None if number is None else min(number, rows),
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
