"""The estimator for a table."""

from __future__ import annotations

from typing import Any

from sklearn.base import BaseEstimator
from torch import nn

from ntkit.estimators import NTKClassifier, NTKRegressor, tabular_pipeline

from ._tables import Task

__all__ = ["CENTRES", "EXACT_ROWS", "build_estimator"]

EXACT_ROWS = 8192
"""Up to this many rows the whole kernel matrix is factorised, as by ``ntkit.solve(method="auto")``."""

CENTRES = 2000
"""Beyond that, functions in the span of this many of the rows are fitted (Nystrom)."""


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
        Number of rows to use as centres; None: all up to 8,192 rows, otherwise 2,000.
    """
    number = CENTRES if centres is None and rows > EXACT_ROWS else centres
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
