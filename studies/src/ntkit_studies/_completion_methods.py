"""Methods of matrix completion, ours and those of others, each with the interface of an imputer."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.exceptions import ConvergenceWarning
from sklearn.impute import KNNImputer
from sklearn.utils.extmath import randomized_svd

from ntkit.applications import NTKImputer
from ntkit.errors import MissingDependencyError

__all__ = ["METHODS", "complete"]


class OffsetsAlone(BaseEstimator):  # type: ignore[misc]
    """Mean, row effects and column effects."""

    def fit(self, X: NDArray[Any]) -> OffsetsAlone:
        """Learn them."""
        self.offsets_ = NTKImputer(prior="identity", ridge=1.0).fit(X).offsets_
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return their sum everywhere."""
        mean, columns = self.offsets_.mean, self.offsets_.columns
        rows = np.nansum(X - mean - columns, 1) / ((~np.isnan(X)).sum(1) + self.offsets_.row_shrinkage)
        return np.asarray(mean + rows[:, None] + columns)


class SoftImpute(BaseEstimator):  # type: ignore[misc]
    """Nuclear-norm completion after removing offsets (Mazumder et al. 2010), its strength chosen on a tenth of the entries.

    Singular values beyond the first 40 are not computed; at the strengths chosen none of them is left.
    """

    def __init__(self, rank: int = 40, steps: int = 30) -> None:
        self.rank = rank
        self.steps = steps

    def fit(self, X: NDArray[Any]) -> SoftImpute:
        """Choose the strength, then complete the matrix."""
        rows, columns = np.nonzero(~np.isnan(X))
        out = np.random.default_rng(0).permutation(len(rows))[: len(rows) // 10]
        kept = X.copy()
        kept[rows[out], columns[out]] = np.nan
        path = dict(self._path(kept))
        truth = X[rows[out], columns[out]]
        errors = {share: np.mean((found[rows[out], columns[out]] - truth) ** 2) for share, found in path.items()}
        self.share_ = float(min(errors, key=lambda share: errors[share]))
        self.completed_ = next(found for share, found in self._path(X) if share == self.share_)
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the completed matrix of the fit."""
        return np.asarray(self.completed_)

    def _path(self, X: NDArray[Any]) -> Iterator[tuple[float, NDArray[Any]]]:
        """Yield the completed matrix for falling strengths, each from where the one before ended."""
        table, known = OffsetsAlone().fit(X).transform(X), ~np.isnan(X)
        current = np.zeros(X.shape)
        left = np.where(known, X - table, 0.0)
        largest = float(np.linalg.norm(left, 2))
        rank = min(self.rank, *X.shape)
        for share in (0.9, 0.7, 0.5, 0.35, 0.25, 0.18, 0.12):
            for _ in range(self.steps):
                filled = np.where(known, left, current)
                u, s, v = randomized_svd(filled, rank, n_iter=2, random_state=0)
                before, current = current, (u * np.maximum(s - share * largest, 0)) @ v
                if float(np.linalg.norm(current - before)) <= 1e-3 * max(float(np.linalg.norm(current)), 1e-12):
                    break
            yield share, current + table


class SurpriseSVD(BaseEstimator):  # type: ignore[misc]
    """The matrix factorisation of scikit-surprise with its default settings."""

    def __init__(self, random_state: int = 0) -> None:
        self.random_state = random_state

    def fit(self, X: NDArray[Any]) -> SurpriseSVD:
        """Factorise."""
        surprise = _surprise()
        train = _trainset(surprise, X)
        model = surprise.SVD(random_state=self.random_state).fit(train)
        self.users_, self.items_ = _inner_order(train, X.shape)
        self.table_ = np.full(X.shape, train.global_mean)
        rows, columns = self.users_ >= 0, self.items_ >= 0
        user, item = self.users_[rows], self.items_[columns]
        self.table_[rows] += model.bu[user][:, None]
        self.table_[:, columns] += model.bi[item]
        self.table_[np.ix_(rows, columns)] += model.pu[user] @ model.qi[item].T
        return self

    def transform(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the completed matrix of the fit."""
        return np.asarray(self.table_)


class SurpriseKNNBaseline(BaseEstimator):  # type: ignore[misc]
    """Neighbours of items after baselines, scikit-surprise's, by Pearson correlations shrunk towards baselines."""

    def fit(self, X: NDArray[Any]) -> SurpriseKNNBaseline:
        """Find neighbours."""
        surprise = _surprise()
        options = {"name": "pearson_baseline", "user_based": False}
        self.model_ = surprise.KNNBaseline(sim_options=options, verbose=False).fit(_trainset(surprise, X))
        return self

    def predict(self, rows: NDArray[Any], columns: NDArray[Any]) -> NDArray[Any]:
        """Return single ratings."""
        pairs = zip(rows.tolist(), columns.tolist(), strict=True)
        return np.array([self.model_.predict(row, column).est for row, column in pairs])


def _surprise() -> Any:
    try:
        import surprise
    except ImportError as error:
        raise MissingDependencyError("this method is that of scikit-surprise: pip install scikit-surprise") from error
    return surprise


def _trainset(surprise: Any, X: NDArray[Any]) -> Any:
    import pandas

    rows, columns = np.nonzero(~np.isnan(X))
    values = X[rows, columns]
    frame = pandas.DataFrame({"user": rows, "item": columns, "rating": values})
    reader = surprise.Reader(rating_scale=(float(values.min()), float(values.max())))
    return surprise.Dataset.load_from_df(frame, reader).build_full_trainset()


def _inner_order(train: Any, shape: tuple[int, ...]) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the inner number of every row and column, -1 where it has no rating."""
    found = []
    for size, count, raw in ((shape[0], train.n_users, train.to_raw_uid), (shape[1], train.n_items, train.to_raw_iid)):
        order = np.full(size, -1)
        order[[raw(inner) for inner in range(count)]] = np.arange(count)
        found.append(order)
    return found[0], found[1]


def _iterative() -> Any:
    from sklearn.experimental import enable_iterative_imputer  # noqa: F401
    from sklearn.impute import IterativeImputer

    return IterativeImputer(n_nearest_features=20, max_iter=3, random_state=0, keep_empty_features=True)


METHODS: dict[str, Callable[[NDArray[Any]], Any]] = {
    "NTK, rows, prior observed": lambda X: NTKImputer(),
    "NTK, columns, prior observed": lambda X: NTKImputer(axis="columns"),
    "NTK, rows, prior identity": lambda X: NTKImputer(prior="identity"),
    "NTK, rows, prior SVD": lambda X: NTKImputer(prior=SurpriseSVD().fit(X)),
    "NTK, columns, prior SVD": lambda X: NTKImputer(prior=SurpriseSVD().fit(X), axis="columns"),
    "offsets alone": lambda X: OffsetsAlone(),
    "SVD (scikit-surprise)": lambda X: SurpriseSVD(),
    "KNNBaseline (scikit-surprise)": lambda X: SurpriseKNNBaseline(),
    "soft-impute": lambda X: SoftImpute(),
    "KNNImputer (scikit-learn)": lambda X: KNNImputer(n_neighbors=20, keep_empty_features=True),
    "IterativeImputer (scikit-learn)": lambda X: _iterative(),
}
"""By name, the imputer for a training matrix."""


def complete(name: str, X: NDArray[Any], rows: NDArray[Any], columns: NDArray[Any]) -> tuple[NDArray[Any], str]:
    """Return the predictions of one method for some places, shape (m,), and what it chose."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # the number of rounds is a setting of ours
        imputer = METHODS[name](X)
        if isinstance(imputer, SurpriseKNNBaseline):
            return imputer.fit(X).predict(rows, columns), ""
        completed = np.asarray(imputer.fit(X).transform(X))
    chosen = ""
    if isinstance(imputer, NTKImputer):
        chosen = f"ridge {imputer.ridge_:.3g}"
    elif isinstance(imputer, SoftImpute):
        chosen = f"strength {imputer.share_:g}"
    return completed[rows, columns], chosen
