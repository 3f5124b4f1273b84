"""Label encodings and the temperature of the probabilities, against refits without each point."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax
from sklearn.datasets import load_digits, load_iris, make_classification
from sklearn.metrics import log_loss
from sklearn.utils import shuffle

import ntkit
from ntkit._src.estimators._labels import fit_temperature
from ntkit.errors import InputError, JitterWarning

Array = NDArray[Any]


def noisy(classes: int, n: int) -> tuple[Array, Array]:
    return make_classification(n, 8, n_informative=4, n_classes=classes, flip_y=0.3, class_sep=0.7, random_state=1)


@pytest.mark.parametrize("stopping_time", [None, 0.05])
@pytest.mark.parametrize("classes", [2, 3])
def test_temperature_is_that_of_refits(classes: int, stopping_time: float | None) -> None:
    X, y = noisy(classes, 40)
    model = ntkit.NTKClassifier(ridge=0.1, b_std=0.2, stopping_time=stopping_time).fit(X, y)
    parameters: dict[str, Any] = {"kernel": model.kernel_, "stopping_time": stopping_time}
    diagonal = np.asarray(model.kernel_.diag(_tensor(X)))
    logits = np.empty((40, classes))
    for point in range(40):
        rest = np.delete(np.arange(40), point)
        # The same absolute ridge as with all points.
        ridge = 0.1 * diagonal.mean() / diagonal[rest].mean()
        left = ntkit.NTKClassifier(ridge=ridge, calibration=None, **parameters).fit(X[rest], y[rest])
        logits[point] = np.log(left.predict_proba(X[[point]])[0])
    found = minimize_scalar(
        lambda log_t: log_t**2 / 2 - log_softmax(logits / np.exp(log_t), axis=1)[np.arange(40), y].sum(), (-1, 1)
    )
    assert model.temperature_ == pytest.approx(np.exp(found.x), rel=1e-4)


@pytest.mark.parametrize("classes", [2, 4])
def test_calibration_lowers_the_log_loss_of_new_points(classes: int) -> None:
    X, y = noisy(classes, 900)
    raw, calibrated = (
        ntkit.NTKClassifier(b_std=0.2, calibration=calibration).fit(X[:300], y[:300]) for calibration in (None, "loo")
    )
    losses = [log_loss(y[300:], model.predict_proba(X[300:])) for model in (raw, calibrated)]
    assert losses[1] < losses[0] - 0.02
    assert losses[1] < np.log(classes)
    np.testing.assert_array_equal(raw.predict(X[300:]), calibrated.predict(X[300:]))
    assert calibrated.temperature_ > 1


def test_sure_where_the_data_are_clear() -> None:
    X, y = shuffle(
        *load_digits(return_X_y=True), random_state=0
    )  # by writers otherwise, so the last differ from the first
    model = ntkit.NTKClassifier(tune=None).fit(X[:300], y[:300])
    confidence = model.predict_proba(X[300:800]).max(1).mean()
    assert abs(confidence - model.score(X[300:800], y[300:800])) < 0.05
    raw = ntkit.NTKClassifier(calibration=None, tune=None).fit(X[:300], y[:300])
    assert log_loss(y[300:800], model.predict_proba(X[300:800])) < log_loss(y[300:800], raw.predict_proba(X[300:800]))


@pytest.mark.parametrize("sign", [1, -1])
def test_temperature_stays_positive_and_finite(sign: int) -> None:
    """Every point right, or every point wrong."""
    codes = np.arange(20) % 2
    values = sign * np.where(np.eye(2)[codes] == 1, 1.0, -1.0)
    temperature = fit_temperature(values, codes)
    assert 0.1 < temperature < 10
    assert (temperature < 1) == (sign == 1)
    assert fit_temperature(0 * values, codes) == pytest.approx(1, abs=1e-6)
    assert 1e-3 < fit_temperature(1e-3 * values, codes) < 1e3 and np.isfinite(fit_temperature(1e6 * values, codes))


def test_singular_kernel_is_calibrated_too() -> None:
    X, y = load_iris(return_X_y=True)
    X, y = np.vstack([X, X]), np.concatenate([y, y])
    with pytest.warns(JitterWarning):
        model = ntkit.NTKClassifier(b_std=0.1).fit(X, y)
    assert np.isfinite(model.predict_proba(X)).all()
    assert model.temperature_ > 0


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("encoding", ["arora", "one-hot"])
def test_encodings_give_the_same_classes_and_probabilities(encoding: str, classes: int) -> None:
    X, y = load_iris(return_X_y=True)
    keep = y < classes
    X, y = X[keep], y[keep]
    centered, other = (ntkit.NTKClassifier(b_std=0.3, ridge=1e-3, encoding=name) for name in ("centered", encoding))
    centered.fit(X[::2], y[::2])
    other.fit(X[::2], y[::2])
    np.testing.assert_array_equal(other.predict(X), centered.predict(X))
    np.testing.assert_allclose(other.predict_proba(X), centered.predict_proba(X), atol=1e-5)
    if classes == 3:
        offset = 0.1 if encoding == "arora" else 0.0
        regressor = ntkit.NTKRegressor(b_std=0.3, ridge=1e-3).fit(X[::2], np.eye(3)[y[::2]] - offset)
        np.testing.assert_allclose(other.decision_function(X), regressor.predict(X), atol=1e-8)


def test_ten_classes_of_arora_are_the_default() -> None:
    X, y = load_digits(return_X_y=True)
    default, arora = (
        ntkit.NTKClassifier(encoding=name, tune=None).fit(X[:100], y[:100]) for name in ("centered", "arora")
    )
    np.testing.assert_allclose(arora.dual_coef_, default.dual_coef_, atol=1e-12)


def test_tuned_classifier() -> None:
    X, y = noisy(3, 900)
    plain = ntkit.NTKClassifier(b_std=0.2).fit(X[:300], y[:300])
    ridge = ntkit.NTKClassifier(b_std=0.2, tune="loo").fit(X[:300], y[:300])
    time = ntkit.NTKClassifier(b_std=0.2, tune="loo", stopping_time="auto").fit(X[:300], y[:300])
    assert ridge.ridge_ > 1e-3
    assert time.stopping_time_ < np.inf
    assert min(m.score(X[300:], y[300:]) for m in (ridge, time)) > plain.score(X[300:], y[300:]) + 0.03
    again = ntkit.NTKClassifier(b_std=0.2, ridge=ridge.ridge_).fit(X[:300], y[:300])
    assert again.temperature_ == pytest.approx(ridge.temperature_, rel=1e-4)


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"encoding": "ordinal"}, r"'centered', 'arora', 'one-hot'. Got 'ordinal'"),
        ({"encoding": None}, r"Got None"),
        ({"calibration": "platt"}, r"'loo' or None. Got 'platt'"),
    ],
)
def test_bad_parameters_are_explained(parameters: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        ntkit.NTKClassifier(**parameters).fit(*load_iris(return_X_y=True))


def _tensor(X: Array) -> Any:
    import torch

    return torch.from_numpy(X)
