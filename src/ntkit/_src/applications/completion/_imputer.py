"""Matrix completion with a tangent kernel, with the interface of scikit-learn's imputers."""

from __future__ import annotations

import math
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import scipy.sparse
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.base import BaseEstimator, OneToOneFeatureMixin, TransformerMixin
from sklearn.utils import check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from ntkit._src.common import (
    check_choice,
    check_gram_memory,
    check_integer,
    check_pairs,
    check_ridge,
    restored_generator,
    shown,
)
from ntkit._src.kernels import Kernel, infinite_width
from ntkit.errors import InputError, InputTypeError, NtkitWarning

from ._column_features import check_prior, column_features
from ._entries import Entries, Offsets, fit_offsets, no_offsets, read_entries
from ._row_regression import entry_scale, fit_rows, held_out_errors

_RIDGES = tuple(float(ridge) for ridge in np.logspace(-4, 3, 15))
_FEW_ENTRIES, _RIDGE_OF_FEW = 20, 0.1
_HELD_OUT = 0.1
_HIDDEN_WIDTH = 16  # the limit does not depend on it


class NTKImputer(OneToOneFeatureMixin, TransformerMixin, BaseEstimator):
    r"""Complete a matrix by kernel regression with the tangent kernel of a network (Radhakrishnan et al. 2021).

    A network maps the features :math:`z_j` of column j to the k entries of that column. In the infinite-width limit the kernel
    between the entries (i, j) and (i', j') of the matrix is :math:`\kappa(z_j, z_{j'})\, 1\{i = i'\}` (Golikov et al. 2022, eq.
    100 and below): entries of different rows do not interact, and those of the same row interact by the similarity of
    their columns. So one Gram matrix of the d columns serves all rows and all problems with these columns, and every row is a
    small ridge regression on its own observed entries; rows with the same gaps share a factorisation.

    Parameters
    ----------
    kernel : Kernel, optional
        :math:`\kappa`, any kernel of ntkit, of inputs of shape (d, q). Default None: the NTK of a fully connected ReLU network.
    prior : {"observed", "identity"}, array of shape (d, q) or fitted imputer
        The features of columns. ``"observed"``: the column's own entries after removing offsets, zeros in the gaps, norm
        one. ``"identity"``: all columns are equally similar. An array is used unchanged. A fitted imputer's completed matrix
        supplies the columns, offsets removed, norm one: the joint method of Radhakrishnan et al. Default ``"observed"``.
    ridge : float, sequence of float or "auto"
        Relative to the mean of the kernel's diagonal over the observed entries at fit. ``"auto"``: the best of the half decades
        from 1e-4 to 1e3; a sequence: the best of it; both on a held-out tenth of the observed entries. With fewer than 20
        entries it is 0.1 (or the middle of the sequence). Default ``"auto"``.
    offsets : bool
        Whether to remove a mean, row effects and column effects first, by alternating ridge regressions whose strengths are
        estimated from the data. Default True.
    axis : {"rows", "columns"}
        What is regressed separately: ``"rows"`` compares columns; ``"columns"`` compares rows, and then ``transform`` only takes
        matrices with as many rows as at fit. Default ``"rows"``.
    hidden_layers : int
        Number of hidden layers of the default kernel's network. Default 1.
    missing_values : float
        The value of gaps. With 0, sparse matrices are accepted too, and entries that they do not store are missing. Default NaN.
    random_state : int, RandomState or None
        Seed of the choice of held-out entries. Default 0.

    Attributes
    ----------
    gram_ : ndarray of shape (d, d)
        The kernel of the columns.
    ridge_ : float
        The ridge in use.
    errors_ : dict
        The root mean square error of each candidate ridge on the held-out entries; empty if there were none.
    offsets_ : Offsets
        Mean and column effects, and the shrinkage of both kinds of effects: ``mean``, ``columns``, ``row_shrinkage``.
    scale_ : float
        The mean of the kernel's diagonal over the entries at fit, the unit of the ridge.
    amplitude_ : float
        The most likely factor of the kernel given the entries at fit; standard deviations use it.
    n_rows_, n_features_in_ : int
        The number of rows and of columns of X at fit.

    Notes
    -----
    Rows without entries get mean and column effects; columns without entries are predicted from their features, or by the row's
    offset if those are zero. Observed entries are unchanged. Fit learns columns, so ``transform`` completes new rows too.

    See Also
    --------
    ntkit.NTKRegressor : regression on your own inputs.

    Examples
    --------
    >>> import numpy as np
    >>> from ntkit.applications import NTKImputer
    >>> rng = np.random.default_rng(0)
    >>> full = rng.normal(size=(60, 3)) @ rng.normal(size=(3, 20))
    >>> gaps = np.where(rng.random(full.shape) < 0.3, np.nan, full)
    >>> completed = NTKImputer().fit_transform(gaps)
    >>> missing = np.isnan(gaps)
    >>> bool(np.sqrt(np.mean((completed - full)[missing] ** 2)) < 0.6 * full[missing].std())
    True
    """

    def __init__(
        self,
        kernel: Kernel | None = None,
        prior: Any = "observed",
        ridge: float | Sequence[float] | Literal["auto"] = "auto",
        offsets: bool = True,
        axis: Literal["rows", "columns"] = "rows",
        *,
        hidden_layers: int = 1,
        missing_values: float = np.nan,
        random_state: Any = 0,
    ) -> None:
        self.kernel = kernel
        self.prior = prior
        self.ridge = ridge
        self.offsets = offsets
        self.axis = axis
        self.hidden_layers = hidden_layers
        self.missing_values = missing_values
        self.random_state = random_state

    def fit(self, X: ArrayLike, y: object = None) -> NTKImputer:
        """Learn offsets, the kernel of columns and the ridge from a matrix with gaps, shape (k, d)."""
        matrix = self._validated(X, fitting=True)
        ridges = self._candidates()
        entries = self._entries(matrix)
        if not len(entries):
            raise InputError(f"X must have at least one observed entry. Got none in shape {matrix.shape}.")
        check_prior(self.prior, entries.shape[1])
        self.errors_: dict[float, float] = {}
        self.ridge_ = ridges[0] if len(ridges) == 1 else self._tuned(entries, matrix, ridges)
        self.offsets_ = self._offsets(entries)
        gram = self._gram(entries, self.offsets_, matrix, refit=False)
        self.scale_ = entry_scale(gram, entries)
        self.gram_: NDArray[np.float64] = gram.numpy()
        fit = fit_rows(gram, self.offsets_.remove(entries), self.ridge_ * self.scale_, values=False).fit
        self.amplitude_ = fit / len(entries)
        self.n_rows_ = matrix.shape[0]
        return self

    def transform(self, X: ArrayLike, return_std: bool = False) -> Any:
        """Complete a matrix with the same columns as at fit, shape (k, d).

        Parameters
        ----------
        X
            A matrix with gaps.
        return_std
            Whether to return the standard deviation of each imputed value too (zero for observed ones), under the Gaussian
            process with covariance ``amplitude_`` times K and noise ``ridge_``, not including that noise. Default False.
        """
        check_is_fitted(self)
        matrix = self._validated(X, fitting=False)
        if self.axis == "columns" and matrix.shape[0] != self.n_rows_:
            raise InputError(
                f'axis="columns" compares rows, so X must have the {self.n_rows_} rows of the fit. Got {matrix.shape[0]}.'
            )
        entries = self._entries(matrix)
        matrices = 4 if return_std else 2
        check_gram_memory(*entries.shape, torch.float64, matrices=matrices, what="the completed matrix")
        left = self.offsets_.remove(entries)
        found = fit_rows(torch.from_numpy(self.gram_), left, self.ridge_ * self.scale_, variances=return_std)
        assert found.values is not None
        completed = found.values + self.offsets_.table(entries)
        completed[entries.rows, entries.columns] = entries.values
        completed = np.ascontiguousarray(completed.T) if self.axis == "columns" else completed
        if found.variances is None:
            return completed
        deviation = np.sqrt(self.amplitude_ * found.variances)
        deviation[entries.rows, entries.columns] = 0.0
        return completed, np.ascontiguousarray(deviation.T) if self.axis == "columns" else deviation

    def _tuned(self, entries: Entries, matrix: Any, ridges: list[float]) -> float:
        """Choose the ridge on held-out entries; offsets, features and kernel come from the others."""
        if len(entries) < _FEW_ENTRIES:
            ridge = _RIDGE_OF_FEW if isinstance(self.ridge, str) else ridges[len(ridges) // 2]
            warnings.warn(
                f"X has {len(entries)} observed entries, too few to choose a ridge by: it is {ridge:g}.",
                NtkitWarning,
                stacklevel=3,
            )
            return ridge
        order = check_random_state(self.random_state).permutation(len(entries))
        out = np.zeros(len(entries), bool)
        out[order[: math.ceil(_HELD_OUT * len(entries))]] = True
        kept, held_out = entries.where(~out), entries.where(out)
        offsets = self._offsets(kept)
        own = kept.transposed if self.axis == "columns" else kept
        gram = self._gram(kept, offsets, own.matrix(self.missing_values, scipy.sparse.issparse(matrix)), refit=True)
        rows = offsets.of_rows(kept)
        left = held_out.values - offsets.mean - rows[held_out.rows] - offsets.columns[held_out.columns]
        scale = entry_scale(gram, kept)
        shifts = [ridge * scale for ridge in ridges]
        errors = np.sqrt(held_out_errors(gram, offsets.remove(kept), held_out.with_values(left), shifts))
        self.errors_ = dict(zip(ridges, map(float, errors), strict=True))
        return ridges[int(errors.argmin())]

    def _offsets(self, entries: Entries) -> Offsets:
        return fit_offsets(entries) if self.offsets else no_offsets(entries)

    def _gram(self, entries: Entries, offsets: Offsets, matrix: Any, refit: bool) -> Tensor:
        d = entries.shape[1]
        check_gram_memory(d, d, torch.float64, matrices=2, what="the kernel of the columns")
        features = column_features(self.prior, entries, offsets, matrix, self.axis == "columns", refit)
        kernel = self._kernel(features.shape[1])
        with torch.no_grad():
            gram = kernel(features)
        gram = check_pairs(gram, (d, d), "kernel(z)").detach().double().cpu()
        if not bool(torch.isfinite(gram).all()):
            raise InputError("the kernel of the columns is not finite. Scale the features of the prior.")
        return gram

    def _kernel(self, features: int) -> Kernel:
        if self.kernel is not None:
            if not isinstance(self.kernel, Kernel):
                raise InputTypeError(
                    f"kernel must be an ntkit Kernel or None. Got {type(self.kernel).__name__}: write "
                    "ntkit.infinite_width(module).ntk, for a module of the features of columns."
                )
            return self.kernel
        layers = self.hidden_layers
        check_integer("hidden_layers", layers, 0)
        parts: list[nn.Module] = []
        with restored_generator():  # fitting must not advance the user's generator
            for _ in range(layers):
                parts += [nn.Linear(features, _HIDDEN_WIDTH), nn.ReLU()]
                features = _HIDDEN_WIDTH
            module = nn.Sequential(*parts, nn.Linear(features, 1))
        return infinite_width(module).ntk

    def _candidates(self) -> list[float]:
        if isinstance(self.ridge, str):
            if self.ridge != "auto":
                raise InputError(f'ridge must be a number, a sequence of numbers or "auto". Got {shown(self.ridge)}.')
            return list(_RIDGES)
        given: Any = self.ridge
        if isinstance(given, Sequence | np.ndarray):
            if not len(given):
                raise InputError("ridge must have at least one candidate. Got an empty sequence.")
            return [check_ridge(ridge) for ridge in given]
        return [check_ridge(given)]

    def _validated(self, X: ArrayLike, fitting: bool) -> Any:
        check_choice("axis", self.axis, ("rows", "columns"))
        if scipy.sparse.issparse(X) and self.missing_values != 0:
            raise InputTypeError(
                f"entries not stored in a sparse X are missing: write missing_values=0. Got {shown(self.missing_values)}; "
                "or pass X.toarray()."
            )
        finite: bool | str = "allow-nan" if self._nan_is_missing() else True
        return validate_data(
            self, X, accept_sparse="csr", dtype=np.float64, ensure_all_finite=finite, reset=fitting
        )  # fmt: skip

    def _entries(self, matrix: Any) -> Entries:
        entries = read_entries(matrix, self.missing_values)
        return entries.transposed if self.axis == "columns" else entries

    def _nan_is_missing(self) -> bool:
        try:
            return math.isnan(self.missing_values)
        except TypeError:
            raise InputTypeError(f"missing_values must be a number or NaN. Got {shown(self.missing_values)}.") from None

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = self._nan_is_missing()
        tags.input_tags.sparse = self.missing_values == 0
        tags.transformer_tags.preserves_dtype = []
        return tags
