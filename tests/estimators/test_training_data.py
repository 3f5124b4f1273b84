"""Weights of the points against copies of them and against the explicit system."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.estimators.problems import Array, Laplace, regression_data

import ntkit
from ntkit.errors import InputError

X, Y = regression_data()
WEIGHTS = np.random.default_rng(1).integers(0, 4, 40).astype(float)


def laplace(x1: Array, x2: Array) -> Array:
    return np.asarray(Laplace()(*map(torch.from_numpy, (x1, x2))))


@pytest.mark.parametrize("parameters", [{}, {"stopping_time": 2.0}])
@pytest.mark.parametrize("kind", ["own", "precomputed"])
def test_whole_weights_are_copies(kind: str, parameters: dict[str, Any]) -> None:
    copies = np.repeat(np.arange(40), WEIGHTS.astype(int))
    if kind == "own":
        weighted = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.2, **parameters).fit(X[:40], Y[:40], WEIGHTS)
        copied = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.2, **parameters).fit(X[copies], Y[copies])
        found, expected = weighted.predict(X[40:], return_std=True), copied.predict(X[40:], return_std=True)
        np.testing.assert_allclose(found[1], expected[1], rtol=1e-6)
    else:
        gram, cross = laplace(X[:40], X[:40]), laplace(X[40:], X[:40])
        weighted = ntkit.NTKRegressor(kernel="precomputed", ridge=0.2, **parameters).fit(gram, Y[:40], WEIGHTS)
        copied = ntkit.NTKRegressor(kernel="precomputed", ridge=0.2, **parameters)
        copied.fit(gram[np.ix_(copies, copies)], Y[copies])
        found, expected = (weighted.predict(cross),), (copied.predict(cross[:, copies]),)
    np.testing.assert_allclose(found[0], expected[0], rtol=1e-7, atol=1e-9)


def test_weights_solve_the_weighted_least_squares() -> None:
    weights = np.random.default_rng(2).uniform(0.1, 5.0, 40)
    gram, cross = laplace(X[:40], X[:40]), laplace(X[40:], X[:40])
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.3).fit(X[:40], Y[:40], weights)
    dual = np.linalg.solve(gram + 0.3 * np.diag(1 / weights), Y[:40])  # trace(K)/n is one
    np.testing.assert_allclose(model.dual_coef_, dual, rtol=1e-9)
    np.testing.assert_allclose(model.predict(X[40:]), cross @ dual, rtol=1e-9)


def test_leave_one_out_tuning_with_weights_is_that_of_refits() -> None:
    weights = np.random.default_rng(2).uniform(0.1, 5.0, 40)
    ridges = [1e-3, 0.1, 3.0]
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=ridges, tune="loo").fit(X[:40], Y[:40], weights)
    gram = laplace(X[:40], X[:40])
    errors = []
    for ridge in ridges:
        predictions = np.empty_like(Y[:40])
        for point in range(40):
            rest = np.delete(np.arange(40), point)
            dual = np.linalg.solve(gram[np.ix_(rest, rest)] + ridge * np.diag(1 / weights[rest]), Y[rest])
            predictions[point] = gram[point, rest] @ dual
        errors.append((weights[:, None] * (predictions - Y[:40]) ** 2).mean())
    np.testing.assert_allclose(model.tuning_.errors, errors, rtol=1e-6)
    assert model.ridge_ == pytest.approx(ridges[int(np.argmin(errors))])


def test_without_a_ridge_only_zero_weights_matter() -> None:
    labels = np.arange(40) % 3
    weights = np.where(labels == 2, 0.0, np.linspace(1, 9, 40))
    model = ntkit.NTKClassifier(b_std=0.1).fit(X[:40], labels, weights)
    kept = ntkit.NTKClassifier(b_std=0.1).fit(X[:40][labels < 2], labels[labels < 2])
    np.testing.assert_array_equal(model.classes_, [0, 1])
    np.testing.assert_allclose(model.decision_function(X[40:]), kept.decision_function(X[40:]), rtol=1e-6)


@pytest.mark.parametrize(
    ("weights", "message"),
    [
        (-np.ones(60), "Negative values in sample_weight"),
        (np.zeros(60), "every weight in sample_weight is zero"),
        (np.ones(59), r"shape \(60,\), one for each row of X"),
        (np.full(60, np.nan), "NaN"),
    ],
)
def test_bad_weights_are_explained(weights: Any, message: str) -> None:
    with pytest.raises((InputError, ValueError), match=message):
        ntkit.NTKRegressor().fit(X, Y, weights)
