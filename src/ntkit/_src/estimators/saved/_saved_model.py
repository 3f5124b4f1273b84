"""Saving and loading fitted estimators: one uncompressed zip file of JSON and .npy arrays, no pickle."""

from __future__ import annotations

import io
import json
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator
from sklearn.pipeline import Pipeline
from torch import Tensor, nn

from ntkit._src.features.rfm import MetricSum
from ntkit._src.gram import write_atomically
from ntkit._src.kernels import InfiniteWidthKernel
from ntkit.errors import InputError, NotFittedError, NtkitError

from .._base import KernelEstimator
from .._inputs import as_batch, check_fitted, read_device
from ._tree import OF_THE_KERNEL, Decoder, Encoder

_FORMAT = 1
_PACKAGES = ("ntkit", "scikit-learn")
_CONTENT = "model.json"
_PROBES = 4


@dataclass(frozen=True)
class SavedModel:
    """The content of a model file: the fitted estimator, and the notes stored with it."""

    estimator: BaseEstimator
    notes: Mapping[str, Any]


def save_model(estimator: BaseEstimator, path: str | Path, *, notes: Mapping[str, Any] | None = None) -> None:
    """Write a fitted estimator to a file, atomically.

    The file holds JSON and arrays in an uncompressed zip archive; loading it executes nothing. The network is stored as the
    list of its layers if it is a ``Sequential`` of layers of ``torch.nn``. Any other network is left out and must be passed
    to :func:`load_model`. The record of the tuning (``tuning_``) is left out too.

    Parameters
    ----------
    estimator : NTKClassifier, NTKRegressor, or a pipeline of :func:`ntkit.tabular_pipeline` with one of them
        The fitted estimator.
    path : str or Path
        The file; an existing one is replaced.
    notes : mapping, optional
        JSON values to store with it, such as the name of the target. Default None: nothing.

    Raises
    ------
    NotFittedError
        If the estimator is not fitted.
    InputError
        If it holds something that a file cannot, such as your own kernel.
    OSError
        If the file cannot be written. Nothing is left behind.

    See Also
    --------
    load_model : the reverse.

    Examples
    --------
    >>> import tempfile, ntkit
    >>> from sklearn.datasets import load_iris
    >>> X, y = load_iris(return_X_y=True)
    >>> model = ntkit.NTKClassifier(tune="loo").fit(X, y)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     ntkit.save_model(model, f"{folder}/iris.ntkit")
    ...     again = ntkit.load_model(f"{folder}/iris.ntkit")
    >>> bool(abs(again.predict_proba(X) - model.predict_proba(X)).max() < 1e-9)
    True
    """
    last = _last_step(estimator)
    if not isinstance(last, KernelEstimator):
        raise InputError(
            f"estimator must be an NTKClassifier or NTKRegressor, alone or last. Got {type(last).__name__}."
        )
    try:
        check_fitted(last)
    except NotFittedError as error:
        raise NotFittedError(f"only a fitted estimator can be saved: {error}") from None
    encode = Encoder(_probe_rows(last))
    tree, versions = encode(estimator), {name: version(name) for name in _PACKAGES}
    encode.arrays["probe"] = _probe(last)
    content = {"format": _FORMAT, "versions": versions, "notes": dict(notes or {}), "model": tree}
    content["arrays"] = list(encode.arrays)
    archive = io.BytesIO()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_STORED) as file:
        _write(file, _CONTENT, json.dumps(content, allow_nan=False).encode())
        for name, array in encode.arrays.items():
            part = io.BytesIO()
            np.lib.format.write_array(part, array, allow_pickle=False)
            _write(file, f"{name}.npy", part.getvalue())
    write_atomically(Path(path), archive.getvalue())


def load_model(path: str | Path, *, module: nn.Module | None = None) -> BaseEstimator:
    """Read a fitted estimator from a file written by :func:`save_model`; nothing in the file is executed.

    Parameters
    ----------
    path : str or Path
        The file.
    module : nn.Module, optional
        The network, for a file that does not hold it. Its kernel must be that of the model: a few of its values are
        compared. Default None: the network in the file.

    Raises
    ------
    InputError
        If there is no such file; if it is damaged, incomplete or of another version of ntkit or scikit-learn; or if the network
        is missing or a different one.

    See Also
    --------
    save_model : writes such files.
    """
    return read_model(path, module=module).estimator


