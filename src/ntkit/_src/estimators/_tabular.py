"""Data frames with categories and missing values, prepared for a network's kernel."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.base import BaseEstimator
from sklearn.compose import ColumnTransformer
from sklearn.impute import SimpleImputer
from sklearn.pipeline import Pipeline, make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from ntkit._src.common import shown
from ntkit.errors import InputTypeError

from ._ntk_estimators import NTKClassifier


def tabular_pipeline(estimator: BaseEstimator | None = None) -> Pipeline:
    """Return a pipeline from a pandas or polars data frame to an estimator.

    Numbers and booleans: missing values become the median, with an indicator column for each feature that has any at fit,
    then features are scaled to mean 0 and variance 1. Everything else (strings, categories, objects): missing values are a
    separate category, then there is one column per category; at most 32 per feature, where the rarest share one, as do
    categories not seen at fit. Columns that are empty at fit are left out.

    Parameters
    ----------
    estimator : estimator, optional
        The final step. Default ``NTKClassifier()``, the automatic model; for numerical targets pass ``NTKRegressor()``.

    Returns
    -------
    sklearn.pipeline.Pipeline
        With the steps ``"columns"`` and ``"estimator"``. ``set_output(transform="pandas")`` or ``"polars"`` names the columns of
        the first.

    See Also
    --------
    NTKClassifier, NTKRegressor

    Examples
    --------
    >>> import ntkit, pandas
    >>> frame = pandas.DataFrame({"size": [1.0, 2.0, None, 4.0] * 5, "kind": ["a", "b", "b", None] * 5})
    >>> pipeline = ntkit.tabular_pipeline().set_output(transform="pandas").fit(frame, ["no", "yes", "yes", "no"] * 5)
    >>> pipeline.predict(frame[:2]).tolist()
    ['no', 'yes']
    >>> pipeline[0].transform(frame[:1]).columns.tolist()
    ['numbers__size', 'numbers__missingindicator_size', 'categories__kind_a', 'categories__kind_b', 'categories__kind_missing']
    """
    if estimator is not None and not hasattr(estimator, "fit"):
        raise InputTypeError(
            f"estimator must be a scikit-learn estimator or None. Got {shown(estimator)}: write ntkit.NTKRegressor()."
        )
    numbers = make_pipeline(
        FunctionTransformer(_as_floats, feature_names_out="one-to-one"),
        SimpleImputer(strategy="median", add_indicator=True),
        StandardScaler(),
    )
    categories = make_pipeline(
        FunctionTransformer(_as_strings, feature_names_out="one-to-one"),
        OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=32, sparse_output=False),
    )
    columns = ColumnTransformer(
        [("numbers", numbers, number_columns), ("categories", categories, category_columns)], sparse_threshold=0.0
    )
    chosen = NTKClassifier() if estimator is None else estimator
    return Pipeline([("columns", columns), ("estimator", chosen)])


def number_columns(frame: Any) -> list[str]:
    """Return the names of the columns of numbers and booleans of a pandas or polars frame."""
    return [name for name in _names(frame) if _is_numeric(frame, name)]


def category_columns(frame: Any) -> list[str]:
    """Return the names of all other columns."""
    return [name for name in _names(frame) if not _is_numeric(frame, name)]


def _names(frame: Any) -> list[str]:
    if not hasattr(frame, "columns"):
        raise InputTypeError(
            f"X must be a data frame of pandas or polars. Got {type(frame).__name__}: write pandas.DataFrame(X), or pass an "
            "array to the estimator itself."
        )
    return list(frame.columns)


def _is_numeric(frame: Any, name: str) -> bool:
    kind = frame[name].dtype
    if hasattr(kind, "is_numeric"):  # polars
        return bool(kind.is_numeric()) or str(kind) == "Boolean"
    # pandas: NumPy's dtypes have a kind, and so have its own nullable ones; categories and objects have "O".
    return getattr(kind, "kind", "O") in "iufb" and str(kind) != "category"


def _as_floats(frame: Any) -> Any:
    """Return the columns as floats with NaN for missing values, as a frame of the same kind if X was one."""
    if hasattr(frame, "with_columns"):  # polars
        import polars

        return frame.with_columns(polars.all().cast(polars.Float64).fill_null(float("nan")))
    return frame.astype("float64") if hasattr(frame, "astype") else np.asarray(frame, dtype=np.float64)


def _as_strings(frame: Any) -> Any:
    """Return the columns as strings, with "missing" for missing values."""
    if hasattr(frame, "with_columns"):  # polars
        import polars

        return frame.with_columns(polars.all().cast(polars.String).fill_null("missing"))
    text = frame.astype(object)
    return text.where(frame.notna(), "missing").astype(str)
