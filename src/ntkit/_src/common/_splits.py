"""Rows to fit and rows held out: the one way in which this package splits data."""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import InputError

__all__ = ["data_splits"]


def data_splits(
    n: int,
    held_out: int | float,
    seed: int | np.random.RandomState,
    codes: NDArray[Any] | None = None,
    repeats: int = 1,
) -> list[tuple[NDArray[np.intp], NDArray[np.intp]]]:
    """Return the rows to fit and the rows held out, sorted, for each split; by scikit-learn's splitters.

    ``held_out`` is the number of folds, at most n, each held out once; or the share of the rows that each of ``repeats`` random
    parts takes. With the class of each row, ``codes`` of shape (n,), every part has its share of each class that is large enough.
    """
    # Imported here: it would double the time of ``import ntkit``.
    from sklearn.model_selection import KFold, ShuffleSplit, StratifiedKFold, StratifiedShuffleSplit

    if n < 2:
        raise InputError(f"holding rows out needs at least two samples. Got n_samples={n}.")
    _, classes, counts = np.unique(np.zeros(n) if codes is None else codes, return_inverse=True, return_counts=True)
    kind: Any
    if isinstance(held_out, int):
        folds = min(held_out, n)
        kind = StratifiedKFold if codes is not None and counts.max() >= folds else KFold
        splitter = kind(folds, shuffle=True, random_state=seed)
    else:
        smaller = min(np.ceil(held_out * n), n - np.ceil(held_out * n))
        if smaller < 1:
            raise InputError(
                f"a part of {held_out} of the rows leaves no point on one side of the split. Got {n} rows."
            )
        classes = np.where(counts[classes] < 2, counts.argmax(), classes)  # a lone point cannot be on both sides
        kind = StratifiedShuffleSplit if codes is not None and smaller >= len(counts) else ShuffleSplit
        splitter = kind(repeats, test_size=held_out, random_state=seed)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)  # about classes with fewer members than folds
        found = list(splitter.split(np.zeros(n), classes))
    return [(np.sort(rows), np.sort(rest)) for rows, rest in found]
