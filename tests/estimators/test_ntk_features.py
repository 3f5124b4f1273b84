"""NTKFeatures and StreamingRidge: scikit-learn's contract, kernel regression by features, rows in blocks."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import BaseEstimator
from sklearn.pipeline import make_pipeline
from sklearn.utils.estimator_checks import parametrize_with_checks
from torch import nn

import ntkit
from ntkit.errors import InputError, SingularKernelError, UnsupportedLayerError


@parametrize_with_checks([ntkit.NTKFeatures(n_components=8), ntkit.StreamingRidge()])
def test_contract(estimator: BaseEstimator, check: Any) -> None:
    check(estimator)


def _data(n: int = 500) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 3))
    return X, np.stack([np.sin(X[:, 0]) + X[:, 1] ** 2, X[:, 2]], 1)


def test_features_and_ridge_approach_kernel_regression() -> None:
    X, y = _data()
    exact = ntkit.NTKRegressor(b_std=0.5, ridge=1e-3).fit(X[:300], y[:300]).predict(X[300:])
    errors = []
    for m in (50, 3000):
        features = ntkit.NTKFeatures(n_components=m, b_std=0.5, dtype="float64", random_state=1)
        found = make_pipeline(features, ntkit.StreamingRidge(1e-3)).fit(X[:300], y[:300]).predict(X[300:])
        errors.append(np.linalg.norm(found - exact) / np.linalg.norm(exact))
    assert errors[1] < 0.5 * errors[0] and errors[1] < 0.25


def test_blocks_give_what_all_rows_give() -> None:
    X, y = _data(200)
    features = ntkit.NTKFeatures(n_components=40, b_std=0.5, dtype="float64").fit(X)
    whole = ntkit.StreamingRidge(1e-2).fit(features.transform(X), y)
    parts = ntkit.StreamingRidge(1e-2)
    for start in range(0, 200, 37):
        part = slice(start, start + 37)
        parts.partial_fit(features.transform(X[part]), y[part])
        assert parts.coef_.shape == (40, 2)  # asking between blocks changes nothing
    np.testing.assert_allclose(parts.coef_, whole.coef_, rtol=1e-6, atol=1e-9)
    assert parts.n_rows_ == 200
    dense = features.transform(X).astype(float)
    shift = 1e-2 * np.trace(dense.T @ dense) / 200
    np.testing.assert_allclose(
        whole.coef_, np.linalg.solve(dense.T @ dense + shift * np.eye(40), dense.T @ y), rtol=1e-6, atol=1e-9
    )


def test_convolutions_and_projected_derivatives() -> None:
    random = np.random.default_rng(0)
    X = random.normal(size=(30, 2 * 5 * 5))
    net = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(100, 1))
    features = ntkit.NTKFeatures(net, 2000, input_shape=(2, 5, 5), dtype="float64").fit_transform(X)
    exact = ntkit.infinite_width(net).ntk(torch.from_numpy(X).view(30, 2, 5, 5)).numpy()
    assert np.linalg.norm(features @ features.T - exact) < 0.2 * np.linalg.norm(exact)

    pooled = nn.Sequential(nn.Conv2d(2, 4, 3), nn.ReLU(), nn.MaxPool2d(3), nn.Flatten(), nn.Linear(4, 2)).double()
    with pytest.raises(UnsupportedLayerError):
        ntkit.NTKFeatures(pooled, 10, input_shape=(2, 5, 5)).fit(X)
    jacobian = ntkit.NTKFeatures(pooled, 200, method="jacobian", input_shape=(2, 5, 5), dtype="float64").fit_transform(
        X
    )
    empirical = ntkit.empirical(pooled).ntk(torch.from_numpy(X).view(30, 2, 5, 5)).numpy()
    assert np.linalg.norm(jacobian @ jacobian.T - empirical) < 0.4 * np.linalg.norm(empirical)


def test_bad_input() -> None:
    X, y = _data(30)
    for parameters, message in (
        ({"kernel": "rbf"}, "kernel must be one of 'ntk', 'nngp'"),
        ({"method": "magic"}, "method must be one of 'sketch', 'jacobian'"),
        ({"method": "jacobian", "kernel": "nngp"}, "only features of the tangent kernel"),
        ({"n_components": 0}, "at least 1"),
    ):
        with pytest.raises(InputError, match=message):
            ntkit.NTKFeatures(**parameters).fit(X)
    model = ntkit.StreamingRidge(0.0).fit(np.repeat(X, 2, axis=1), y)
    with pytest.raises(SingularKernelError, match="linearly dependent"):
        model.predict(np.repeat(X, 2, axis=1))
    with pytest.raises(InputError, match="of the rows before"):
        ntkit.StreamingRidge().fit(X, y).partial_fit(X, y[:, 0])
