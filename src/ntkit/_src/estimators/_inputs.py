"""Parameters and data as scikit-learn's users pass them: dtypes, devices, arrays, images, sparse matrices, files, labels."""

from __future__ import annotations

import math
import tempfile
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import scipy.sparse
import torch
from numpy.typing import NDArray
from sklearn.exceptions import NotFittedError as _SklearnNotFittedError
from sklearn.utils import check_array, check_consistent_length
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from ntkit._src.common import (
    bytes_text,
    check_gram_memory,
    check_input_shape,
    check_integer,
    check_number,
    check_tensor,
    fold_rows,
    shown,
)
from ntkit._src.gram import GramOperator, free_disk, scratch_folder
from ntkit.errors import InputError, InputTypeError, NotFittedError, StoreError

_DTYPES = {"float32": torch.float32, "float64": torch.float64}
_BLOCK_ROWS = 65_536


def read_dtype(dtype: str | torch.dtype) -> torch.dtype:
    """Return the torch dtype, or raise an error that lists the options."""
    if isinstance(dtype, torch.dtype) and dtype in _DTYPES.values():
        return dtype
    if isinstance(dtype, str) and dtype in _DTYPES:
        return _DTYPES[dtype]
    raise InputError(f"dtype must be 'float32' or 'float64'. Got {dtype!r}.")


def numpy_dtype(dtype: str | torch.dtype) -> type[np.floating[Any]]:
    """Return the NumPy dtype in which input is read."""
    return np.float32 if read_dtype(dtype) == torch.float32 else np.float64


def read_device(device: str | torch.device | None) -> torch.device:
    """Return a device that this machine has; None is the CPU."""
    if device is None:
        return torch.device("cpu")
    try:
        found = torch.device(device)
        torch.empty(0, device=found)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(
            f"device must be one that torch can use here, such as 'cpu', or None for it. Got {device!r}: "
            f"{str(error).splitlines()[0]}"
        ) from error
    if found.type == "meta":
        raise InputError("device must hold values. Got 'meta': pass 'cpu', or None for it.")
    return found


def has_candidates(value: object) -> bool:
    """Return whether a parameter leaves a choice: "auto", or a sequence of numbers."""
    return isinstance(value, str) or np.ndim(value) > 0  # type: ignore[arg-type]


def listed_numbers(
    name: str,
    given: Any,
    automatic: Sequence[Any] = (),
    *,
    positive: bool = False,
    whole: bool = False,
    infinite: bool = False,
) -> list[Any]:
    """Return the candidates of a parameter, "auto", a number or a sequence of numbers, as a list."""
    if isinstance(given, str):
        if given == "auto":
            return list(automatic)
        raise InputTypeError(
            f"{name} must be a number, or candidates: 'auto' or a sequence of numbers. Got {shown(given)}."
        )
    values = given.tolist() if isinstance(given, (np.ndarray, Tensor)) else given
    values = list(values) if isinstance(values, Sequence) else [values]
    if not values:
        raise InputError(f"{name} must have at least one number to choose from. Got an empty sequence.")
    if whole:
        return [check_integer(name, value, 0) for value in values]
    least = -math.inf if positive else 0
    return [
        value if infinite and value == math.inf else check_number(name, value, least, positive=positive)
        for value in values
    ]


def store(estimator: Any, given: Mapping[str, Any]) -> None:
    """Set the parameters of an estimator to what its constructor was given."""
    for name in estimator._get_param_names():
        setattr(estimator, name, given[name])


def check_fitted(estimator: Any) -> None:
    """Raise an error that both libraries know if the estimator is not fitted."""
    try:
        check_is_fitted(estimator)
    except _SklearnNotFittedError as error:
        raise NotFittedError(str(error)) from None


