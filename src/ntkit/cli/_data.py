"""Data files as tables and arrays: CSV, Parquet, NPZ, NPY and Zarr."""

from __future__ import annotations

import csv
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from ntkit.common import fold_rows
from ntkit.errors import InputError, MissingDependencyError

__all__ = ["DType", "Data", "column", "inputs_and_targets", "read_inputs", "read_table"]

Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV, TSV, Parquet, NPZ, NPY or Zarr.")]
DType = Literal["float32", "float64"]
_KINDS = "CSV (.csv, .tsv), Parquet (.parquet), NPZ, NPY or Zarr (.zarr)"


def read_table(path: Path, as_text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a file as a table with column names.

    In NPZ files and Zarr groups each one-dimensional array is a column with the array's name, and each feature of a larger array
    is a column, named ``X.0``, ``X.1``, ...; so are the columns of a single array.

    Parameters
    ----------
    path
        The file.
    as_text
        Columns of a CSV file to read as text, whatever they hold.

    Raises
    ------
    InputError
        If the file is missing, cannot be read, has no rows, or has two columns of the same name.
    """
    if not path.exists():
        raise InputError(f"there is no file {path}.")
    suffix = path.suffix.lower()
    try:
        if suffix in (".csv", ".tsv"):
            table = _csv(path, "\t" if suffix == ".tsv" else ",", as_text)
        elif suffix in (".parquet", ".pq"):
            table = pd.read_parquet(path)
        else:
            table = _of_arrays(_arrays(path))
    except ImportError as error:
        raise MissingDependencyError(f"reading {suffix} files needs another package: {error}") from error
    except InputError:
        raise
    except (OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path} as {suffix[1:] or 'a table'}: {error}") from error
    table.columns = [str(name) for name in table.columns]
    doubled = sorted(set(table.columns[table.columns.duplicated()]))
    if doubled:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, doubled))}: rename them.")
    if not len(table):
        raise InputError(f"{path} has {len(table.columns)} columns and no rows.")
    return table


def read_inputs(path: Path, shape: tuple[int, ...] | None, dtype: DType, without: str | None = None) -> Tensor:
    """Read numbers as a batch of inputs, shape (n, *shape), or (n, features) without a shape.

    Parameters
    ----------
    path
        A table of numbers, or an array whose first axis counts the inputs.
    shape
        Shape of one input; None keeps that of the array.
    dtype
        Dtype of the batch.
    without
        A column that is not an input, if the table has it.
    """
    if without is None and path.exists() and path.suffix.lower() in (".npy", ".zarr"):
        arrays = _arrays(path)
        if len(arrays) == 1:
            (values,) = arrays.values()
            batch = _tensor(values, path, dtype)
            return batch if shape is None else fold_rows(batch.flatten(1), shape)
    return _inputs(read_table(path), path, shape, dtype, without)


def inputs_and_targets(
    path: Path, target: str, shape: tuple[int, ...] | None, dtype: DType
) -> tuple[Tensor, NDArray[Any]]:
    """Read the inputs of a file, shape (n, ...), and its column of targets, which must be numbers, shape (n,)."""
    table = read_table(path)
    values = column(table, target, path)
    if values.dtype.kind not in "iufb":
        raise InputError(f"the target {target!r} must be numbers. Got text.")
    return _inputs(table, path, shape, dtype, target), np.array(values)


def _inputs(
    table: pd.DataFrame, path: Path, shape: tuple[int, ...] | None, dtype: DType, without: str | None
) -> Tensor:
    features = table.drop(columns=[without]) if without in table.columns else table
    words = [name for name in features.columns if features[name].dtype.kind not in "iufb"]
    if words:
        raise InputError(f"{path} must hold numbers. The column {words[0]!r} holds text: ntkit fit encodes it.")
    return fold_rows(_tensor(features.to_numpy(np.float64), path, dtype), shape)


def column(table: pd.DataFrame, name: str, path: Path) -> pd.Series:
    """Return the target column, or raise an error that lists the columns or the rows without a target.

    Raises
    ------
    InputError
        If there is no such column, or it has missing values.
    """
    if name not in table.columns:
        shown = ", ".join(map(str, table.columns[:12])) + (", ..." if len(table.columns) > 12 else "")
        raise InputError(f"{path} has no column {name!r}. Its columns are {shown}.")
    values = table[name]
    missing = np.flatnonzero(values.isna().to_numpy())
    if len(missing):
        raise InputError(
            f"the target {name!r} is missing in {len(missing)} of {len(values)} rows, first in row {missing[0] + 1}: remove them."
        )
    return values


def _csv(path: Path, separator: str, as_text: Sequence[str]) -> pd.DataFrame:
    # pandas renames columns of the same name; the user would not know which is which.
    with path.open(newline="", encoding="utf-8-sig") as file:
        header = next(csv.reader(file, delimiter=separator), None)
    if header is None:
        raise InputError(f"{path} is empty.")
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, doubled))}: rename them.")
    kinds: Any = {name: str for name in as_text if name in header}
    return pd.read_csv(path, sep=separator, encoding="utf-8-sig", dtype=kinds, low_memory=False)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read arrays by name; nothing in the file is executed."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return {"X": np.load(path, allow_pickle=False)}
    if suffix == ".npz":
        with np.load(path, allow_pickle=False) as file:
            return {name: file[name] for name in file.files}
    if suffix == ".zarr":
        import zarr

        found: Any = zarr.open(str(path), mode="r")
        return (
            {"X": found[...]} if hasattr(found, "shape") else {name: one[...] for name, one in sorted(found.arrays())}
        )
    raise InputError(f"DATA must be {_KINDS}. Got {path}.")


def _of_arrays(arrays: Mapping[str, NDArray[Any]]) -> pd.DataFrame:
    columns: dict[str, NDArray[Any]] = {}
    for name, array in arrays.items():
        if array.ndim == 1:
            columns[name] = array
        elif array.ndim > 1:
            rows = array.reshape(len(array), -1)
            columns |= {f"{name}.{number}": rows[:, number] for number in range(rows.shape[1])}
    if len({len(one) for one in columns.values()}) > 1:
        sizes = ", ".join(f"{name} {array.shape}" for name, array in arrays.items())
        raise InputError(f"the arrays must have equally many rows. Got {sizes}.")
    return pd.DataFrame(columns)


def _tensor(values: NDArray[Any], path: Path, dtype: DType) -> Tensor:
    if values.dtype.kind not in "iufb":
        raise InputError(f"{path} must hold numbers. Got {values.dtype}.")
    if not np.isfinite(values).all():
        raise InputError(f"{path} must be finite. Got NaN or infinite values.")
    # A copy: pandas and mapped files return arrays that torch must not write to.
    return torch.from_numpy(np.array(values, dtype, order="C"))
