from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from ntkit.errors import InputError, InputTypeError
from ntkit_studies import load_uci

SHARED = Path(__file__).parents[3] / "shared" / "data" / "uci_45.npz"


def arrays(**changes):
    """One small data set in the form of the collection."""
    found = {
        "toy/X": np.arange(16.0).reshape(8, 2),
        "toy/y": np.array([0, 1] * 4, dtype=np.int16),
        "toy/split0": np.arange(4, dtype=np.int32),
        "toy/split1": np.arange(4, 8, dtype=np.int32),
        "toy/kfold0": np.arange(6),
        "toy/kfold1": np.arange(6, 8),
        "toy/kfold2": np.arange(2, 8),
        "toy/kfold3": np.arange(2),
    }
    found |= {f"toy/{key}": value for key, value in changes.items()}
    return {key: value for key, value in found.items() if value is not None}


def saved(path, **changes):
    np.savez(path / "data.npz", **arrays(**changes))
    return path / "data.npz"


def test_a_file_comes_back(tmp_path):
    (table,) = load_uci(saved(tmp_path))
    assert (table.name, len(table), len(table.folds)) == ("toy", 8, 2)
    assert (table.X.dtype, table.y.dtype, table.train.dtype) == (np.float64, np.int64, np.int64)
    np.testing.assert_array_equal(table.X, arrays()["toy/X"])
    np.testing.assert_array_equal(table.validation, [4, 5, 6, 7])
    np.testing.assert_array_equal(table.folds[1][0], np.arange(2, 8))
    np.testing.assert_array_equal(table.folds[1][1], [0, 1])


def test_bundled_tables_are_partitioned_and_always_the_same():
    for table, again in zip(load_uci(), load_uci(), strict=True):
        everything = np.arange(len(table))
        np.testing.assert_array_equal(np.sort(np.concatenate([table.train, table.validation])), everything)
        np.testing.assert_array_equal(np.sort(np.concatenate([test for _, test in table.folds])), everything)
        np.testing.assert_array_equal(table.train, again.train)
        for (train, test), (train2, test2) in zip(table.folds, again.folds, strict=True):
            assert not np.intersect1d(train, test).size and len(train) + len(test) == len(table)
            np.testing.assert_array_equal(train, train2)
            np.testing.assert_array_equal(test, test2)
        np.testing.assert_allclose(table.X.mean(0), 0, atol=1e-12)
        spread = table.X.std(0)
        np.testing.assert_allclose(spread[spread > 0], 1)


@pytest.mark.parametrize(
    ("changes", "error", "message"),
    [
        ({"X": None}, InputError, r"toy lacks X. Expected an .npz file with"),
        ({"y": None, "split1": None}, InputError, r"toy lacks y, split1"),
        ({"kfold3": None}, InputError, r"even number of kfold arrays, two or more. Got 3"),
        ({f"kfold{i}": None for i in range(4)}, InputError, r"Got 0"),
        ({"kfold1": None, "kfold4": np.arange(2)}, InputError, r"toy lacks kfold1"),
        ({"X": np.full((8, 2), "a")}, InputTypeError, r"toy/X must hold numbers"),
        ({"X": np.zeros((7, 2))}, InputError, r"Got \(7, 2\) and \(8,\)"),
        ({"X": np.zeros(8)}, InputError, r"shape \(n, features\)"),
        ({"X": np.zeros((8, 0))}, InputError, r"Got \(8, 0\)"),
        ({"X": np.full((8, 2), np.nan)}, InputError, r"must be finite"),
        ({"y": np.linspace(0, 1, 8)}, InputTypeError, r"integer labels"),
        ({"y": np.full(8, 3)}, InputError, r"at least two classes. Got the label 3 alone"),
        ({"split0": np.array([0.0, 1.0])}, InputError, r"toy/split0 must be a row of integers"),
        ({"split0": np.array([], dtype=int)}, InputError, r"at least one"),
        ({"kfold1": np.array([8])}, InputError, r"toy/kfold1 must count the 8 points from 0. Got indices from 8 to 8"),
        ({"kfold1": np.array([-1])}, InputError, r"from -1"),
        ({"split1": np.arange(3, 8)}, InputError, r"toy/split0 and toy/split1 must have no point in common"),
        ({"kfold3": np.arange(3)}, InputError, r"toy/kfold2 and toy/kfold3"),
        ({"y": np.array([None] * 8)}, InputError, r"cannot read .*pickle"),
    ],
)
def test_another_form_is_explained(tmp_path, changes, error, message):
    with pytest.raises(error, match=message):
        load_uci(saved(tmp_path, **changes))


@pytest.mark.parametrize("content", [None, b"", b"X,y\n1,2\n", b"PK\x03\x04cut off"])
def test_no_npz_file_is_explained(tmp_path, content):
    path = tmp_path / "data.npz"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(InputError, match=r"cannot read .*Expected an .npz file with"):
        load_uci(path)


def test_one_array_or_no_data_sets(tmp_path):
    np.save(tmp_path / "data.npy", np.zeros(3))
    with pytest.raises(InputError, match=r"holds one array"):
        load_uci(tmp_path / "data.npy")
    np.savez(tmp_path / "data.npz", X=np.zeros(3))
    with pytest.raises(InputError, match=r"no data sets.*Got the arrays \['X'\]"):
        load_uci(tmp_path / "data.npz")


@pytest.mark.skipif(not SHARED.exists(), reason="the collection is not here")
def test_the_collection_loads():
    tables = load_uci(SHARED)
    assert len(tables) == 45
    assert all(len(table.folds) == 4 for table in tables)
    assert all(np.abs(table.X.mean(0)).max() < 1e-4 for table in tables)  # standardised already


def write_collection(folder):
    found = arrays()
    place = folder / "toy"
    place.mkdir()
    (place / "toy.txt").write_text("n_entradas= 2\nn_clases= 2\nfich1= toy_R.dat\n")
    rows = [f"{n} {x[0]} {x[1]} {y}" for n, (x, y) in enumerate(zip(found["toy/X"], found["toy/y"], strict=True))]
    (place / "toy_R.dat").write_text("\tf1\tf2\tclase\n" + "\n".join(rows) + "\n")
    for name, keys in (
        ("conxuntos.dat", ["split0", "split1"]),
        ("conxuntos_kfold.dat", [f"kfold{i}" for i in range(4)]),
    ):
        (place / name).write_text("\n".join(" ".join(map(str, found[f"toy/{key}"])) for key in keys) + "\n")
    return place


def test_the_collection_as_it_is_published(tmp_path):
    place = write_collection(tmp_path)
    (tmp_path / "without-folds").mkdir()
    (tmp_path / "without-folds" / "without-folds.txt").write_text("fich1= missing.dat\n")
    (table,) = load_uci(tmp_path)
    (expected,) = load_uci(saved(tmp_path))
    for name in ("X", "y", "train", "validation"):
        np.testing.assert_array_equal(getattr(table, name), getattr(expected, name))
    np.testing.assert_array_equal(table.folds[1][0], expected.folds[1][0])
    (place / "toy_R.dat").write_text("\tf1\tclase\n0 x 1\n")
    with pytest.raises(InputError, match="must be a data set of the collection"):
        load_uci(tmp_path)
