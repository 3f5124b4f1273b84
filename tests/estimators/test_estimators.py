"""NTKRegressor and NTKClassifier against explicit NumPy formulas in float64."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.datasets import load_digits, load_iris, make_regression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor, nn

import ntkit
from ntkit.errors import InputError, InputTypeError, JitterWarning
from ntkit.estimators import _base

Array = NDArray[Any]


def relu_kernels(x1: Array, x2: Array, depth: int, w_std: float = 2**0.5, b_std: float = 0.0) -> tuple[Array, Array]:
    """NTK and NNGP kernel of a fully-connected ReLU network by the arc-cosine recursion of Jacot et al."""
    w, b = w_std**2, b_std**2
    k = w * x1 @ x2.T / x1.shape[1] + b
    d1, d2 = (w * (x * x).mean(1) + b for x in (x1, x2))
    theta = k
    for _ in range(depth):
        norm = np.sqrt(np.outer(d1, d2))
        angle = np.arccos(np.clip(k / norm, -1, 1))
        k = w * norm * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi) + b
        theta = k + w * theta * (np.pi - angle) / (2 * np.pi)
        d1, d2 = w * d1 / 2 + b, w * d2 / 2 + b
    return theta, k


def regression(gram: Array, cross: Array, targets: Array, ridge: float) -> Array:
    n = len(gram)
    return cross @ np.linalg.solve(gram + ridge * np.trace(gram) / n * np.eye(n), targets)


class Laplace(ntkit.Kernel):
    """exp(-|x - x'|) on inputs of any shape, and a record of the shapes seen."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        self.shapes.append(tuple(x1.shape))
        difference = x1.flatten(1)[:, None] - (x1 if x2 is None else x2).flatten(1)[None]
        return torch.exp(-difference.norm(dim=2))

    def diag(self, x: Tensor) -> Tensor:
        return x.new_ones(len(x))


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    X, y = make_regression(60, 7, n_targets=3, random_state=0)
    return X, y / 100


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
    net = nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 2))
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


def test_blocks_of_rows_change_nothing(data: tuple[Array, Array], monkeypatch: pytest.MonkeyPatch) -> None:
    X, y = data
    kernel = Laplace()
    model = ntkit.NTKRegressor(kernel=kernel).fit(X[:40], y[:40])
    whole = model.predict(X)
    monkeypatch.setattr(_base, "block_rows", lambda columns, itemsize: 7)

    np.testing.assert_allclose(model.predict(X), whole, rtol=1e-12, atol=1e-12)
    assert kernel.shapes[-1] == (60 % 7, 7)


def test_changing_the_training_array_later_changes_nothing(data: tuple[Array, Array]) -> None:
    X, y = data[0].copy(), data[1]
    model = ntkit.NTKRegressor().fit(X, y)
    before = model.predict(data[0])
    X[:] = 0
    np.testing.assert_array_equal(model.predict(data[0]), before)


def test_fitting_leaves_the_global_generator_alone(data: tuple[Array, Array]) -> None:
    before = torch.random.get_rng_state()
    ntkit.NTKRegressor().fit(*data)
    assert torch.equal(torch.random.get_rng_state(), before)


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


def test_images_come_flattened() -> None:
    X, y = load_digits(return_X_y=True)
    X, y = X[:120] / 16, y[:120]
    kernel = Laplace()
    flat = ntkit.NTKClassifier(kernel=Laplace()).fit(X[:80], y[:80])
    folded = ntkit.NTKClassifier(kernel=kernel, input_shape=(1, 8, 8)).fit(X[:80], y[:80])
    assert {shape[1:] for shape in kernel.shapes} == {(1, 8, 8)}
    np.testing.assert_allclose(folded.decision_function(X[80:]), flat.decision_function(X[80:]), atol=1e-12)
    default = ntkit.NTKClassifier(input_shape=(1, 8, 8)).fit(X[:80], y[:80])
    plain = ntkit.NTKClassifier().fit(X[:80], y[:80])
    np.testing.assert_allclose(default.decision_function(X[80:]), plain.decision_function(X[80:]), atol=1e-10)


def test_convolutional_model_on_digits() -> None:
    X, y = load_digits(return_X_y=True)
    net = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(256, 10))
    model = ntkit.NTKClassifier(net, input_shape=(1, 8, 8)).fit(X[:200] / 16, y[:200])
    assert model.score(X[200:400] / 16, y[200:400]) > 0.9


def test_repeated_rows_warn_and_are_reported(data: tuple[Array, Array]) -> None:
    X, y = data
    with pytest.warns(JitterWarning):
        model = ntkit.NTKRegressor(kernel=Laplace()).fit(np.vstack([X, X]), np.vstack([y, y + 1]))
    assert "jitter of" in model.solution_status_
    np.testing.assert_allclose(model.predict(X), y + 0.5, atol=1e-3)