def read_features(estimator: Any, X: Any, y: Any = None, *, fitting: bool, copy: bool = False) -> Any:
    """Return X as rows of features, shape (n, features), in the estimator's dtype; when fitting, X and y.

    Images, shape (n, channels, height, width), are flattened, their shape stored in ``input_shape_``. Sparse matrices become
    dense: a network's kernel cannot exploit their zeros. A stored Gram matrix stays if a solver reads it in parts.
    """
    dtype = numpy_dtype(estimator.dtype)
    if isinstance(X, Tensor):
        check_tensor("X", X)
        X = X.detach().cpu().numpy()
    if fitting:
        estimator.input_shape_ = check_input_shape(estimator.input_shape)
    if isinstance(X, GramOperator) and fitting and not estimator._factorises:
        targets = check_array(y, ensure_2d=False, dtype=None, input_name="y")
        check_consistent_length(X, targets)
        estimator.n_features_in_ = X.shape[1]
        return X, targets
    X = _spooled(estimator, X, dtype)
    if len(getattr(X, "shape", ())) > 2:
        X = _flattened(estimator, np.asarray(X), fitting)
    tags = estimator.__sklearn_tags__()
    options: dict[str, Any] = {"accept_sparse": "csr" if tags.input_tags.sparse else False, "copy": copy}
    if not fitting:
        return _dense(validate_data(estimator, X, dtype=dtype, reset=False, **options))
    if tags.estimator_type == "regressor":
        options |= {"multi_output": True, "y_numeric": True}
    rows, targets = validate_data(estimator, X, y, dtype=dtype, **options)
    return _dense(rows), targets


def _flattened(estimator: Any, images: NDArray[Any], fitting: bool) -> NDArray[Any]:
    if isinstance(estimator.kernel, str) and estimator.kernel == "precomputed":
        raise InputError(
            f"kernel='precomputed' needs the Gram matrix, an array of two dimensions. Got shape {images.shape}."
        )
    given, own = estimator.input_shape_, images.shape[1:]
    if given is not None and given != own:
        source = "input_shape" if fitting else "the inputs at fit"
        raise InputError(f"X must have the shape of {source}, (n, {', '.join(map(str, given))}). Got {images.shape}.")
    if fitting:
        estimator.input_shape_ = own
    return images.reshape(len(images), -1)


def _dense(rows: Any) -> NDArray[Any]:
    if not scipy.sparse.issparse(rows):
        return np.asarray(rows)
    kind = torch.float32 if rows.dtype == np.float32 else torch.float64
    check_gram_memory(rows.shape[0], rows.shape[1], kind, what="the dense form of X")
    return np.asarray(rows.toarray())


def _spooled(estimator: Any, X: Any, dtype: type[np.floating[Any]]) -> Any:
    """Return rows of a Zarr or Dask array, or blocks of shape (m, features), as a file mapped until the estimator is deleted."""
    if type(X).__module__.partition(".")[0] in ("zarr", "dask") and not hasattr(X, "iloc"):
        blocks: Iterable[Any] = (X[start : start + _BLOCK_ROWS] for start in range(0, X.shape[0], _BLOCK_ROWS))
    elif hasattr(X, "__next__"):
        blocks = X
    else:
        return X
    folder = scratch_folder(estimator, Path(tempfile.gettempdir()))
    rows, width, file = 0, 0, folder / "rows"
    with open(file, "wb") as out:
        for block in blocks:
            part = np.ascontiguousarray(block, dtype=dtype)
            if part.ndim != 2 or (width and part.shape[1] != width):
                raise InputTypeError(f"blocks of X must have shape (m, {width or 'features'}). Got {part.shape}.")
            if part.nbytes > free_disk(folder):
                raise StoreError(
                    f"X does not fit on the disk of {folder}: {bytes_text(out.tell())} are written. Set TMPDIR to a larger one."
                )
            out.write(part.data)
            rows, width = rows + len(part), part.shape[1]
    if not rows:
        raise InputError("X has no blocks of rows: Found array with 0 sample(s), at least one is needed.")
    return np.memmap(file, dtype, mode="r", shape=(rows, width))


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


def as_tensor(array: NDArray[Any], dtype: torch.dtype, device: torch.device, shared: bool = False) -> Tensor:
    """Return an array as a tensor, copied for negative strides and read-only memory; a ``shared`` one, only read, never."""
    if shared:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # about read-only arrays
            return torch.from_numpy(array).to(device=device)
    return torch.from_numpy(np.require(array, requirements=["C", "W"])).to(device=device, dtype=dtype)


def as_batch(estimator: Any, rows: NDArray[Any], device: torch.device, shared: bool = False) -> Tensor:
    """Return rows of features as a batch for the kernel, shape (n, *input_shape_)."""
    return fold_rows(as_tensor(rows, read_dtype(estimator.dtype), device, shared), estimator.input_shape_)
