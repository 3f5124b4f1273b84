"""Data files as tables and arrays: CSV, Parquet, NPZ, NPY and Zarr."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
import pandas as pd
import torch
import typer
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import fold_rows
from ntkit.errors import InputError, MissingDependencyError

Data = Annotated[Path, typer.Argument(metavar="DATA", help="CSV, TSV, Parquet, NPZ, NPY or Zarr.")]
DType = Literal["float32", "float64"]
_KINDS = "CSV (.csv, .tsv), Parquet (.parquet), NPZ, NPY or Zarr (.zarr)"


def read_table(path: Path, as_text: Sequence[str] = ()) -> pd.DataFrame:
    """Read a file as a table with column names; the columns ``as_text`` of a CSV file as text, whatever they hold."""
    # In NPZ files and Zarr groups each one-dimensional array is a column with the array's name, and each feature of a larger
    # array is a column, named ``X.0``, ``X.1``, ...; so are the columns of a single array.
    suffix = path.suffix.lower()
    with _readable(path):
        if suffix in (".csv", ".tsv"):
            table = _csv(path, "\t" if suffix == ".tsv" else ",", as_text)
        elif suffix in (".parquet", ".pq"):
            table = pd.read_parquet(path)
        else:
            table = _of_arrays(_arrays(path))
    table.columns = [str(name) for name in table.columns]
    doubled = sorted(set(table.columns[table.columns.duplicated()]))
    if doubled:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, doubled))}: rename them.")
    if not len(table):
        raise InputError(f"{path} has {len(table.columns)} columns and no rows.")
    for name in table.columns:
        table[name] = _with_plain_dtype(table[name], path)
    return table


@contextmanager
def _readable(path: Path) -> Iterator[None]:
    """Turn the errors of every reader into one sentence about the file."""
    if not path.exists():
        raise InputError(f"there is no file {path}.")
    suffix = path.suffix.lower()
    try:
        yield
    except ImportError as error:
        raise MissingDependencyError(f"reading {suffix} files needs another package: {error}") from error
    except InputError:
        raise
    except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
        # NumPy recommends to execute what is in the file.
        text = "it holds Python objects, or is damaged" if "pickle" in str(error) else str(error)
        text = text.removeprefix("Error tokenizing data. C error: ")
        raise InputError(f"cannot read {path} as {suffix[1:] or 'a table'}: {text}") from error


def _with_plain_dtype(values: pd.Series, path: Path) -> pd.Series:
    """Return numbers and booleans that pandas reads as objects in a dtype of their own, as gaps must not make them text."""
    if values.dtype.kind == "c":
        raise InputError(f"the column {values.name!r} of {path} holds complex numbers: split them into two columns.")
    if values.dtype != object:
        return values
    match pd.api.types.infer_dtype(values, skipna=True):
        case "boolean":
            return values.astype("boolean")
        case "decimal" | "integer":  # more digits than int64 has
            return values.astype("float64")
    if values.map(lambda one: isinstance(one, (list, dict, set, np.ndarray))).any():
        raise InputError(f"the column {values.name!r} of {path} holds lists: give each of their entries a column.")
    return values


class Inputs(NamedTuple):
    """A batch of inputs, shape (n, ...), and the columns that it was read from; none for an array."""

    x: Tensor
    names: tuple[str, ...]


def read_inputs(
    path: Path, shape: tuple[int, ...] | None, dtype: DType, without: str | None = None, names: Sequence[str] = ()
) -> Inputs:
    """Read a table of numbers, or an array whose first axis counts inputs, as a batch of shape (n, *shape)."""
    # Without a shape it stays as it is. The column ``without`` is no input. ``names`` are the columns of the file that these
    # inputs go with: those of a table are found by name in any order, and need not include ``without``; those of arrays by
    # their place.
    if without is None and path.suffix.lower() in (".npy", ".zarr"):
        with _readable(path):
            arrays = _arrays(path)
        if len(arrays) == 1:
            (values,) = arrays.values()
            batch = _tensor(values, path, dtype)
            if batch.ndim < 2:
                raise InputError(
                    f"{path} must have at least two axes, of which the first counts inputs. Got shape {tuple(batch.shape)}."
                )
            return Inputs(batch if shape is None else fold_rows(batch.flatten(1), shape), ())
    table = read_table(path)
    if without is not None and without not in table.columns and not names:
        raise InputError(f"{path} has no column {without!r} to leave out.")
    features = table.drop(columns=[without]) if without in table.columns else table
    return _inputs(_in_order(features, names, path), path, shape, dtype)


def inputs_and_targets(
    path: Path, target: str, shape: tuple[int, ...] | None, dtype: DType
) -> tuple[Inputs, NDArray[Any]]:
    """Read the inputs of a file, shape (n, ...), and its column of targets, which must be numbers, shape (n,)."""
    table = read_table(path)
    values = number_column(table, target, path)
    kept = np.int64 if values.dtype.kind in "iub" else np.float64
    return _inputs(table.drop(columns=[target]), path, shape, dtype), np.array(values, kept)


def _inputs(features: pd.DataFrame, path: Path, shape: tuple[int, ...] | None, dtype: DType) -> Inputs:
    words = [name for name in features.columns if features[name].dtype.kind not in "iufb"]
    if words:
        raise InputError(f"{path} must hold numbers. The column {words[0]!r} holds text: ntkit fit encodes it.")
    batch = _tensor(features.to_numpy(np.float64, na_value=np.nan), path, dtype)
    return Inputs(fold_rows(batch, shape), tuple(features.columns))


def _in_order(features: pd.DataFrame, names: Sequence[str], path: Path) -> pd.DataFrame:
    missing = [name for name in names if name not in features.columns]
    if not missing:
        return features[list(names)] if names else features
    if all(map(_is_numbered, names)) or all(map(_is_numbered, features.columns)):
        return features
    raise InputError(f"{path} lacks {', '.join(map(repr, missing))}, which the other file has.")


def _is_numbered(name: str) -> bool:
    """Return whether a name is that of a column of an array, such as X.0."""
    return name.rpartition(".")[2].isdigit()


def column(table: pd.DataFrame, name: str, path: Path) -> pd.Series:
    """Return the target column, or raise an error that lists the columns or the rows without a target."""
    if name not in table.columns:
        shown = ", ".join(f"{one!r:.40}" for one in table.columns[:12]) + (", ..." if len(table.columns) > 12 else "")
        advice = " Separate columns by commas." if len(table.columns) == 1 and path.suffix.lower() == ".csv" else ""
        raise InputError(f"{path} has no column {name!r:.40}. Its columns are {shown}.{advice}")
    values = table[name]
    missing = np.flatnonzero(values.isna().to_numpy())
    if len(missing):
        raise InputError(
            f"the target {name!r} is missing in {len(missing)} of {len(values)} rows, first in row {missing[0] + 1}: remove them."
        )
    return values


def number_column(table: pd.DataFrame, name: str, path: Path) -> pd.Series:
    """Return a target column that must hold numbers."""
    values = column(table, name, path)
    if values.dtype.kind not in "iufb":
        raise InputError(f"the target {name!r} must be numbers. Got text.")
    return values


def _csv(path: Path, separator: str, as_text: Sequence[str]) -> pd.DataFrame:
    options: Any = {"sep": separator, "encoding": "utf-8-sig", "low_memory": False}
    try:
        # Two lines without a header: pandas would rename columns of the same name, and take fields beyond the header for row
        # names, so that every column had the values of its neighbour.
        first = pd.read_csv(path, header=None, nrows=2, dtype=str, keep_default_na=False, **options)
    except pd.errors.EmptyDataError:
        raise InputError(f"{path} is empty.") from None
    header = first.iloc[0].tolist()
    doubled = sorted({name for name in header if header.count(name) > 1})
    if doubled:
        raise InputError(f"{path} has more than one column named {', '.join(map(repr, doubled))}: rename them.")
    return pd.read_csv(path, dtype={name: str for name in as_text if name in header}, **options)


def _arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read arrays by name; nothing in the file is executed."""
    suffix = path.suffix.lower()
    if suffix == ".npy":
        return {"X": np.load(path, allow_pickle=False)}
    if suffix == ".npz":
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
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
