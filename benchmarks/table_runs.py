"""Fit one method after the other to the tables of ``table_list.py``, and add a line of JSON per fit to a file.

    PYTHON benchmarks/table_runs.py FOLDER RESULTS --half development --rows 1000 --folds 2 METHOD ...

FOLDER holds the packages. Methods of other libraries run in an environment that has them, ``ntkit`` in this project's; all get
the same rows. A fit that RESULTS already has is not repeated. ``tables.py`` makes tables of the file.
"""

from __future__ import annotations

import argparse
import json
import time
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from table_list import Listed, listed, read

_MOST_TESTED = 2000
_LEVEL = 0.9


def splits(table: Listed, y: pd.Series, rows: int, folds: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Give the row numbers to fit and to predict: at most so many and 2,000, at least a quarter is predicted."""
    for fold in range(folds):
        order = np.random.default_rng([fold, len(y)]).permutation(len(y))
        tested = min(_MOST_TESTED, max(len(y) // 4, len(y) - rows))
        fitted = order[tested:][:rows]
        test = order[:tested]
        if table.classes:  # a class that no fitted row has cannot be scored by anyone
            test = test[np.isin(y.to_numpy()[test], y.to_numpy()[fitted])]
        yield fitted, test


def _encoded(estimator: Any) -> Any:
    """Numbers are scaled and their gaps filled, categories become columns: for methods that read numbers alone."""
    from sklearn.compose import ColumnTransformer, make_column_selector
    from sklearn.impute import SimpleImputer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    numbers = make_pipeline(SimpleImputer(strategy="median", add_indicator=True), StandardScaler())
    words = OneHotEncoder(handle_unknown="infrequent_if_exist", max_categories=32, sparse_output=False)
    select = make_column_selector(dtype_include=["number", "bool"])
    rest = make_column_selector(dtype_exclude=["number", "bool"])
    return make_pipeline(ColumnTransformer([("numbers", numbers, select), ("words", words, rest)]), estimator)


def _categorised(frame: pd.DataFrame, words: list[str], missing: bool) -> pd.DataFrame:
    frame = frame.copy()
    for name in words:
        text = frame[name].astype(object)
        frame[name] = text.where(text.notna(), "missing").astype(str) if missing else text.astype("category")
    return frame


def _model(method: str, classes: bool, words: list[str], n: int) -> Any:
    if method.startswith("ntkit"):
        import ntkit

        settings = {"": {}, "fast": {"effort": "fast"}, "best": {"effort": "best"}, "auto": {"tune": "auto"}}
        options: dict[str, Any] = dict(settings[method.partition("-")[2]])
        if "tune" in options and not classes:
            options["normalize_y"] = True
        return ntkit.tabular_pipeline((ntkit.NTKClassifier if classes else ntkit.NTKRegressor)(**options))
    if method == "lightgbm":
        import lightgbm

        return (lightgbm.LGBMClassifier if classes else lightgbm.LGBMRegressor)(n_jobs=1, verbose=-1)
    if method == "catboost":
        import catboost

        kind = catboost.CatBoostClassifier if classes else catboost.CatBoostRegressor
        return kind(thread_count=1, verbose=False, allow_writing_files=False, cat_features=words)
    if method == "xgboost":
        import xgboost

        return _encoded((xgboost.XGBClassifier if classes else xgboost.XGBRegressor)(n_jobs=1))
    from sklearn import ensemble, linear_model, model_selection, svm

    if method == "hist-gradient-boosting":
        kind = ensemble.HistGradientBoostingClassifier if classes else ensemble.HistGradientBoostingRegressor
        return _encoded(kind(random_state=0))
    if method == "random-forest":
        kind = ensemble.RandomForestClassifier if classes else ensemble.RandomForestRegressor
        return _encoded(kind(random_state=0, n_jobs=1))
    if method == "linear":
        return _encoded(
            linear_model.LogisticRegression(max_iter=2000) if classes else linear_model.RidgeCV(np.logspace(-3, 4, 15))
        )
    assert method == "svm", method
    grid = {"C": [0.3, 1, 3, 10, 30, 100], "gamma": [0.003, 0.01, 0.03, 0.1, "scale"]}
    if not classes:
        from sklearn.compose import TransformedTargetRegressor
        from sklearn.preprocessing import StandardScaler

        search = model_selection.GridSearchCV(svm.SVR(), grid, cv=3)
        return _encoded(TransformedTargetRegressor(search, transformer=StandardScaler()))
    from sklearn.calibration import CalibratedClassifierCV

    return _encoded(CalibratedClassifierCV(model_selection.GridSearchCV(svm.SVC(), grid, cv=3), cv=5, ensemble=False))


def fit(
    table: Listed, X: pd.DataFrame, y: pd.Series, fitted: np.ndarray, test: np.ndarray, method: str
) -> dict[str, Any]:
    """Fit and score: R^2 and RMSE, or log loss and accuracy; and what intervals cover, for models that give them."""
    words = [name for name in X.columns if not pd.api.types.is_numeric_dtype(X[name]) and X[name].dtype != bool]
    if method in ("catboost", "lightgbm"):
        X = _categorised(X, words, missing=method == "catboost")
    target = y.to_numpy()
    if table.classes:
        target = (
            np.unique(target[fitted], return_inverse=True)[1],
            np.searchsorted(np.unique(target[fitted]), target[test]),
        )
    else:
        target = target[fitted].astype(float), target[test].astype(float)
    start = time.process_time()
    model = _model(method, table.classes, words, len(fitted)).fit(X.iloc[fitted], target[0])
    seconds = time.process_time() - start
    rows, truth = X.iloc[test], target[1]
    found: dict[str, Any] = {"seconds": round(seconds, 2)}
    if table.classes:
        p = np.clip(model.predict_proba(rows), 1e-7, 1)
        p = p / p.sum(1, keepdims=True)
        found |= {
            "loss": float(-np.log(p[np.arange(len(truth)), truth]).mean()),
            "score": float((p.argmax(1) == truth).mean()),
        }
        return found
    mean = np.ravel(model.predict(rows))
    error = float(np.mean((mean - truth) ** 2))
    found |= {"score": 1 - error / float(np.var(truth)), "loss": error**0.5}
    if method in ("ntkit", "ntkit-fast", "ntkit-best"):
        from scipy.stats import norm

        _, std = model.predict(rows, return_std=True)
        _, bounds = model.predict(rows, interval=_LEVEL)
        found["gaussian"] = float(np.mean(np.abs(mean - truth) <= norm.ppf((1 + _LEVEL) / 2) * std))
        found["conformal"] = float(np.mean((bounds[:, 0] <= truth) & (truth <= bounds[:, 1])))
    return found


def main() -> None:
    """Run what is asked for."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("methods", nargs="+")
    parser.add_argument("--half", choices=("development", "held-out"), required=True)
    parser.add_argument("--rows", type=int, default=1000)
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--only", nargs="*")
    asked = parser.parse_args()
    lines = asked.results.read_text().splitlines() if asked.results.exists() else []
    done = {tuple(json.loads(line)["key"]) for line in lines}
    warnings.simplefilter("ignore")
    for table in listed():
        if table.held_out != (asked.half == "held-out") or (asked.only and table.name not in asked.only):
            continue
        keys = [(table.name, m, asked.rows, f) for m in asked.methods for f in range(asked.folds)]
        if all(key in done for key in keys):
            continue
        X, y = read(table, asked.folder)
        for fold, (fitted, test) in enumerate(splits(table, y, asked.rows, asked.folds)):
            for method in asked.methods:
                key = (table.name, method, asked.rows, fold)
                if key in done:
                    continue
                found = fit(table, X, y, fitted, test, method)
                line = {"key": key, "classes": table.classes, "fitted": len(fitted), **found}
                with asked.results.open("a") as out:
                    out.write(json.dumps(line) + "\n")


if __name__ == "__main__":
    main()
