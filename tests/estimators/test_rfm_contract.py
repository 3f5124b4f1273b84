"""scikit-learn's own checks of the recursive feature machines."""

from __future__ import annotations

from typing import Any

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import ntkit

FIXED: dict[str, Any] = {"iterations": 1, "ridge": 1e-2, "power": 0.5, "diagonal": False}
SETTINGS: list[dict[str, Any]] = [
    {"iterations": (0, 1), "ridge": 1e-2, "power": 0.5, "diagonal": False, "bandwidth": (2.0, 5.0)},  # a choice
    {**FIXED, "kernel": "gaussian", "bandwidth": "median", "diagonal": True},
]
MODULE = nn.Sequential(  # takes any number of features
    nn.Unflatten(1, (1, -1)),
    nn.Conv1d(1, 8, 3, padding=1),
    nn.ReLU(),
    nn.AdaptiveAvgPool1d(1),
    nn.Flatten(),
    nn.Linear(8, 1),
)
KINDS = (ntkit.RFMRegressor, ntkit.RFMClassifier)


# The checks fit on repeated and constant inputs, where the jitter warning is right.
@pytest.mark.filterwarnings("ignore::ntkit.errors.JitterWarning")
@parametrize_with_checks([kind(**settings) for kind in KINDS for settings in SETTINGS])  # type: ignore[untyped-decorator]
def test_sklearn_check(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ntkit.errors.JitterWarning")
@parametrize_with_checks([kind() for kind in KINDS])  # type: ignore[untyped-decorator]
def test_sklearn_check_of_the_defaults(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::ntkit.errors.JitterWarning")
@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [kind(kernel=MODULE, b_std=0.3, **FIXED) for kind in KINDS],
    expected_failed_checks=lambda _: {
        "check_estimators_overwrite_params": "joblib hashes two equal nn.Modules differently"
    },
    xfail_strict=True,
)
def test_sklearn_check_of_a_module(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)