def test_precomputed_equals_the_kernel_itself(data: tuple[Array, Array]) -> None:
    X, y = data
    kernel = Laplace()
    gram = kernel(torch.from_numpy(X)).numpy()
    direct = ntkit.NTKRegressor(kernel=kernel, ridge=0.1).fit(X[:40], y[:40])
    given = ntkit.NTKRegressor(kernel="precomputed", ridge=0.1).fit(gram[:40, :40], y[:40])
    np.testing.assert_allclose(given.predict(gram[40:, :40]), direct.predict(X[40:]), atol=1e-10)
    assert given.X_fit_ is None
    search = {"ridge": [1e-3, 1e-1, 10.0]}
    pairwise = GridSearchCV(ntkit.NTKRegressor(kernel="precomputed"), search, cv=3).fit(gram, y)
    rows = GridSearchCV(ntkit.NTKRegressor(kernel=kernel), search, cv=3).fit(X, y)
    np.testing.assert_allclose(pairwise.cv_results_["mean_test_score"], rows.cv_results_["mean_test_score"])


def test_pipeline_and_grid_search() -> None:
    X, y = load_iris(return_X_y=True)
    pipeline = make_pipeline(StandardScaler(), ntkit.NTKClassifier(b_std=0.1))
    grid = {"ntkclassifier__ridge": [1e-3, 1e-1], "ntkclassifier__kernel": ["ntk", "nngp"]}
    search = GridSearchCV(pipeline, grid, cv=3).fit(X, y)
    assert search.best_score_ > 0.93


def test_feature_names() -> None:
    frame = pd.DataFrame(np.random.default_rng(0).standard_normal((10, 2)), columns=["width", "height"])
    model = ntkit.NTKRegressor().fit(frame, frame["width"])
    assert list(model.feature_names_in_) == ["width", "height"]


@pytest.mark.parametrize(
    "parameters",
    [
        {},
        {"module": nn.Sequential(nn.Linear(7, 5), nn.ReLU(), nn.Linear(5, 1)), "b_std": 0.2},
        {"kernel": Laplace()},
    ],
)
def test_clone_and_pickle(data: tuple[Array, Array], parameters: dict[str, Any]) -> None:
    X, y = data
    model = ntkit.NTKRegressor(ridge=0.1, **parameters).fit(X, y)
    expected = model.predict(X)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).predict(X), expected)
    np.testing.assert_array_equal(clone(model).fit(X, y).predict(X), expected)


@pytest.mark.parametrize(
    ("parameters", "error", "message"),
    [
        ({"input_shape": (3, 3)}, InputError, r"9 features. Got 7 features"),
        ({"input_shape": 7}, InputTypeError, r"\(3, 32, 32\)"),
        ({"input_shape": (7.5,)}, InputTypeError, r"integers"),
        ({"input_shape": ()}, InputError, r"at least one size"),
        ({"input_shape": (-1, -7)}, InputError, r"positive"),
        ({"kernel": "rbf"}, InputError, r"'nngp', 'precomputed' or an ntkit Kernel. Got 'rbf'"),
        ({"kernel": None}, InputError, r"Got None"),
        ({"ridge": -0.1}, InputError, r"not negative"),
        ({"ridge": "0"}, InputTypeError, r"number"),
        ({"dtype": "float16"}, InputError, r"'float32' or 'float64'. Got 'float16'"),
        ({"dtype": torch.int64}, InputError, r"Got torch.int64"),
        ({"device": "nowhere"}, InputError, r"Got 'nowhere'"),
        ({"device": "cuda:99"}, InputError, r"Got 'cuda:99'"),
        ({"device": "meta"}, InputError, r"'cpu'"),
        ({"module": "mlp"}, InputTypeError, r"torch.nn.Module or None. Got 'mlp'"),
        ({"module": nn.Linear}, InputTypeError, r"an instance"),
        ({"module": nn.ReLU(), "kernel": Laplace()}, InputError, r"leave module out"),
        ({"module": nn.ReLU(), "kernel": "precomputed"}, InputError, r"must be None"),
        ({"input_shape": (7,), "kernel": "precomputed"}, InputError, r"must be None"),
        ({"kernel": "precomputed"}, InputError, r"square Gram matrix K\(X, X\) at fit. Got shape \(60, 7\)"),
    ],
)
@pytest.mark.parametrize("kind", [ntkit.NTKRegressor, ntkit.NTKClassifier])
def test_bad_parameters_are_explained(
    data: tuple[Array, Array], kind: Any, parameters: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        kind(**parameters).fit(data[0], np.arange(60) % 2)


def test_kernel_of_the_wrong_shape_is_explained(data: tuple[Array, Array]) -> None:
    class Vector(Laplace):
        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            return self.diag(x1)

    with pytest.raises(InputError, match=r"\(60, 60\). Got \(60,\)"):
        ntkit.NTKRegressor(kernel=Vector()).fit(*data)


def test_classifier_needs_classes(data: tuple[Array, Array]) -> None:
    with pytest.raises(InputError, match=r"one class"):
        ntkit.NTKClassifier().fit(data[0], np.zeros(60))
    with pytest.raises(ValueError, match=r"continuous"):
        ntkit.NTKClassifier().fit(data[0], np.linspace(0, 1, 60))
    with pytest.raises(ValueError, match=r"1d array|multilabel"):
        ntkit.NTKClassifier().fit(data[0], np.eye(60))
