"""The recursive feature machines as estimators: choices, learned metrics, bad input."""

from __future__ import annotations

import pickle
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from sklearn.metrics import r2_score
from sklearn.model_selection import ShuffleSplit
from tests.cases import mlp
from torch import Tensor, nn

import ntkit
from ntkit._src.features.rfm import DistanceKernel, RFMSettings, recursion
from ntkit.errors import InputError, InputTypeError, JitterWarning

FIXED: dict[str, Any] = {"iterations": 3, "ridge": 1e-3, "bandwidth": 3.0, "power": 0.5, "diagonal": False}


def _product(n: int = 300, d: int = 10, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, X[:, 0] * X[:, 1]


def _classes(n: int = 240, d: int = 8, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    X = np.random.default_rng(seed).normal(size=(n, d))
    return X, np.array(["a", "b", "c"])[(X[:, 0] > 0).astype(int) + (X[:, 1] * X[:, 0] > 0.3)]


@pytest.mark.parametrize("kernel", ["laplace", "gaussian"])
def test_regressor_is_the_recursion_on_centred_targets(kernel: str) -> None:
    X, y = _product()
    y = y + 7
    model = ntkit.RFMRegressor(kernel=kernel, **FIXED).fit(X[:200], y[:200])
    settings = RFMSettings(DistanceKernel(kernel, 3.0), 3, 1e-3, 0.5, False, False, "max")  # type: ignore[arg-type]
    *_, state = recursion(torch.tensor(X[:200]), torch.tensor(y[:200] - y[:200].mean())[:, None], settings)
    np.testing.assert_allclose(
        model.predict(X[200:]), state.predict(torch.tensor(X[200:]))[:, 0] + y[:200].mean(), atol=1e-8
    )
    np.testing.assert_allclose(model.metric_, state.metric.matrix)
    assert [entry.iteration for entry in model.history_] == [0, 1, 2, 3]
    assert model.history_[-1].bandwidth == 3.0 and model.n_iter_ == 3
    assert r2_score(y[200:], model.predict(X[200:])) > 0.85
    assert set(np.argsort(np.diag(model.metric_))[-2:]) == {0, 1}


def test_choices_are_the_best_on_the_rows_held_out() -> None:
    X, y = _product(120, 5)
    model = ntkit.RFMRegressor(
        iterations=(0, 2), ridge=(1e-3, 10.0), bandwidth=(0.1, 3.0), power=0.5, diagonal=False, random_state=3
    ).fit(X, y)
    assert len(model.choice_.candidates) == len(model.choice_.errors) == 8 and model.choice_.parts == 3
    assert model.choice_.best == model.choice_.candidates[int(model.choice_.errors.argmin())]
    assert (model.bandwidth_, model.ridge_, model.n_iter_) == (3.0, 1e-3, 2)
    # The mean error of the winner, recomputed.
    errors = []
    for rest, rows in ShuffleSplit(3, test_size=0.2, random_state=3).split(X):
        rest, rows = np.sort(rest), np.sort(rows)
        offset = y.mean()
        settings = RFMSettings(DistanceKernel("laplace", 3.0), 2, 1e-3, 0.5, False, False, "max")
        *_, state = recursion(torch.tensor(X[rest]), torch.tensor(y[rest] - offset)[:, None], settings)
        errors.append(np.mean((state.predict(torch.tensor(X[rows]))[:, 0].numpy() + offset - y[rows]) ** 2))
    assert model.choice_.errors.min() == pytest.approx(np.mean(errors), rel=1e-9)


def test_every_class_is_held_out_alike() -> None:
    _, y = _classes(150)
    parts = ntkit.RFMClassifier()._parts(150, np.unique(y, return_inverse=True)[1])
    for fit, held_out in parts:
        assert len(held_out) == 30 and not set(fit) & set(held_out) and len(fit) == 120
        for label in "abc":
            assert abs(np.sum(y[held_out] == label) - np.sum(y == label) / 5) <= 1.5
    assert len({row for _, held_out in parts for row in held_out}) > 60  # not the same ones again


@pytest.mark.parametrize("diagonal", [False, True])
def test_classifier(diagonal: bool) -> None:
    X, y = _classes()
    model = ntkit.RFMClassifier(**{**FIXED, "diagonal": diagonal, "bandwidth": "median"}).fit(X[:160], y[:160])
    assert model.score(X[160:], y[160:]) > 0.8
    probabilities = model.predict_proba(X[160:])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert (model.classes_[probabilities.argmax(1)] == model.predict(X[160:])).all()
    assert model.metric_.shape == ((8,) if diagonal else (8, 8))
    two = ntkit.RFMClassifier(**FIXED).fit(X, y == "a")
    assert two.decision_function(X).shape == (240,) and two.predict(X).dtype == bool


def test_rows_to_predict_change_nothing_fitted() -> None:
    X, y = _product(150, 5)
    model = ntkit.RFMRegressor(iterations=(0, 1, 2), ridge=(1e-3, 1e-1), bandwidth="median", power=0.5, diagonal=False)
    first = model.fit(X[:100], y[:100])
    before = pickle.dumps((first.metric_, first.dual_coef_, first.choice_.errors))
    whole = first.predict(X[100:])
    np.testing.assert_allclose(first.predict(X[100:][::-1])[::-1], whole, rtol=1e-9)
    np.testing.assert_allclose(first.predict(X[100:103]), whole[:3], rtol=1e-9)
    assert pickle.dumps((first.metric_, first.dual_coef_, first.choice_.errors)) == before
    again = model.fit(X[:100], y[:100])
    assert pickle.dumps((again.metric_, again.dual_coef_, again.choice_.errors)) == before


def test_tangent_kernel_machine() -> None:
    X, y = _product(250, 6)
    net = mlp(6, 8, 1)
    model = ntkit.RFMRegressor(kernel=net, iterations=2, ridge=1e-3, power=1.0, diagonal=False, b_std=0.1)
    plain = ntkit.RFMRegressor(kernel=net, iterations=0, ridge=1e-3, power=1.0, diagonal=False, b_std=0.1)
    learned, kernel = (one.fit(X[:200], y[:200]).score(X[200:], y[200:]) for one in (model, plain))
    assert learned > kernel > 0.5
    images = ntkit.RFMRegressor(
        kernel=nn.Sequential(nn.Conv1d(2, 4, 2), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1)),
        input_shape=(2, 3), iterations=1, ridge=1e-2, power=1.0, diagonal=True, b_std=0.1,
    )  # fmt: skip
    assert np.isfinite(images.fit(X[:60], y[:60]).predict(X[60:70])).all()


def test_several_outputs_and_float32() -> None:
    X, y = _product(100, 4)
    both = np.stack([y, 2 * y + 1], 1)
    model = ntkit.RFMRegressor(dtype="float32", **FIXED).fit(X[:80], both[:80])
    assert model.predict(X[80:]).shape == (20, 2) and model.metric_.dtype == np.float32
    np.testing.assert_allclose(model.predict(X)[:, 1], 2 * model.predict(X)[:, 0] + 1, rtol=1e-3, atol=1e-3)


def test_constant_targets() -> None:
    X, _ = _product(40, 3)
    model = ntkit.RFMRegressor(**FIXED).fit(X, np.full(40, 0.1))
    np.testing.assert_array_equal(model.predict(X[:5] + 3), 0.1)
    np.testing.assert_array_equal(model.metric_, np.eye(3))


@pytest.mark.parametrize("n", [1, 2, 9])
def test_very_few_rows(n: int) -> None:
    X, y = _product(n, 3)
    model = ntkit.RFMRegressor().fit(X, y)
    assert np.isfinite(model.predict(X)).all() and model.choice_.parts == 0


def test_singular_gram_matrix_reports_its_jitter() -> None:
    X, y = _product(20, 3)
    X = np.concatenate([X, X])
    with pytest.warns(JitterWarning, match="added to the ridge") as caught:
        model = ntkit.RFMRegressor(**{**FIXED, "ridge": 0.0}).fit(X, np.concatenate([y, y]))
    assert len(caught) == 1 and model.jitter_ > 0 and model.history_[0].jitter > 0
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        ntkit.RFMRegressor(**FIXED).fit(X, np.concatenate([y, y]))


class NoGradient(ntkit.Kernel):
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        other = x1 if x2 is None else x2
        return torch.tensor(np.exp(x1.detach().numpy() @ other.detach().numpy().T / 10))

    def diag(self, x: Tensor) -> Tensor:
        return torch.ones(len(x)).to(x)


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"kernel": "cauchy"}, InputError, 'kernel must be "laplace"'),
        ({"kernel": 3}, InputTypeError, 'kernel must be "laplace"'),
        ({"kernel": NoGradient(), "bandwidth": "median"}, InputError, "differentiable"),
        ({"kernel": NoGradient(), "bandwidth": 2.0}, InputError, "leave it out"),
        ({"power": 0.0}, InputError, "power must be finite and positive"),
        ({"power": -1.0}, InputError, "power must be finite and positive"),
        ({"ridge": -1.0}, InputError, "ridge must be finite and at least 0"),
        ({"ridge": "loo"}, InputTypeError, "ridge must be a number"),
        ({"bandwidth": 0.0}, InputError, "bandwidth must be finite and positive"),
        ({"bandwidth": ()}, InputError, "at least one number"),
        ({"iterations": 1.5}, InputTypeError, "iterations must be an integer"),
        ({"iterations": -1}, InputError, "iterations must be at least 0"),
        ({"diagonal": "yes"}, InputError, "diagonal must be"),
        ({"scale": "norm"}, InputError, "scale must be"),
        ({"held_out": 1.0, "ridge": (1.0, 2.0)}, InputError, "held_out must lie"),
        ({"input_shape": (2, 2)}, InputError, "input_shape is only for"),
        ({"dtype": "int8"}, InputError, "dtype must be"),
    ],
)
def test_bad_settings(settings: dict[str, Any], error: type[Exception], message: str) -> None:
    X, y = _product(20, 4)
    with pytest.raises(error, match=message):
        ntkit.RFMRegressor(**{**FIXED, **settings}).fit(X, y)


def test_one_class_and_bad_rows() -> None:
    X, y = _product(20, 4)
    with pytest.raises(InputError, match="at least two classes"):
        ntkit.RFMClassifier(**FIXED).fit(X, np.zeros(20, dtype=int))
    with pytest.raises(ValueError, match="NaN"):
        ntkit.RFMRegressor(**FIXED).fit(X * np.nan, y)
