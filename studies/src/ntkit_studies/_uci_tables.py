"""Small tables with fixed splits, in the form of the UCI collection of Fernandez-Delgado et al. 2014."""

from __future__ import annotations

import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import sklearn.datasets
from numpy.typing import NDArray
from sklearn.model_selection import StratifiedKFold, train_test_split

from ntkit.errors import InputError, InputTypeError

__all__ = ["SplitTable", "load_uci"]

FORMAT = (
    "an .npz file with, for each data set NAME, the arrays NAME/X (n, features) of numbers, NAME/y (n,) of integer "
    "labels, NAME/split0 and NAME/split1 (indices of the training and the validation points), and NAME/kfold0, "
    "NAME/kfold1, ... (indices of training and test points in turn)"
)


@dataclass(frozen=True)
class SplitTable:
    """A classification table with the splits that every method uses.

    Attributes
    ----------
    name
        Name of the data set.
    X
        Shape (n, features), float64.
    y
        Shape (n,), int64 labels of at least two classes.
    train, validation
        Disjoint indices of the points for choosing hyperparameters.
    folds
        Pairs of disjoint indices, training and test points. Test parts may overlap one another, as they do if the
        folds were drawn one by one.
    """

    name: str
    X: NDArray[np.float64]
    y: NDArray[np.int64]
    train: NDArray[np.int64]
    validation: NDArray[np.int64]
    folds: tuple[tuple[NDArray[np.int64], NDArray[np.int64]], ...]

    def __len__(self) -> int:
        return len(self.y)


def load_uci(path: str | Path | None = None) -> tuple[SplitTable, ...]:
    """Load tables with their splits from a file, or four that scikit-learn ships.

    Parameters
    ----------
    path
        The folder of the collection as it is published, one folder per data set. Or an ``.npz`` file with, for each data set
        NAME, the arrays ``NAME/X`` (n, features), ``NAME/y`` (n,), ``NAME/split0`` and ``NAME/split1`` (training and
        validation indices) and ``NAME/kfold0``, ``NAME/kfold1``, ... (training and test indices in turn): the files
        ``conxuntos.dat`` and ``conxuntos_kfold.dat`` of the collection.
        None: iris, wine, breast cancer and 500 of the digits, standardised, with fixed splits.

    Returns
    -------
    tuple of SplitTable
        The tables, sorted by name.

    Raises
    ------
    InputError, InputTypeError
        If the file cannot be read, has another form, or holds values no method can use.

    References
    ----------
    .. [1] Fernandez-Delgado, Cernadas, Barro, Amorim, "Do we need hundreds of classifiers to solve real world
       classification problems?", 2014.

    Examples
    --------
    >>> for table in load_uci():
    ...     print(table.name, table.X.shape, len(table.train), len(table.validation), len(table.folds))
    breast-cancer (569, 30) 284 285 4
    digits (500, 64) 250 250 4
    iris (150, 4) 75 75 4
    wine (178, 13) 89 89 4
    """
    if path is None:
        return _bundled()
    arrays = _read_collection(Path(path)) if Path(path).is_dir() else _read(Path(path))
    names = sorted({key.split("/", 1)[0] for key in arrays if "/" in key})
    if not names:
        raise InputError(f"{path} has no data sets. Expected {FORMAT}. Got the arrays {sorted(arrays)[:6]}.")
    return tuple(_table(name, arrays) for name in names)


def _read(path: Path) -> dict[str, NDArray[Any]]:
    try:
        with path.open("rb") as stream:  # np.load leaves a file open if it cannot read it
            file = np.load(stream, allow_pickle=False)
            arrays = {key: file[key] for key in file.files} if isinstance(file, np.lib.npyio.NpzFile) else None
    except (OSError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"cannot read {path}: {error}. Expected {FORMAT}.") from error
    if arrays is None:
        raise InputError(f"{path} holds one array. Expected {FORMAT}.")
    return arrays


def _read_collection(folder: Path) -> dict[str, NDArray[Any]]:
    """Read the collection as published: ``NAME/NAME.txt`` names the data file, and two more files have the splits.

    The data file has a header, then rows with their number, the features and the class.
    """
    arrays: dict[str, NDArray[Any]] = {}
    for place in sorted(one for one in folder.iterdir() if (one / f"{one.name}.txt").is_file()):
        try:
            notes = dict(line.split()[:2] for line in _lines(place / f"{place.name}.txt") if len(line.split()) > 1)
            rows = [line.split() for line in _lines(place / notes["fich1="])[1:]]
            arrays[f"{place.name}/X"] = np.array([[float(value) for value in row[1:-1]] for row in rows])
            arrays[f"{place.name}/y"] = np.array([int(row[-1]) for row in rows])
            for name, prefix in (("conxuntos.dat", "split"), ("conxuntos_kfold.dat", "kfold")):
                for number, line in enumerate(_lines(place / name)):
                    arrays[f"{place.name}/{prefix}{number}"] = np.array(
                        [int(one) for one in line.split()], dtype=np.int64
                    )
        except FileNotFoundError:
            continue  # sets that come with a test file have no folds, and are not among those of Arora et al. 2019c
        except (OSError, ValueError, KeyError, IndexError) as error:
            raise InputError(f"{place} must be a data set of the collection: {error!r}") from error
    return arrays


