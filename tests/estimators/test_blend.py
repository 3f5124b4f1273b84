"""The automatic model: each step against NumPy, what it learns, and what it may not learn from."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from sklearn.base import clone

import ntkit
from ntkit._src.estimators import _blend
from ntkit._src.estimators._blend import EFFORTS, Blend, Effort
from ntkit.errors import InputError

RANDOM = np.random.default_rng(0)
X = RANDOM.uniform(-2, 2, (260, 4)) * [1, 10, 1, 1] + 5
TRUTH = np.sin(2 * X[:, 0]) + X[:, 1] / 10
Y = TRUTH + 0.1 * RANDOM.standard_normal(260)
LABELS = np.array(["low", "mid", "high"])[np.digitize(TRUTH, [0.0, 0.8])]


@pytest.fixture(scope="module")
def model() -> Any:
    return ntkit.NTKRegressor(effort="fast").fit(X[:160], Y[:160])


def test_it_is_kernel_regression_with_the_kernel_and_ridge_that_it_reports(model: Any) -> None:
    same = ntkit.NTKRegressor(kernel=model.kernel_, ridge=model.ridge_, normalize_y=True).fit(X[:160], Y[:160])
    np.testing.assert_allclose(model.predict(X[160:]), same.predict(X[160:]), rtol=1e-9)
    chosen: Blend = model.tuning_
    assert sum(chosen.weights.values()) == pytest.approx(1) and min(chosen.weights.values()) > 0
    assert [part.name for part in model.kernel_.parts] == [name for name in chosen.errors if name in chosen.weights]
    assert chosen.error <= 1.02 * min(chosen.errors.values()) and model.ridge_ == chosen.ridge
    assert model.score(X[160:], Y[160:]) > ntkit.NTKRegressor(tune="auto", normalize_y=True).fit(
        X[:160], Y[:160]
    ).score(X[160:], Y[160:])


def test_held_out_rows_are_predicted_without_them(model: Any) -> None:
    """A change of the targets of one fold changes no prediction for it with the same weights and ridge."""
    chosen: Blend = model.tuning_
    assert torch.equal(chosen.rows, torch.arange(160)) and chosen.folds == 2
    error = np.mean((chosen.predictions[:, 0].numpy() - (Y[:160] - Y[:160].mean()) / Y[:160].std()) ** 2)
    assert chosen.error == pytest.approx(error)
    random = ntkit.NTKRegressor(effort="fast").fit(X[:160], RANDOM.standard_normal(160))
    assert random.tuning_.error > 0.9  # no better than the mean, although the fit to its own rows would be


def test_units_and_order_of_columns_do_not_matter(model: Any) -> None:
    scaled = clone(model).fit(X[:160, ::-1] * [1, 100, 1e-3, 1] + 7, Y[:160])
    np.testing.assert_allclose(scaled.predict(X[160:, ::-1] * [1, 100, 1e-3, 1] + 7), model.predict(X[160:]), atol=1e-5)
    np.testing.assert_allclose(
        clone(model).fit(X[:160], 5 * Y[:160] - 2).predict(X), 5 * model.predict(X) - 2, atol=1e-6
    )


def test_classes_by_logistic_regression() -> None:
    model = ntkit.NTKClassifier(effort="fast").fit(X[:160], LABELS[:160])
    probabilities = model.predict_proba(X[160:])
    np.testing.assert_allclose(probabilities.sum(1), 1)
    assert model.score(X[160:], LABELS[160:]) > 0.75 and model.tuning_.logistic
    # The optimum: P - Y + rho A = 0, with logits of C times the scores.
    gram = model.kernel_(torch.from_numpy(X[:160])).numpy()
    logits = 3 * gram @ model.dual_coef_
    p = np.exp(logits - logits.max(1, keepdims=True))
    p /= p.sum(1, keepdims=True)
    rho = model.ridge_ * np.trace(gram) / 160
    one_hot = model.classes_ == LABELS[:160, None]
    np.testing.assert_allclose(p - one_hot + rho * 3 * model.dual_coef_, 0, atol=2e-5)
    two = ntkit.NTKClassifier(effort="fast").fit(X[:160], LABELS[:160] == "low")
    assert two.score(X[160:], LABELS[160:] == "low") > 0.9 and 0.5 < two.temperature_ < 2


def test_weights_count_as_copies_and_zero_leaves_out() -> None:
    weights = np.where(np.arange(160) < 80, 1.0, 0.0)
    kept = ntkit.NTKRegressor(effort="fast").fit(X[:80], Y[:80])
    np.testing.assert_allclose(
        ntkit.NTKRegressor(effort="fast").fit(X[:160], Y[:160], weights).predict(X), kept.predict(X), atol=1e-9
    )
    scaled = ntkit.NTKRegressor(effort="fast").fit(X[:80], Y[:80], np.full(80, 3.0))
    # Rounding alone differs; it moves weights between kernels whose predictions are nearly the same.
    np.testing.assert_allclose(scaled.predict(X), kept.predict(X), atol=1e-4)


def test_many_rows_by_nystrom(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "fast", Effort(100, 2, (1,), 120, 150))
    model = ntkit.NTKRegressor(effort="fast").fit(X[:200], Y[:200])
    assert "centres" in model.solution_status_ and isinstance(model.tuning_, Blend)
    assert model.score(X[200:], Y[200:]) > 0.8
    _, std = model.predict(X[200:], return_std=True)
    assert (std == std[0]).all() and 0.05 < std[0] < 0.5
    classifier = ntkit.NTKClassifier(effort="fast").fit(X[:200], LABELS[:200])
    assert classifier.score(X[200:], LABELS[200:]) > 0.75 and not classifier.tuning_.logistic


def test_the_ridge_is_chosen_again_with_all_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(EFFORTS, "fast", Effort(100, 2, (1,), 120, 1000))
    model = ntkit.NTKRegressor(effort="fast").fit(X[:200], Y[:200])
    assert len(model.tuning_.rows) == 100 and len(model.X_fit_) == 200
    ratios = {round(model.ridge_ / model.tuning_.ridge, 6)}
    ((fitted, held),) = _blend.data_splits(200, 0.1, 0)
    y = (Y[:200] - Y[:200].mean()) / Y[:200].std()
    gram = model.kernel_(torch.from_numpy(X[:200])).numpy()
    scale, errors = np.trace(gram) / 200, {}
    for factor in _blend.MANY_ROWS:
        shifted = gram[np.ix_(fitted, fitted)] + factor * model.tuning_.ridge * scale * np.eye(len(fitted))
        errors[factor] = np.mean((gram[np.ix_(held, fitted)] @ np.linalg.solve(shifted, y[fitted]) - y[held]) ** 2)
    assert ratios == {round(min(errors, key=lambda factor: errors[factor]), 6)}


def test_saying_so_keeps_everything_as_given() -> None:
    bare = ntkit.NTKRegressor(tune=None).fit(X[:20], Y[:20])
    np.testing.assert_allclose(bare.predict(X[:20]), Y[:20], atol=1e-6)
    np.testing.assert_array_equal(ntkit.NTKRegressor(ridge=0.0).fit(X[:20], Y[:20]).predict(X), bare.predict(X))
    assert ntkit.NTKRegressor(ridge=0.1).fit(X[:20], Y[:20]).tuning_ is None


def test_few_rows_constant_columns_and_bad_settings() -> None:
    few = ntkit.NTKRegressor().fit(X[:3], Y[:3])
    assert few.tuning_.folds == 0 and np.isfinite(few.predict(X)).all()
    constant = np.hstack([X[:40], np.ones((40, 1))])
    assert np.isfinite(ntkit.NTKRegressor(effort="fast").fit(constant, Y[:40]).predict(constant)).all()
    nothing = ntkit.NTKRegressor(effort="fast").fit(np.ones((40, 2)), Y[:40])
    np.testing.assert_allclose(nothing.predict(np.ones((2, 2))), Y[:40].mean(), atol=1e-6)
    with pytest.raises(InputError, match="effort must be one of 'fast', 'default', 'best'"):
        ntkit.NTKRegressor(effort="much").fit(X, Y)


def test_the_convex_combination_is_the_best() -> None:
    columns = {name: torch.from_numpy(RANDOM.standard_normal((50, 1))) for name in "abc"}
    target = 0.7 * columns["a"] + 0.3 * columns["b"]
    search = _blend._Search(target, target, None, EFFORTS["fast"], {})
    assert search.convex(columns) == pytest.approx({"a": 0.7, "b": 0.3}, abs=1e-6)