def read_model(path: str | Path, *, module: nn.Module | None = None) -> SavedModel:
    """Read a model file with the notes stored in it; parameters and errors as in :func:`load_model`."""
    content, arrays = _read(Path(path))
    try:
        estimator = Decoder(arrays, module)(content["model"])
        last = _last_step(estimator)
        if not isinstance(last, KernelEstimator):
            raise ValueError("it holds no estimator")
        if last.module is OF_THE_KERNEL and isinstance(last.kernel_, InfiniteWidthKernel):
            last.module = last.kernel_.limit.module
        found, expected = _probe(last), arrays["probe"]
        notes = content["notes"]
        if not isinstance(notes, dict):
            raise ValueError("its notes are no mapping")
    except NtkitError:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, IndexError, RuntimeError) as error:
        raise InputError(f"{path} is not a model that this version can read: {error!r}. Fit it again.") from error
    tolerance = 1e-4 if str(last.dtype).endswith("float32") else 1e-9
    if found.shape != expected.shape or not np.allclose(found, expected, rtol=tolerance, atol=0.0):
        raise InputError(
            f"the network's kernel is not the one that {path} was fitted with. Pass the same network, with the same layers "
            "and the same frozen parameters."
        )
    return SavedModel(estimator, notes)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, NDArray[Any]]]:
    try:
        with zipfile.ZipFile(path) as file:
            content: dict[str, Any] = json.loads(_bytes(file, _CONTENT))
            _check_versions(path, content)
            names = [str(name) for name in content["arrays"]]
            missing = sorted(set(names) - {Path(entry).stem for entry in file.namelist()})
            if missing:
                raise InputError(
                    f"{path} lacks the array{'s' * (len(missing) > 1)} {', '.join(missing)}. Fit it again."
                )
            return content, {name: _array(_bytes(file, f"{name}.npy")) for name in names}
    except FileNotFoundError as error:
        raise InputError(f"there is no model file {path}. ntkit.save_model, or ntkit fit, writes one.") from error
    except InputError:
        raise
    except (OSError, zipfile.BadZipFile, ValueError, KeyError, TypeError, EOFError, RuntimeError) as error:
        raise InputError(f"{path} is not a model file of ntkit, or it is damaged: {error}") from error


def _check_versions(path: Path, content: Mapping[str, Any]) -> None:
    if content["format"] != _FORMAT:
        raise InputError(
            f"{path} has format {content['format']}, and this ntkit reads format {_FORMAT}. Fit the model again, or use ntkit "
            f"{content.get('versions', {}).get('ntkit', 'of another version')}."
        )
    for name in _PACKAGES:
        there, here = str(content["versions"][name]), version(name)
        # Another minor version may store the state of an estimator under other names.
        if there.split(".")[:2] != here.split(".")[:2]:
            raise InputError(
                f"{path} was saved with {name} {there}, and {here} is installed. Fit it again, or install {there}."
            )


def _bytes(file: zipfile.ZipFile, name: str) -> bytes:
    entry = file.getinfo(name)
    if entry.compress_type != zipfile.ZIP_STORED:  # a compressed entry may be far larger than its file
        raise ValueError(f"{name} is compressed")
    return file.read(entry)


def _array(content: bytes) -> NDArray[Any]:
    stream = io.BytesIO(content)
    if np.lib.format.read_magic(stream) != (1, 0):
        raise ValueError("an array of an unknown version")
    shape, fortran, dtype = np.lib.format.read_array_header_1_0(stream)
    if dtype.hasobject or fortran:
        raise ValueError("an array of objects")
    return np.frombuffer(content, dtype, offset=stream.tell()).reshape(shape)


def _write(file: zipfile.ZipFile, name: str, content: bytes) -> None:
    # A fixed date, so that the same model gives the same bytes.
    file.writestr(zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0)), content)


def _last_step(estimator: Any) -> Any:
    return estimator.steps[-1][1] if isinstance(estimator, Pipeline) else estimator


def _probe_rows(model: KernelEstimator) -> Tensor | None:
    """Return the first training rows in the form that the kernel takes; None for a precomputed kernel."""
    if not isinstance(model.kernel_, (InfiniteWidthKernel, MetricSum)) or model.X_fit_ is None:
        return None
    rows = as_batch(model, np.asarray(model.X_fit_[:_PROBES]), read_device(model.device))
    return rows.flatten(1) if isinstance(model.kernel_, MetricSum) else rows


def _probe(model: KernelEstimator) -> NDArray[np.float64]:
    """Return K of the first training rows, which identifies the kernel; nothing for a precomputed one."""
    rows, kernel = _probe_rows(model), model.kernel_
    if rows is None or not isinstance(kernel, (InfiniteWidthKernel, MetricSum)):
        return np.empty((0, 0))
    with torch.no_grad():
        return np.asarray(kernel(rows).double().cpu().numpy())