def _lines(path: Path) -> list[str]:
    return [line for line in path.read_text(encoding="latin-1").splitlines() if line.strip()]


def _table(name: str, arrays: Mapping[str, NDArray[Any]]) -> SplitTable:
    count = sum(key.startswith(f"{name}/kfold") for key in arrays)
    if count < 2 or count % 2:
        raise InputError(
            f"{name} must have an even number of kfold arrays, two or more. Got {count}. Expected {FORMAT}."
        )
    splits = ["split0", "split1", *(f"kfold{number}" for number in range(count))]
    missing = [key for key in ("X", "y", *splits) if f"{name}/{key}" not in arrays]
    if missing:
        raise InputError(f"{name} lacks {', '.join(missing)}. Expected {FORMAT}.")
    X, y = _points(name, arrays[f"{name}/X"], arrays[f"{name}/y"])
    index = [_index(f"{name}/{key}", arrays[f"{name}/{key}"], len(y)) for key in splits]
    pairs = [(index[place], index[place + 1]) for place in range(0, len(index), 2)]
    for number, (fit, test) in enumerate(pairs):
        if np.intersect1d(fit, test).size:
            first, second = splits[2 * number], splits[2 * number + 1]
            raise InputError(f"{name}/{first} and {name}/{second} must have no point in common. Got some in both.")
    return SplitTable(name, X, y, *pairs[0], tuple(pairs[1:]))


def _points(name: str, X: NDArray[Any], y: NDArray[Any]) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if not np.issubdtype(X.dtype, np.floating) and not np.issubdtype(X.dtype, np.integer):
        raise InputTypeError(f"{name}/X must hold numbers. Got {X.dtype}: encode categories first.")
    if not np.issubdtype(y.dtype, np.integer):
        raise InputTypeError(f"{name}/y must hold integer labels. Got {y.dtype}: number the classes first.")
    if X.ndim != 2 or X.size == 0 or y.shape != X.shape[:1]:
        raise InputError(
            f"{name}/X must have shape (n, features) and {name}/y shape (n,). Got {X.shape} and {y.shape}."
        )
    if not np.isfinite(X).all():
        raise InputError(f"{name}/X must be finite. Got NaN or infinite values: remove or impute those rows.")
    if len(np.unique(y)) < 2:
        raise InputError(f"{name}/y must have at least two classes. Got the label {y[0]} alone.")
    return X.astype(np.float64), y.astype(np.int64)


def _index(key: str, index: NDArray[Any], n: int) -> NDArray[np.int64]:
    if not np.issubdtype(index.dtype, np.integer) or index.ndim != 1 or index.size == 0:
        raise InputError(f"{key} must be a row of integers, at least one. Got {index.dtype}, shape {index.shape}.")
    if index.min() < 0 or index.max() >= n:
        raise InputError(f"{key} must count the {n} points from 0. Got indices from {index.min()} to {index.max()}.")
    return index.astype(np.int64)


def _bundled() -> tuple[SplitTable, ...]:
    sets = {
        "breast-cancer": sklearn.datasets.load_breast_cancer(return_X_y=True),
        "digits": tuple(part[:500] for part in sklearn.datasets.load_digits(return_X_y=True)),
        "iris": sklearn.datasets.load_iris(return_X_y=True),
        "wine": sklearn.datasets.load_wine(return_X_y=True),
    }
    return tuple(_split(name, np.asarray(X, dtype=np.float64), np.asarray(y)) for name, (X, y) in sets.items())


def _split(name: str, X: NDArray[np.float64], y: NDArray[Any]) -> SplitTable:
    spread = X.std(axis=0)
    standard = (X - X.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    train, validation = train_test_split(np.arange(len(y)), train_size=0.5, stratify=y, random_state=0)
    folds = StratifiedKFold(4, shuffle=True, random_state=0).split(X, y)
    return SplitTable(name, standard, y.astype(np.int64), np.sort(train), np.sort(validation), tuple(folds))
