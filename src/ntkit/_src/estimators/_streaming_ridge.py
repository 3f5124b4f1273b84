"""Ridge regression that reads its rows one block at a time."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.linalg
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, MultiOutputMixin, RegressorMixin
from sklearn.utils.validation import validate_data

from ntkit._src.common import check_ridge
from ntkit.errors import InputError, SingularKernelError

from ._inputs import check_fitted

__all__ = ["StreamingRidge"]


class StreamingRidge(MultiOutputMixin, RegressorMixin, BaseEstimator):
    r"""Exact ridge regression of any number of rows, with only one block of them in memory.

    .. math:: w = (Z^T Z + \rho I)^{-1} Z^T y, \qquad \rho = r\, \tfrac{1}{n} \operatorname{tr} Z Z^T,

    accumulated in float64 by ``partial_fit`` and solved on first use. After :class:`NTKFeatures`, Z Z^T approximates the Gram
    matrix, and r has the meaning of ``ridge`` in :class:`NTKRegressor`. As there, there is no intercept.

    Parameters
    ----------
    ridge : float, default 1e-6
        r.

    Attributes
    ----------
    coef_ : ndarray of shape (m,) or (m, k)
        w.
    n_rows_ : int
        Rows seen so far.

    Examples
    --------
    >>> import numpy as np, ntkit
    >>> random = np.random.default_rng(0)
    >>> Z = random.normal(size=(1000, 5))
    >>> y = Z @ np.arange(5.0)
    >>> model = ntkit.StreamingRidge(1e-12)
    >>> for part in range(0, 1000, 100):
    ...     model = model.partial_fit(Z[part : part + 100], y[part : part + 100])
    >>> np.allclose(model.coef_, np.arange(5.0))
    True
    """

    def __init__(self, ridge: float = 1e-6) -> None:
        self.ridge = ridge

    def fit(self, X: ArrayLike, y: ArrayLike) -> StreamingRidge:
        """Forget earlier rows and add these, shape (n, m), with targets of shape (n,) or (n, k)."""
        return self._add(X, y, first=True)

    def partial_fit(self, X: ArrayLike, y: ArrayLike) -> StreamingRidge:
        """Add rows, shape (n, m), with targets of shape (n,) or (n, k)."""
        return self._add(X, y, first=not hasattr(self, "n_rows_"))

    def _add(self, X: ArrayLike, y: ArrayLike, first: bool) -> StreamingRidge:
        check_ridge(self.ridge)
        rows, targets = validate_data(self, X, y, reset=first, dtype=np.float64, multi_output=True, y_numeric=True)
        shape = np.shape(targets)[1:]
        if first:
            self._sums = _Sums(rows.shape[1], shape)
            self.n_rows_ = 0
        if shape != self._sums.shape:
            raise InputError(
                f"y must have the shape (n, {self._sums.shape}) of the rows before. Got {np.shape(targets)}."
            )
        self._sums.add(rows, np.asarray(targets, np.float64))
        self.n_rows_ += len(rows)
        return self

    @property
    def coef_(self) -> NDArray[Any]:
        """The weights, shape (m,) or (m, k)."""
        check_fitted(self)
        return self._sums.solution(self.ridge)

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return Z w, shape (n,) or (n, k)."""
        check_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=np.float64)
        result: NDArray[Any] = rows @ self.coef_
        return result


class _Sums:
    """Z^T Z and Z^T y of the rows so far, and the solution once it has been computed."""

    def __init__(self, features: int, shape: tuple[int, ...]) -> None:
        self.normal = np.zeros((features, features))
        self.moment = np.zeros((features, int(np.prod(shape))))
        self.shape, self.rows = shape, 0
        self._solved: tuple[float, NDArray[Any]] | None = None

    def add(self, rows: NDArray[Any], targets: NDArray[Any]) -> None:
        """Add rows of shape (n, m) with targets of shape (n, ...)."""
        self.normal += rows.T @ rows
        self.moment += rows.T @ targets.reshape(len(rows), -1)
        self.rows += len(rows)
        self._solved = None

    def solution(self, ridge: float) -> NDArray[Any]:
        """Return w."""
        if self._solved is None or self._solved[0] != ridge:
            shift = ridge * np.trace(self.normal) / self.rows
            matrix = self.normal + shift * np.eye(len(self.normal))
            try:
                factor = scipy.linalg.cho_factor(matrix)
            except scipy.linalg.LinAlgError as error:
                raise SingularKernelError(
                    f"the features are linearly dependent ({len(matrix)} of them, {self.rows} rows) with ridge={ridge:.1e}: "
                    "pass a larger one, such as 1e-8."
                ) from error
            self._solved = ridge, scipy.linalg.cho_solve(factor, self.moment).reshape(-1, *self.shape)
        return self._solved[1]
