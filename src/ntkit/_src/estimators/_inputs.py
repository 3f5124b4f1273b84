"""Conversion of X to rows of features: arrays, images, sparse matrices, data frames."""

from __future__ import annotations

from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array
from sklearn.utils.validation import validate_data
from torch import Tensor

from ntkit._src.common import check_gram_memory, check_input_shape, check_tensor, fold_rows
from ntkit.errors import InputError

from ._large import spooled
from ._settings import numpy_dtype, read_dtype

__all__ = ["as_batch", "as_tensor", "read_features", "read_labels"]


_NO_TARGETS: Any = object()


def read_features(estimator: Any, X: Any, *, fitting: bool, copy: bool = False, y: Any = _NO_TARGETS) -> Any:
    """Return X as rows of features, shape (n, features), in the estimator's dtype; with ``y`` both, as scikit-learn reads them.

    Images, shape (n, channels, height, width), are flattened, and their shape is stored in ``input_shape_``. Sparse
    matrices become dense: the kernel of a network cannot exploit their zeros.
    """
    if isinstance(X, Tensor):
        check_tensor("X", X)
        X = X.detach().cpu().numpy()
    X = spooled(estimator, X, numpy_dtype(estimator.dtype))
    shape = getattr(X, "shape", None)
    images = shape is not None and len(shape) > 2
    if images:
        X = _flattened(estimator, np.asarray(X), fitting)
    elif fitting:
        estimator.input_shape_ = check_input_shape(estimator.input_shape)
    dtype = numpy_dtype(estimator.dtype)
    sparse = "csr" if estimator.__sklearn_tags__().input_tags.sparse else False
    options: dict[str, Any] = {"dtype": dtype, "accept_sparse": sparse, "reset": fitting}
    if y is _NO_TARGETS:
        rows = validate_data(estimator, X, **options, copy=copy)
        return _dense(rows, dtype)
    rows, targets = validate_data(estimator, X, y, **options, copy=copy, **_target_options(estimator))
    return _dense(rows, dtype), targets


def _target_options(estimator: Any) -> dict[str, Any]:
    regression = estimator.__sklearn_tags__().estimator_type == "regressor"
    return {"multi_output": True, "y_numeric": True} if regression else {}


def _flattened(estimator: Any, images: NDArray[Any], fitting: bool) -> NDArray[Any]:
    if isinstance(estimator.kernel, str) and estimator.kernel == "precomputed":
        raise InputError(
            f"kernel='precomputed' needs the Gram matrix, an array of two dimensions. Got shape {images.shape}."
        )
    given = check_input_shape(estimator.input_shape) if fitting else estimator.input_shape_
    own = images.shape[1:]
    if given is not None and given != own:
        source = "input_shape" if fitting else "the inputs at fit"
        raise InputError(f"X must have the shape of {source}, (n, {', '.join(map(str, given))}). Got {images.shape}.")
    if fitting:
        estimator.input_shape_ = own
    return images.reshape(len(images), -1)


def _dense(rows: Any, dtype: Any) -> NDArray[Any]:
    if not scipy.sparse.issparse(rows):
        return np.asarray(rows)
    kind = torch.float32 if dtype == np.float32 else torch.float64
    check_gram_memory(rows.shape[0], rows.shape[1], kind, what="the dense form of X")
    return np.asarray(rows.toarray())


def read_labels(y: Any) -> NDArray[Any]:
    """Return class labels as an array that can be sorted, or raise an error that says why they cannot."""
    labels = check_array(y, ensure_2d=False, dtype=None, input_name="y", ensure_all_finite=False, ensure_min_samples=0)
    if labels.dtype == object:
        kinds = sorted({type(label).__name__ for label in labels.ravel()})
        if len(kinds) > 1:
            raise InputError(
                f"y must hold labels of one type. Got {', '.join(kinds)} together: write y.astype(str), or remove missing labels."
            )
    return np.asarray(labels)


def as_tensor(array: NDArray[Any], dtype: torch.dtype, device: torch.device) -> Tensor:
    """Return an array as a tensor, copied only if torch needs it: for negative strides and read-only memory."""
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device=device, dtype=dtype)


def as_batch(estimator: Any, rows: NDArray[Any], device: torch.device) -> Tensor:
    """Return rows of features as a batch for the kernel, shape (n, *input_shape_)."""
    return fold_rows(as_tensor(rows, read_dtype(estimator.dtype), device), estimator.input_shape_)
