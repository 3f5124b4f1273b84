"""Random features of a network's tangent kernel, and the ridge regression on them, one block of rows at a time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import scipy.linalg
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import (
    BaseEstimator,
    ClassNamePrefixFeaturesOutMixin,
    MultiOutputMixin,
    RegressorMixin,
    TransformerMixin,
)
from sklearn.utils.validation import validate_data
from torch import nn

from ntkit._src.common import check_choice, check_input_shape, check_ridge, fold_rows
from ntkit._src.kernels import empirical, infinite_width
from ntkit._src.kernels._random_features import JacobianFeatures, SketchedFeatures
from ntkit.errors import InputError, SingularKernelError

from ._inputs import as_tensor, check_fitted, numpy_dtype, read_dtype, store
from ._training_data import build_module, kernel_of

_BLOCK_ROWS = 4096


class NTKFeatures(ClassNamePrefixFeaturesOutMixin, TransformerMixin, BaseEstimator):
    r"""Map rows to random features z(x) whose products z(x) . z(x') approximate the tangent kernel, in linear time.

    A linear model on them approximates kernel regression at a cost of n m^2 instead of n^3, and one with ``partial_fit`` never
    holds more than one block of rows; :class:`StreamingRidge` is such an exact ridge regression.

    Parameters
    ----------
    module : torch.nn.Module, optional
        The network. None (default) is a ReLU network of three hidden layers.
    n_components : int, default 1000
        m, the number of features. Entries of the kernel have an error of order :math:`1/\sqrt{m}`.
    kernel : {"ntk", "nngp"}, default "ntk"
        Which kernel of the module.
    method : {"sketch", "jacobian"}, default "sketch"
        ``"sketch"``: features of the infinitely wide network, layer by layer: random neurons for activations (arc-cosine
        features for a ReLU), sketches of tensor products for the tangent kernel (Zandieh et al. 2021, Han et al. 2022); for fully
        connected, convolutional, pooled and residual networks. ``"jacobian"``: random projections of the derivatives
        of the module with its present parameters, whatever its layers, by one forward pass per feature.
    input_shape : tuple of int, optional
        The shape of one input of the module, such as ``(3, 32, 32)``: images are flattened, one per row of X.
    w_std, b_std : float, optional
        The gains of every weight and bias, as in :func:`ntkit.infinite_width`. Unused for ``"jacobian"``. Default None: the
        module's own, or else sqrt(2) and 0.
    dtype : {"float32", "float64"}, default "float32"
        The dtype in which features are computed.
    random_state : int, default 0
        Seed of the draws. The same seed gives the same features on any part of the data.

    Attributes
    ----------
    features_ : SketchedFeatures or JacobianFeatures
        The map.
    n_features_in_ : int
        The number of columns of X at fit.

    Examples
    --------
    >>> import ntkit
    >>> from sklearn.datasets import make_friedman1
    >>> from sklearn.linear_model import Ridge
    >>> from sklearn.pipeline import make_pipeline
    >>> X, y = make_friedman1(600, random_state=0)
    >>> model = make_pipeline(ntkit.NTKFeatures(n_components=400, b_std=0.3), Ridge(1.0)).fit(X[:400], y[:400])
    >>> bool(model.score(X[400:], y[400:]) > 0.7)
    True
    """

    n_components: int

    def __init__(
        self,
        module: nn.Module | None = None,
        n_components: int = 1000,
        *,
        kernel: str = "ntk",
        method: str = "sketch",
        input_shape: Sequence[int] | None = None,
        w_std: float | None = None,
        b_std: float | None = None,
        dtype: str | torch.dtype = "float32",
        random_state: int = 0,
    ) -> None:
        store(self, locals())

    def fit(self, X: ArrayLike, y: object = None) -> NTKFeatures:
        """Draw the map for rows like those of X, shape (n, n_features); their values do not matter."""
        rows = validate_data(self, X, dtype=numpy_dtype(self.dtype))
        check_choice("kernel", self.kernel, ("ntk", "nngp"))
        check_choice("method", self.method, ("sketch", "jacobian"))
        module = build_module(self.module, self.input_shape, rows.shape[1])
        if self.method == "jacobian":
            if self.kernel != "ntk":
                raise InputError("method='jacobian' has only features of the tangent kernel: write kernel='ntk'.")
            found = module.to(read_dtype(self.dtype)) if self.module is None else module
            self.features_: JacobianFeatures | SketchedFeatures = JacobianFeatures(
                empirical(found), self.n_components, self.random_state
            )
        else:
            kernel = kernel_of(infinite_width(module, w_std=self.w_std, b_std=self.b_std), self.kernel)
            shape = self._batch(rows[:1]).shape[1:]
            self.features_ = SketchedFeatures(kernel, self.n_components, shape, self.random_state)
        return self

    def transform(self, X: ArrayLike) -> NDArray[Any]:
        """Return the features, shape (n, n_components), computed in blocks of rows."""
        check_fitted(self)
        rows = validate_data(self, X, reset=False, dtype=numpy_dtype(self.dtype))
        out = np.empty((len(rows), self.n_components), numpy_dtype(self.dtype))
        for start in range(0, len(rows), _BLOCK_ROWS):
            part = slice(start, start + _BLOCK_ROWS)
            out[part] = self.features_(self._batch(rows[part])).numpy()
        return out

    def _batch(self, rows: NDArray[Any]) -> torch.Tensor:
        return fold_rows(
            as_tensor(rows, read_dtype(self.dtype), torch.device("cpu")), check_input_shape(self.input_shape)
        )

    @property
    def _n_features_out(self) -> int:
        return self.n_components

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.transformer_tags.preserves_dtype = []
        return tags


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
            self._shape, self.n_rows_ = shape, 0
            self._normal = np.zeros((rows.shape[1], rows.shape[1]))
            self._moment = np.zeros((rows.shape[1], int(np.prod(shape))))
        if shape != self._shape:
            raise InputError(f"y must have the shape (n, {self._shape}) of the rows before. Got {np.shape(targets)}.")
        self._normal += rows.T @ rows
        self._moment += rows.T @ np.asarray(targets, np.float64).reshape(len(rows), -1)
        self.n_rows_ += len(rows)
        # In a container, so that solving on first use does not change the estimator's own attributes.
        self._solved: dict[float, NDArray[Any]] = {}
        return self

    @property
    def coef_(self) -> NDArray[Any]:
        """The weights, shape (m,) or (m, k)."""
        check_fitted(self)
        if self.ridge not in self._solved:
            shift = self.ridge * np.trace(self._normal) / self.n_rows_
            try:
                factor = scipy.linalg.cho_factor(self._normal + shift * np.eye(len(self._normal)))
            except scipy.linalg.LinAlgError as error:
                raise SingularKernelError(
                    f"the features are linearly dependent ({len(self._normal)} of them, {self.n_rows_} rows) with "
                    f"ridge={self.ridge:.1e}: pass a larger one, such as 1e-8."
                ) from error
            self._solved[self.ridge] = scipy.linalg.cho_solve(factor, self._moment).reshape(-1, *self._shape)
        return self._solved[self.ridge]

    def predict(self, X: ArrayLike) -> NDArray[Any]:
        """Return Z w, shape (n,) or (n, k)."""
        check_fitted(self)
        result: NDArray[Any] = validate_data(self, X, reset=False, dtype=np.float64) @ self.coef_
        return result
