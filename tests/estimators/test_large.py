"""Estimators with a solver for many rows: the exact fit where it is exact, rows from anywhere, ridges on held-out rows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit.solvers import CG, EigenPro, Nystrom


def _data(n: int = 240) -> tuple[Any, Any]:
    random = np.random.default_rng(0)
    X = random.normal(size=(n, 3))
    return X, np.sin(2 * X[:, 0]) + X[:, 1] * X[:, 2]


@pytest.mark.parametrize(
    ("settings", "accuracy"),
    [
        ({"solver": "cg"}, 1e-6),
        ({"solver": "cholesky"}, 1e-6),
        ({"solver": "auto"}, 1e-6),
        ({"solver": CG(rank=10)}, 1e-6),
        ({"n_centres": 200}, 1e-4),
        ({"solver": "falkon", "n_centres": 200}, 1e-4),
        ({"solver": Nystrom(150)}, 0.2),
        ({"solver": EigenPro(epochs=200, sample=150, rank=50)}, 0.05),
    ],
)
def test_predictions_are_those_of_the_exact_fit(settings: dict[str, Any], accuracy: float) -> None:
    X, y = _data()
    exact = ntkit.NTKRegressor(b_std=0.5, ridge=1e-1).fit(X[:200], y[:200]).predict(X[200:])
    model = ntkit.NTKRegressor(b_std=0.5, ridge=1e-1, **settings).fit(X[:200], y[:200])
    error = np.linalg.norm(model.predict(X[200:]) - exact) / np.linalg.norm(exact)
    assert error < accuracy, model.solution_status_
    with pytest.raises(InputError, match="return_std"):
        model.predict(X[200:], return_std=True)


def test_the_ridge_is_chosen_on_held_out_rows() -> None:
    X, y = _data()
    noisy = y + 0.5 * np.random.default_rng(1).normal(size=len(y))
    ridges = [1e-8, 1e-1, 1e4]
    for solver in ("nystrom", "cg"):
        model = ntkit.NTKRegressor(b_std=0.5, ridge=ridges, tune="loo", solver=solver).fit(X, noisy)
        assert model.ridge_ == 1e-1 and set(model.tuning_) == set(ridges)
        assert model.tuning_[1e-1] == min(model.tuning_.values())
    auto = ntkit.NTKRegressor(tune="auto", n_centres=100).fit(X, y)
    assert auto.X_fit_.shape == (100, 3) and auto.dual_coef_.shape == (100,) and "100" in auto.solution_status_


def test_classifiers_calibrate_on_held_out_rows() -> None:
    X, y = _data(300)
    labels = np.array(["low", "mid", "high"])[np.digitize(y, [-0.5, 0.5])]
    model = ntkit.NTKClassifier(b_std=0.5, ridge=1e-3, n_centres=150).fit(X[:250], labels[:250])
    assert model.score(X[250:], labels[250:]) > 0.7 and model.temperature_ != 1.0
    np.testing.assert_allclose(model.predict_proba(X[250:]).sum(1), 1)


def test_rows_from_files_and_blocks(tmp_path: Path) -> None:
    import dask.array
    import zarr

    X, y = _data()
    expected = ntkit.NTKRegressor(b_std=0.5, ridge=1e-2, n_centres=80).fit(X, y).predict(X[:20])
    mapped = np.memmap(tmp_path / "rows", np.float64, mode="w+", shape=X.shape)
    mapped[:] = X
    mapped.flush()
    stored = zarr.create_array(store=str(tmp_path / "rows.zarr"), shape=X.shape, chunks=(50, 3), dtype="float64")
    stored[:] = X
    sources: list[Any] = [
        np.memmap(tmp_path / "rows", np.float64, mode="r", shape=X.shape),
        stored,
        dask.array.from_array(X, chunks=(70, 3)),
        iter([X[:100], X[100:]]),
        (X[start : start + 30] for start in range(0, 240, 30)),
    ]
    for source in sources:
        model = ntkit.NTKRegressor(b_std=0.5, ridge=1e-2, n_centres=80).fit(source, y)
        np.testing.assert_allclose(model.predict(X[:20]), expected, rtol=1e-9)
    with pytest.raises(InputTypeError, match=r"shape \(m, 3\)"):
        ntkit.NTKRegressor(n_centres=10).fit(iter([X, X[:, :2]]), y)
    with pytest.raises(InputError, match="no blocks"):
        ntkit.NTKRegressor(n_centres=10).fit(iter([]), y)


@pytest.mark.parametrize(
    "settings", [{"solver": "cg"}, {"n_centres": 60}, {"n_centres": 200}, {"tune": "loo", "solver": "nystrom"}], ids=str
)
def test_gram_matrices_in_memory_and_on_disk(settings: dict[str, Any], tmp_path: Path) -> None:
    """A solver reads the parts of a stored matrix that it needs; the predictions are those of the kernel itself."""
    X, y = _data()
    rows, labels = torch.from_numpy(X), np.digitize(y, [-0.5, 0.5])
    kernel = ntkit.infinite_width(mlp(3, 8, 1), b_std=0.5).ntk
    options = {"ridge": 0.1, **settings} if "tune" not in settings else settings
    stored = ntkit.gram(kernel, rows[:200], out=tmp_path / "k.zarr", tile=64)
    cross = kernel(rows[200:], rows[:200]).numpy()
    expected = ntkit.NTKRegressor(kernel=kernel, **options).fit(X[:200], y[:200]).predict(X[200:])
    for gram in (kernel(rows[:200]).numpy(), stored):
        model = ntkit.NTKRegressor(kernel="precomputed", **options).fit(gram, y[:200])
        np.testing.assert_allclose(model.predict(cross), expected, rtol=1e-5, atol=1e-5)
    classifier = ntkit.NTKClassifier(kernel="precomputed", **options).fit(stored, labels[:200])
    assert classifier.score(cross, labels[200:]) > 0.5 and classifier.temperature_ != 1.0
    with pytest.raises(ValueError, match="inconsistent"):
        ntkit.NTKRegressor(kernel="precomputed", **options).fit(stored, y)


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"solver": "lu"}, "solver must be one of 'auto'"),
        ({"solver": "cg", "n_centres": 3}, "goes with solver='nystrom' or 'falkon'"),
        ({"solver": Nystrom(3), "n_centres": 3}, "Got both"),
        ({"n_centres": 500}, "at most n = 240"),
        ({"solver": "cg", "stopping_time": 1.0}, "without a stopping time"),
        ({"solver": "cg", "tune": "evidence"}, "tune='loo' or 'auto'"),
    ],
)
def test_bad_input(settings: dict[str, Any], message: str) -> None:
    X, y = _data()
    with pytest.raises(InputError, match=message):
        ntkit.NTKRegressor(b_std=0.5, **settings).fit(X, y)
    with pytest.raises(InputError, match="weights or noise"):
        ntkit.NTKRegressor(b_std=0.5, solver="cg").fit(X, y, sample_weight=np.linspace(1, 2, len(y)))


def test_ridges_are_tried_on_a_part_of_very_many_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    from ntkit._src.estimators import _regression

    assert _regression._thinned(torch.arange(10), 10).tolist() == list(range(10))
    assert _regression._thinned(torch.arange(11), 3).tolist() == [0, 5, 10]
    X, y = _data()
    noisy = y + 0.5 * np.random.default_rng(1).normal(size=len(y))
    rows: list[int] = []
    set_up = Nystrom.set_up

    def counted(self: Nystrom, gram: Any, *others: Any, **named: Any) -> Any:
        rows.append(gram.shape[0])
        return set_up(self, gram, *others, **named)

    monkeypatch.setattr(Nystrom, "set_up", counted)
    monkeypatch.setattr(_regression, "_MOST_TUNED", 120)
    model = ntkit.NTKRegressor(b_std=0.5, ridge=[1e-8, 1e-1, 1e4], tune="loo", n_centres=60).fit(X, noisy)
    assert rows == [120, len(X)] and model.tuning_[model.ridge_] == min(model.tuning_.values())


@pytest.mark.parametrize("solver", ["nystrom", pytest.param("falkon", marks=pytest.mark.slow)])
def test_as_many_centres_as_rows_are_more_than_are_left_to_tune_with(solver: str) -> None:
    X, y = _data(60)
    model = ntkit.NTKRegressor(b_std=0.5, tune="loo", solver=solver, n_centres=60).fit(X, y)
    assert len(model.X_fit_) == 60 and np.abs(model.predict(X) - y).max() < 0.5
