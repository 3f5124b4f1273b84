"""Deviations and intervals: against refits without each point, and what they cover."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.estimators.problems import Laplace, regression_data

import ntkit
from ntkit._src.estimators._uncertainty import Calibration
from ntkit.errors import InputError


def test_intervals_of_a_given_kernel_leave_one_out_in_closed_form() -> None:
    X, y = regression_data()
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.2).fit(X[:30], y[:30])
    errors, ratios = np.empty((30, y.shape[1])), np.empty((30, y.shape[1]))
    gram = Laplace()(torch.from_numpy(X[:30])).numpy()
    shifted = gram + 0.2 * np.trace(gram) / 30 * np.eye(30)
    for i in range(30):
        rest = np.delete(np.arange(30), i)
        weights = np.linalg.solve(shifted[np.ix_(rest, rest)], gram[rest, i])
        errors[i] = y[i] - weights @ y[rest]
        ratios[i] = np.abs(errors[i]) / (shifted[i, i] - weights @ gram[rest, i]) ** 0.5
    mean, bounds = model.predict(X[30:], interval=0.9)
    assert bounds.shape == (30, y.shape[1], 2)
    deviation = (model.predict(X[30:], return_std=True)[1] ** 2 + shifted[0, 0] - gram[0, 0]) ** 0.5
    half = np.sort(ratios, axis=0)[int(np.ceil(31 * 0.9)) - 1] * deviation
    np.testing.assert_allclose(bounds, np.stack([mean - half, mean + half], -1), rtol=1e-9)


def test_the_automatic_model_covers_what_it_says() -> None:
    random = np.random.default_rng(0)
    X = random.uniform(-2, 2, (900, 3))
    y = 100 + 30 * np.sin(X[:, 0]) * X[:, 1] + 8 * random.standard_normal(900)
    model = ntkit.NTKRegressor(effort="fast").fit(X[:150], y[:150])
    mean, std = model.predict(X[150:], return_std=True)
    inside = np.abs(mean - y[150:]) <= 1.645 * std
    bounds = model.predict(X[150:], interval=0.9)[1]
    covered = (bounds[:, 0] <= y[150:]) & (y[150:] <= bounds[:, 1])
    assert 0.85 < inside.mean() < 0.96 and 0.85 < covered.mean() < 0.96
    assert 8 < std.mean() < 16  # with the noise, in the units of the targets
    wider = model.predict(X[150:160], interval=0.99)[1]
    assert (wider[:, 1] - wider[:, 0] > bounds[:10, 1] - bounds[:10, 0]).all()


def test_quantiles_count_the_new_point() -> None:
    found = Calibration.of(np.arange(1.0, 10.0), np.full(9, 2.0))
    assert (
        found is not None
        and found.quantile(0.9) == 4.5
        and found.quantile(0.5) == 2.5
        and np.isinf(found.quantile(0.95))
    )
    np.testing.assert_allclose(found.scale**2, (np.arange(1, 10) ** 2).mean() / 4)
    assert Calibration.of(np.empty(0), np.empty(0)) is None


def test_what_has_no_intervals_is_refused() -> None:
    X, y = regression_data()
    model = ntkit.NTKRegressor(kernel=Laplace(), ridge=0.2).fit(X, y)
    with pytest.raises(InputError, match="two answers"):
        model.predict(X, return_std=True, interval=0.9)
    with pytest.raises(InputError, match="between 0 and 1"):
        model.predict(X, interval=90)
    with pytest.raises(InputError, match="errors of leaving one out"):
        ntkit.NTKRegressor(kernel=Laplace(), stopping_time=1.0).fit(X, y).predict(X, interval=0.9)
    with pytest.raises(InputError, match="ten rows"):
        ntkit.NTKRegressor().fit(X[:5], y[:5]).predict(X, interval=0.9)
