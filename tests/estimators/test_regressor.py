"""NTKRegressor against explicit NumPy formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone
from tests.cases import mlp
from tests.estimators.problems import Array, Laplace, regression, regression_data, relu_kernels

import ntkit
from ntkit.errors import InputError


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return regression_data()


@pytest.mark.parametrize("ridge", [0.0, 0.3])
@pytest.mark.parametrize(("name", "index"), [("ntk", 0), ("nngp", 1)])
@pytest.mark.parametrize("outputs", [slice(None), slice(0, 1), 0])
def test_regressor_is_kernel_regression(
    data: tuple[Array, Array], ridge: float, name: str, index: int, outputs: Any
) -> None:
    X, y = data[0], data[1][:, outputs]
    model = ntkit.NTKRegressor(kernel=name, ridge=ridge, w_std=1.3, b_std=0.4).fit(X[:40], y[:40])
    gram, cross = (relu_kernels(x, X[:40], 3, 1.3, 0.4)[index] for x in (X[:40], X[40:]))
    expected = regression(gram, cross, y[:40], ridge)
    assert model.predict(X[40:]).shape == y[40:].shape
    np.testing.assert_allclose(model.predict(X[40:]), expected, rtol=1e-7, atol=1e-8)
    assert model.dual_coef_.shape == y[:40].shape
    assert model.solution_status_.endswith(".")


def test_own_model_decides_the_depth(data: tuple[Array, Array]) -> None:
    X, y = data
    net = mlp(7, 5, 2)
    model = ntkit.NTKRegressor(net).fit(X[:40], y[:40])
    gram, cross = (relu_kernels(x, X[:40], 1)[0] for x in (X[:40], X[40:]))
    np.testing.assert_allclose(model.predict(X[40:]), regression(gram, cross, y[:40], 0.0), rtol=1e-7, atol=1e-8)


def test_float32_is_close_and_reports_float64(data: tuple[Array, Array]) -> None:
    X, y = data
    exact = ntkit.NTKRegressor(ridge=1e-2).fit(X, y).predict(X)
    single = ntkit.NTKRegressor(ridge=1e-2, dtype="float32").fit(X, y)
    assert single.dual_coef_.dtype == np.float32
    assert single.predict(X).dtype == np.float64
    np.testing.assert_allclose(single.predict(X), exact, rtol=0, atol=1e-3)


@pytest.mark.parametrize("outputs", [slice(None), 0])
def test_normalized_targets_and_deviations_are_in_their_units(data: tuple[Array, Array], outputs: Any) -> None:
    X, y = data[0], 50 + 30 * data[1][:, outputs]
    plain = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.1)
    normal = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.1, normalize_y=True).fit(X[:40], y[:40])
    center, scale = y[:40].mean(0), y[:40].std(0)
    plain.fit(X[:40], (y[:40] - center) / scale)
    mean, std = normal.predict(X[40:], return_std=True)
    plain_mean, plain_std = plain.predict(X[40:], return_std=True)
    np.testing.assert_allclose(mean, plain_mean * scale + center, rtol=1e-10)
    np.testing.assert_allclose(std, plain_std * scale, rtol=1e-10)
    np.testing.assert_allclose([normal.y_mean_, normal.y_scale_], [center, scale], rtol=1e-12)
    shifted = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.1, normalize_y=True).fit(X[:40], 7 * y[:40] - 3)
    np.testing.assert_allclose(shifted.predict(X[40:], return_std=True)[1], 7 * std, rtol=1e-9)


def test_constant_targets_can_be_normalized(data: tuple[Array, Array]) -> None:
    model = ntkit.NTKRegressor(normalize_y=True, ridge=0.1).fit(data[0], np.full(60, 3.0))
    np.testing.assert_allclose(model.predict(data[0]), 3.0)


@pytest.mark.parametrize("normalize_y", [False, True])
def test_noise_of_each_point_is_on_the_diagonal(data: tuple[Array, Array], normalize_y: bool) -> None:
    X, y = data[0], 5 * data[1][:, 0]
    noise = np.random.default_rng(0).uniform(0.1, 2.0, 40)
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.05, normalize_y=normalize_y).fit(X[:40], y[:40], noise=noise)
    center, scale = (y[:40].mean(), y[:40].std()) if normalize_y else (0.0, 1.0)
    gram, cross = (Laplace()(*map(torch.from_numpy, (x, X[:40]))).numpy() for x in (X[:40], X[40:]))
    inverse = np.linalg.inv(gram + np.diag(noise / scale**2) + 0.05 * np.eye(40))  # trace(K)/n is one
    mean, std = model.predict(X[40:], return_std=True)
    np.testing.assert_allclose(mean, cross @ inverse @ (y[:40] - center) / scale * scale + center, rtol=1e-9)
    np.testing.assert_allclose(std, scale * np.sqrt(1 - ((cross @ inverse) * cross).sum(1)), rtol=1e-7)
    same = ntkit.NTKRegressor(kernel=Laplace(), normalize_y=normalize_y).fit(X[:40], y[:40], noise=0.05 * scale**2)
    ridge = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.05, normalize_y=normalize_y).fit(X[:40], y[:40])
    np.testing.assert_allclose(same.predict(X[40:]), ridge.predict(X[40:]), rtol=1e-9)


def test_bad_noise_is_explained(data: tuple[Array, Array]) -> None:
    for noise, message in ((-1.0, "not negative"), (np.ones(3), "one for each of the 60"), ("much", "variance")):
        with pytest.raises(InputError, match=message):
            ntkit.NTKRegressor().fit(*data, noise=noise)


def test_needs_no_tuning_by_hand() -> None:
    """Gains by evidence, ridge by leave-one-out: better than the defaults on noisy data, and the same in every fit."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-2, 2, (300, 4))
    y = 100 + 40 * np.sin(2 * X[:, 0]) + 20 * X[:, 1] + 10 * rng.standard_normal(300)
    tuned = ntkit.NTKRegressor(tune="auto", normalize_y=True).fit(X[:150], y[:150])
    assert (
        tuned.score(X[150:], y[150:])
        > ntkit.NTKRegressor(tune=None).fit(X[:150], y[:150]).score(X[150:], y[150:]) + 0.05
    )
    assert tuned.kernel_.limit.gains.b_std > 0 and tuned.ridge_ == tuned.tuning_.ridge > 0
    again = clone(tuned).fit(X[:150], y[:150])
    np.testing.assert_allclose(again.predict(X[150:]), tuned.predict(X[150:]), rtol=1e-6)
    loo = ntkit.NTKRegressor(kernel=tuned.kernel_, tune="loo", normalize_y=True).fit(X[:150], y[:150])
    assert loo.ridge_ == tuned.ridge_
    fixed = ntkit.NTKRegressor(kernel=tuned.kernel_, tune="auto", ridge=[1e-3, 1.0], normalize_y=True)
    assert fixed.fit(X[:150], y[:150]).ridge_ in (1e-3, 1.0)
    with pytest.raises(InputError, match="stopping_time must be"):
        ntkit.NTKRegressor(tune="auto", stopping_time=1.0).fit(X, y)
