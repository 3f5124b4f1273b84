"""What the estimators share: blocks, copies, precomputed kernels, pipelines, memory, traces and factorisations."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.base import clone
from sklearn.datasets import load_iris
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from tests.cases import mlp
from tests.estimators.problems import Array, Laplace, regression_data
from torch import Tensor, nn

import ntkit
from ntkit._src.estimators import _base
from ntkit.errors import InputError, JitterWarning, MemoryLimitError, NotFittedError


@pytest.fixture(scope="module")
def data() -> tuple[Array, Array]:
    return regression_data()


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


def test_repeated_rows_warn_and_are_reported(data: tuple[Array, Array]) -> None:
    X, y = data
    with pytest.warns(JitterWarning, match="the rows of 60 pairs are the same input to the kernel") as caught:
        model = ntkit.NTKRegressor(kernel=Laplace()).fit(np.vstack([X, X]), np.vstack([y, y + 1]))
    assert caught[0].filename == __file__
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
        {"module": mlp(7, 5, 1), "b_std": 0.2},
        {"kernel": Laplace()},
    ],
)
def test_clone_and_pickle(data: tuple[Array, Array], parameters: dict[str, Any]) -> None:
    X, y = data
    model = ntkit.NTKRegressor(ridge=0.1, **parameters).fit(X, y)
    expected = model.predict(X)
    for copy in (pickle.loads(pickle.dumps(model)), clone(model).fit(X, y)):
        np.testing.assert_allclose(copy.predict(X), expected, rtol=1e-10, atol=1e-12)


def test_kernel_of_the_wrong_shape_is_explained(data: tuple[Array, Array]) -> None:
    class Vector(Laplace):
        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            return self.diag(x1)

    with pytest.raises(InputError, match=r"\(60, 60\).*Got shape \(60,\)"):
        ntkit.NTKRegressor(kernel=Vector()).fit(*data)


@pytest.mark.parametrize("solver", [None, "nystrom"])
@pytest.mark.parametrize("tune", [None, "loo", "evidence", "auto"])
@pytest.mark.parametrize("module", [None, mlp(7, 5, 1, activation=nn.Tanh)], ids=["default", "given"])
def test_a_fit_traces_the_module_once(
    data: tuple[Array, Array],
    module: nn.Module | None,
    tune: str | None,
    solver: str | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from ntkit._src.trace import _trace

    if solver is not None and tune == "evidence":
        pytest.skip("needs the whole Gram matrix")
    traces, original = [], _trace.symbolic_graph
    monkeypatch.setattr(_trace, "symbolic_graph", lambda *given: traces.append(1) or original(*given))
    model = ntkit.NTKRegressor(module, tune=tune, solver=solver, ridge=0.1).fit(*data)
    assert np.isfinite(model.predict(data[0])).all()
    ntkit.NTKClassifier(module, tune=tune, solver=solver, ridge=0.1).fit(data[0], np.arange(60) % 3)
    ntkit.LabelAwareClassifier(module, ridge=0.1).fit(data[0], np.arange(60) % 3)
    assert len(traces) == 3


@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize("parameters", [{"ridge": 0.1}, {"tune": "loo"}, {"stopping_time": 1.0}], ids=str)
def test_deviations_take_the_factor_of_the_fit(
    data: tuple[Array, Array], parameters: dict[str, Any], large: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No matrix is factorised, and none computed but K(x, X); after unpickling once, however often deviations are asked for."""
    from ntkit._src.estimators import _regression

    X, y = data
    if large:
        monkeypatch.setattr(_regression, "_LARGE", 60)  # factorised in place
    model = ntkit.NTKRegressor(b_std=0.3, **parameters).fit(X, y)
    again: list[int] = []
    original = _base.factor_of
    monkeypatch.setattr(_base, "factor_of", lambda *given: again.append(1) or original(*given))
    std = model.predict(X + 0.1, return_std=True)[1]
    assert not again
    loaded = pickle.loads(pickle.dumps(model))
    assert model._factor is not None and loaded._factor is None  # as large as the Gram matrix
    for _ in range(2):
        np.testing.assert_allclose(loaded.predict(X + 0.1, return_std=True)[1], std, rtol=1e-9, atol=1e-9)
    assert len(again) == 1


def test_only_regressors_keep_a_factor(data: tuple[Array, Array]) -> None:
    X = data[0]
    assert ntkit.NTKRegressor(b_std=0.3).fit(*data)._factor is not None
    assert ntkit.NTKRegressor(b_std=0.3, n_centres=20).fit(*data)._factor is None
    for calibration in ("loo", None):
        assert ntkit.NTKClassifier(b_std=0.3, calibration=calibration).fit(X, np.arange(60) % 2)._factor is None


def test_memory_is_asked_for_before_the_kernel_is_computed(
    data: tuple[Array, Array], free_memory: Callable[[int], None]
) -> None:
    kernel = Laplace()
    free_memory(2 * 8 * 60**2 - 1)
    with pytest.raises(MemoryLimitError, match=r"n = 60.*largest n that fits is 59.*float32"):
        ntkit.NTKRegressor(kernel=kernel).fit(*data)
    assert not kernel.shapes
    with pytest.raises(MemoryError):
        ntkit.NTKClassifier(tune="loo").fit(data[0], np.arange(60) % 2)
    ntkit.NTKRegressor(kernel=kernel, dtype="float32").fit(*data)
    ntkit.NTKRegressor(b_std=0.1).fit(*data)  # the kernel of a network is factorised in its own memory


UNFITTED = [
    (ntkit.NTKRegressor(), "predict"),
    (ntkit.NTKClassifier(), "predict_proba"),
    (ntkit.LabelAwareClassifier(), "decision_function"),
    (ntkit.RFMRegressor(), "predict"),
    (ntkit.RFMClassifier(), "predict_proba"),
    (ntkit.NTKFeatures(), "transform"),
    (ntkit.StreamingRidge(), "predict"),
]


@pytest.mark.parametrize(("model", "method"), UNFITTED, ids=[type(model).__name__ for model, _ in UNFITTED])
def test_errors_before_fit_are_of_both_libraries(data: tuple[Array, Array], model: Any, method: str) -> None:
    from sklearn.exceptions import NotFittedError as SklearnNotFitted

    with pytest.raises(NotFittedError) as caught:
        getattr(model, method)(data[0])
    assert isinstance(caught.value, SklearnNotFitted)


@pytest.mark.parametrize("kind", [ntkit.NTKRegressor, ntkit.NTKClassifier, ntkit.LabelAwareClassifier])
def test_every_parameter_has_its_default_in_the_docstring(kind: Any) -> None:
    text = kind.__doc__
    assert "{parameters}" not in text and "{attributes}" not in text
    parameters = text[text.index("Parameters\n") : text.index("Attributes\n")]
    for name in kind().get_params():
        assert f"    {name} :" in parameters or f"{name}," in parameters or f", {name}" in parameters, name
