"""Frames with categories and missing values, of pandas and polars, through the pipeline."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone

import ntkit
from ntkit.errors import InputTypeError


def columns() -> dict[str, list[Any]]:
    rng = np.random.default_rng(0)
    size = rng.standard_normal(120)
    kind = rng.choice(["a", "b", "c"], 120)
    missing = rng.uniform(size=(2, 120)) < 0.1
    return {
        "size": [None if gone else float(value) for value, gone in zip(size, missing[0], strict=True)],
        "count": rng.integers(0, 5, 120).tolist(),
        "old": (rng.uniform(size=120) < 0.5).tolist(),
        "kind": [None if gone else str(value) for value, gone in zip(kind, missing[1], strict=True)],
        "label": [str(one) for one in np.where((size > 0) ^ (kind == "a"), "yes", "no")],
    }


def frame(library: str) -> Any:
    if library == "pandas":
        return pd.DataFrame(columns())
    if library == "pandas with categories":
        made = pd.DataFrame(columns())
        return made.assign(kind=made["kind"].astype("category"), count=made["count"].astype("Int64"))
    return pytest.importorskip("polars").DataFrame(columns())


@cache
def probabilities() -> Any:
    """Give those of a clone, fitted to the plain frame of pandas."""
    table = frame("pandas")
    X, labels = table.drop(columns="label"), table["label"].to_numpy(dtype=str)
    return clone(ntkit.tabular_pipeline().fit(X[:20], labels[:20])).fit(X[:80], labels[:80]).predict_proba(X)


@pytest.mark.parametrize("library", ["pandas", "pandas with categories", "polars"])
def test_classification_of_a_frame(library: str) -> None:
    table = frame(library)
    labels = np.asarray(table["label"], dtype=str)
    X = table.drop(columns="label") if library.startswith("pandas") else table.drop("label")
    pipeline = ntkit.tabular_pipeline().fit(X[:80], labels[:80])
    assert pipeline.score(X[80:], labels[80:]) > 0.75
    rows = pipeline[0].transform(X)
    assert rows.shape == (120, 3 + 1 + 4) and np.isfinite(np.asarray(rows)).all()
    np.testing.assert_allclose(pipeline.predict_proba(X), probabilities())


@pytest.mark.parametrize("library", ["pandas", "polars"])
def test_names_of_the_columns(library: str) -> None:
    table = frame(library)
    X = table[["size", "kind"]]
    pipeline = ntkit.tabular_pipeline(ntkit.NTKRegressor(ridge=0.1)).set_output(transform=library)
    pipeline.fit(X, np.arange(120.0))
    names = list(pipeline[0].transform(X).columns)
    assert names[:2] == ["numbers__size", "numbers__missingindicator_size"]
    assert names[2:] == [f"categories__kind_{one}" for one in ("a", "b", "c", "missing")]
    assert list(pipeline[-1].feature_names_in_) == names


def test_categories_that_are_new_or_rare() -> None:
    X = pd.DataFrame({"kind": [f"k{number % 40}" for number in range(400)]})
    pipeline = ntkit.tabular_pipeline(ntkit.NTKRegressor(ridge=0.1)).fit(X, np.arange(400.0))
    assert pipeline[0].transform(X).shape[1] == 32
    assert np.isfinite(pipeline.predict(pd.DataFrame({"kind": ["never seen", None]}))).all()


def test_bad_input_is_explained() -> None:
    with pytest.raises(InputTypeError, match="estimator must be"):
        ntkit.tabular_pipeline("ridge")  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match="data frame of pandas or polars. Got ndarray"):
        ntkit.tabular_pipeline().fit(np.zeros((4, 2)), [0, 1, 0, 1])
