"""NTKClassifier against explicit NumPy formulas in float64."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from sklearn.datasets import load_iris
from sklearn.preprocessing import StandardScaler
from tests.estimators.problems import Array, regression, regression_data, relu_kernels

import ntkit
from ntkit.errors import InputError


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return regression_data()


@pytest.mark.parametrize("calibration", ["loo", None])
@pytest.mark.parametrize("classes", [2, 3])
def test_classifier_scores_and_probabilities(classes: int, calibration: str | None) -> None:
    X, y = load_iris(return_X_y=True)
    keep = y < classes
    X, y = StandardScaler().fit_transform(X[keep]), y[keep]
    model = ntkit.NTKClassifier(b_std=0.1, ridge=1e-3, calibration=calibration).fit(X[::2], y[::2])
    gram, cross = (relu_kernels(x, X[::2], 3, b_std=0.1)[0] for x in (X[::2], X[1::2]))
    one_hot = np.eye(classes)[y[::2]]
    scores = regression(gram, cross, one_hot - 1 / classes, 1e-3)
    exponent = np.exp(classes * scores / model.temperature_)
    assert (model.temperature_ == 1) == (calibration is None)
    decision = model.decision_function(X[1::2])
    probabilities = model.predict_proba(X[1::2])
    np.testing.assert_allclose(decision, scores[:, 1] - scores[:, 0] if classes == 2 else scores, atol=1e-7)
    np.testing.assert_allclose(probabilities, exponent / exponent.sum(1, keepdims=True), atol=1e-7)
    np.testing.assert_array_equal(model.predict(X[1::2]), scores.argmax(1))
    np.testing.assert_array_equal(probabilities.argmax(1), scores.argmax(1))


@pytest.mark.parametrize(
    "names",
    [["b", "a", "c"], [10, -3, 7], [2.0, 1.0, 3.0], np.array(["x", "yy", "z"], dtype=object), [True, False]],
)
def test_labels_of_any_type(names: Any) -> None:
    X, codes = load_iris(return_X_y=True)
    names = np.asarray(names)
    keep = codes < len(names)
    X, y = X[keep], names[codes[keep]]
    model = ntkit.NTKClassifier(b_std=0.5, ridge=1e-3).fit(X, y)
    np.testing.assert_array_equal(model.classes_, np.unique(y))
    assert model.predict(X).dtype == names.dtype
    assert model.score(X, y) > 0.95
    assert model.predict_proba(X).shape == (len(X), len(names))


def test_classifier_needs_classes(data: tuple[Array, Array]) -> None:
    with pytest.raises(InputError, match=r"one class"):
        ntkit.NTKClassifier().fit(data[0], np.zeros(60))
    with pytest.raises(ValueError, match=r"continuous"):
        ntkit.NTKClassifier().fit(data[0], np.linspace(0, 1, 60))
    with pytest.raises(ValueError, match=r"1d array|multilabel"):
        ntkit.NTKClassifier().fit(data[0], np.eye(60))


def test_labels_of_mixed_types_are_refused(data: tuple[Array, Array]) -> None:
    mixed = np.array([1, "a", None] * 20, dtype=object)
    with pytest.raises(InputError, match="labels of one type. Got NoneType, int, str"):
        ntkit.NTKClassifier().fit(data[0], mixed)


@pytest.mark.parametrize("weights", [{0: 1.0, 1: 30.0}, "balanced"])
def test_class_weights_are_sample_weights(weights: Any) -> None:
    rng = np.random.default_rng(0)
    X, y = rng.standard_normal((120, 3)), (rng.uniform(size=120) < 0.15).astype(int)
    model = ntkit.NTKClassifier(ridge=1.0, class_weight=weights).fit(X, y)
    each = {0: 60 / (y == 0).sum(), 1: 60 / (y == 1).sum()} if weights == "balanced" else weights
    expected = ntkit.NTKClassifier(ridge=1.0).fit(X, y, sample_weight=np.where(y == 1, each[1], each[0]))
    np.testing.assert_allclose(model.decision_function(X), expected.decision_function(X), rtol=1e-10)
    assert model.temperature_ == pytest.approx(expected.temperature_)
    plain = ntkit.NTKClassifier(ridge=1.0).fit(X, y)
    assert model.predict(X).mean() > plain.predict(X).mean()
