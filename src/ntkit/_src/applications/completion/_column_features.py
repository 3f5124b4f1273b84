"""The feature prior of matrix completion: a description of each column before any regression."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.exceptions import NotFittedError as _SklearnNotFittedError
from sklearn.utils.validation import check_is_fitted
from torch import Tensor

from ntkit._src.common import check_gram_memory, shown
from ntkit.errors import InputError, InputTypeError, NotFittedError

from ._entries import Entries, Offsets


def check_prior(prior: Any, columns: int) -> str:
    """Return the kind of a prior, "observed", "identity", "array" or "imputer", or raise an error."""
    if isinstance(prior, str):
        if prior in ("observed", "identity"):
            return prior
        raise InputError(
            f'prior must be "observed", "identity", an array of shape (columns, q) or a fitted imputer. Got {shown(prior)}.'
        )
    if callable(getattr(prior, "transform", None)):
        try:
            check_is_fitted(prior)
        except _SklearnNotFittedError as error:
            raise NotFittedError(f"prior must be a fitted imputer: write prior=imputer.fit(X). {error}") from None
        except TypeError as error:
            raise InputTypeError(f"prior must be a scikit-learn imputer. {error}") from None
        return "imputer"
    array = _as_array(prior)
    if array.ndim != 2 or array.shape[0] != columns or array.shape[1] == 0:
        raise InputError(
            f"prior must have one row of features for each of the {columns} columns, shape ({columns}, q). Got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise InputError("prior must be finite. Got NaN or infinite features.")
    return "array"


def column_features(
    prior: Any, entries: Entries, offsets: Offsets, matrix: Any, transposed: bool, refit: bool
) -> Tensor:
    """Return z, one row of features per column, shape (d, q), float64, for the entries before offsets are removed."""
    # An imputer takes the user's ``matrix``, of whose transpose the entries are if ``transposed``; ``refit`` fits a clone to
    # it.
    k, d = entries.shape
    kind = check_prior(prior, d)
    if kind == "identity":
        return torch.eye(d, dtype=torch.float64)
    if kind == "array":
        return torch.tensor(_as_array(prior), dtype=torch.float64)
    check_gram_memory(d, k, torch.float64, what="the features of the columns")
    if kind == "imputer":
        completed = _completed(prior, matrix, refit)
        features = (completed.T if transposed else completed) - offsets.table(entries)
    else:
        features = np.zeros((k, d))
        features[entries.rows, entries.columns] = offsets.remove(entries).values
    norms = np.linalg.norm(features, axis=0)  # a column of zeros stays zero
    return torch.from_numpy(np.ascontiguousarray((features / np.where(norms > 0, norms, 1)).T))


def _completed(imputer: Any, matrix: Any, refit: bool) -> NDArray[np.float64]:
    if refit:
        try:
            imputer = clone(imputer).fit(matrix)
        except TypeError as error:
            raise InputTypeError(
                'ridge="auto" holds entries out, so the imputer is fitted again without them, and it cannot be cloned: '
                f"{error} Pass a number as ridge."
            ) from error
    completed = np.asarray(imputer.transform(matrix), np.float64)
    if completed.shape != matrix.shape:
        raise InputError(
            f"the imputer must complete the whole matrix, shape {matrix.shape}. Got {completed.shape}: does it drop columns "
            "without entries? Write keep_empty_features=True."
        )
    if not np.isfinite(completed).all():
        raise InputError("the imputer must leave no gaps. Got NaN or infinite values in the matrix that it completed.")
    return completed


def _as_array(prior: Any) -> NDArray[np.float64]:
    try:
        return np.asarray(prior.detach().cpu() if isinstance(prior, Tensor) else prior, np.float64)
    except (TypeError, ValueError) as error:
        raise InputTypeError(
            'prior must be "observed", "identity", an array of shape (columns, q) or a fitted imputer. '
            f"Got {type(prior).__name__}."
        ) from error
