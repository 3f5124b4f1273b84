"""Tables as features and a target: the task, the columns in use, and tables to which no model can be fitted."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from ntkit.errors import InputError

from ._console import note
from ._data import column, read_table

_MOST_CLASSES = 20
_LARGEST = 1e150
"""Squares of larger numbers overflow, and a variance sums them."""


class Task(StrEnum):
    """What the target is."""

    AUTO = "auto"
    CLASSIFICATION = "classification"
    REGRESSION = "regression"


@dataclass(frozen=True)
class Problem:
    """A table of n rows: its columns in use, labels or float64 targets of shape (n,), and constant columns that were left out."""

    features: pd.DataFrame
    target: NDArray[Any]
    task: Task
    left_out: tuple[str, ...]


def read_problem(
    path: Path, target: str, task: Task = Task.AUTO, drop: Sequence[str] = (), keep_constant: bool = False
) -> Problem:
    """Read a table and its target column, without the columns ``drop``."""
    # ``Task.AUTO``: numbers mean regression, unless they are integers with at most 20 distinct values. Constant columns are
    # kept only if all columns are the entries of one input (``keep_constant``).
    table = read_table(path)
    values = column(table, target, path)
    unknown = [name for name in drop if name not in table.columns]
    if unknown:
        raise InputError(f"{path} has no column {unknown[0]!r} to leave out.")
    features = table.drop(columns=[target, *drop])
    constant = tuple(name for name in features.columns if features[name].nunique(dropna=False) < 2)
    if len(constant) == len(features.columns):
        raise InputError(f"{path} has no column other than the target {target!r} that differs between rows.")
    constant = () if keep_constant else constant
    features = features.drop(columns=list(constant))
    check_range(features, path)
    unnamed = [name for name in features.columns if name.startswith("Unnamed: ")]
    if unnamed:
        note(f"{path} has a column without a name, as row numbers have: --drop {unnamed[0]!r} leaves it out.")
    chosen = _task(values) if task is Task.AUTO else task
    labels = _labels(values, target) if chosen is Task.CLASSIFICATION else _numbers(values, target)
    return Problem(features, labels, chosen, constant)


def check_range(features: pd.DataFrame, path: Path) -> None:
    """Refuse infinite numbers, and those whose squares are; name the first column that has one."""
    for name in features.columns:
        if _is_number(features[name]):
            largest = np.nanmax(np.abs(_floats(features[name])), initial=0.0)
            if largest > _LARGEST:
                what = "infinite values" if np.isinf(largest) else f"values as large as {largest:.1g}"
                raise InputError(f"the column {name!r} of {path} has {what}: replace or rescale them.")


def _is_number(values: pd.Series) -> bool:
    return bool(pd.api.types.is_numeric_dtype(values.dtype))


def _floats(values: pd.Series) -> NDArray[Any]:
    return np.asarray(values.to_numpy(np.float64, na_value=np.nan))


def _are_whole(numbers: NDArray[Any]) -> bool:
    return bool((np.isfinite(numbers) & (numbers == np.round(numbers))).all())


def _task(values: pd.Series) -> Task:
    if not _is_number(values) or pd.api.types.is_bool_dtype(values.dtype):
        return Task.CLASSIFICATION
    numbers = _floats(values)
    return Task.CLASSIFICATION if _are_whole(numbers) and len(np.unique(numbers)) <= _MOST_CLASSES else Task.REGRESSION


def _labels(values: pd.Series, name: str) -> NDArray[Any]:
    # Whole numbers are unchanged; strings and objects of pandas become arrays of text, as do fractions, which scikit-learn
    # does not take for classes.
    whole = _is_number(values) and _are_whole(_floats(values))
    labels = values.to_numpy() if whole else values.astype(str).to_numpy(dtype=str)
    classes, counts = np.unique(labels, return_counts=True)
    if len(classes) < 2:
        raise InputError(f"the target {name!r} has one class, {classes[0]!s}: two are needed.")
    if len(classes) > max(_MOST_CLASSES, len(labels) // 2):
        raise InputError(
            f"the target {name!r} has {len(classes)} classes in {len(labels)} rows. Is it --task regression?"
        )
    single = classes[counts == 1]
    if len(single):
        raise InputError(
            f"the class {single[0]!s} of the target {name!r} has one row, and a class needs two: remove it or merge it."
        )
    return np.asarray(labels)


def _numbers(values: pd.Series, name: str) -> NDArray[Any]:
    if values.dtype.kind in "mM":
        raise InputError(f"the target {name!r} must be numbers for a regression. Got dates or times.")
    try:
        numbers = np.asarray(pd.to_numeric(values).to_numpy(np.float64))
    except (ValueError, TypeError) as error:
        raise InputError(f"the target {name!r} must be numbers for a regression: {error}") from error
    if not np.isfinite(numbers).all():
        raise InputError(f"the target {name!r} must be finite.")
    if np.abs(numbers).max(initial=0.0) > _LARGEST:
        raise InputError(f"the target {name!r} has values as large as {np.abs(numbers).max():.1g}: rescale it.")
    if len(numbers) < 2 or numbers.min() == numbers.max():
        raise InputError(f"the target {name!r} must have at least two different values.")
    return numbers
