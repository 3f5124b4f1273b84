"""Tables on disk: found again, never taken for another's, and ignored when damaged or unwritable."""

from __future__ import annotations

from functools import partial

import pytest
import torch
import torch.nn.functional as F

from ntkit._src.program import AnyFunction
from ntkit._src.rules.expectations import _table, _table_store, dual
from ntkit._src.rules.expectations._table_store import load_table, store_table, table_directory

TANH = AnyFunction(torch.tanh, label="tanh")
TABLE = (torch.rand(3, 4, 4, dtype=torch.float64), torch.rand(5, 4, 4, dtype=torch.float64))


@pytest.fixture(autouse=True)
def folder(tmp_path, monkeypatch):
    monkeypatch.setenv("NTKIT_CACHE_DIR", str(tmp_path))
    return tmp_path / "tables"


def files(folder):
    return sorted(folder.iterdir()) if folder.exists() else []


def test_found_again(folder):
    assert load_table(TANH, 0, 1) is None
    store_table(TANH, 0, 1, TABLE)
    found = load_table(TANH, 0, 1)
    assert all(torch.equal(a, b) for a, b in zip(found, TABLE, strict=True))
    assert len(files(folder)) == 1  # no partial file is left
    for other, cells in (
        (TANH, (1, 1)),
        (TANH, (0, 0)),
        (AnyFunction(torch.sigmoid, label="tanh"), (0, 1)),
        (AnyFunction(torch.tanh, kinks=(0.0,), label="tanh"), (0, 1)),
        (AnyFunction(partial(F.elu, alpha=0.5), label="elu"), (0, 1)),
    ):
        assert load_table(other, *cells) is None


def test_options_are_part_of_the_name():
    one, two, again = (AnyFunction(partial(F.elu, alpha=alpha), kinks=(0.0,)) for alpha in (0.5, 0.6, 0.5))
    store_table(one, 0, 0, TABLE)
    assert load_table(again, 0, 0) is not None
    assert load_table(two, 0, 0) is None


def mine(z):
    return torch.tanh(z)


@pytest.mark.parametrize(
    "function",
    [lambda z: torch.tanh(z), mine, partial(torch.mul, other=torch.ones(())), partial(F.elu, 1.0), None],
    ids=["lambda", "own", "tensor", "positional", "none"],
)
def test_functions_without_a_lasting_name_are_not_stored(function, folder):
    phi = AnyFunction(function, label="tanh")
    store_table(phi, 0, 0, TABLE)
    assert load_table(phi, 0, 0) is None
    assert not files(folder)


def test_damaged_files_are_ignored(folder):
    store_table(TANH, 0, 0, TABLE)
    (path,) = files(folder)
    whole = path.read_bytes()
    for bad in (b"", b"nonsense", whole[: len(whole) // 2], whole[:200] + b"\0\0\0\0" + whole[204:]):
        path.write_bytes(bad)
        assert load_table(TANH, 0, 0) is None
    store_table(TANH, 0, 0, TABLE)
    assert load_table(TANH, 0, 0) is not None
    store_table(TANH, 0, 0, (TABLE[0] * torch.nan, TABLE[1]))
    assert load_table(TANH, 0, 0) is None


def test_another_file_under_this_name(folder):
    store_table(TANH, 0, 0, TABLE)
    store_table(TANH, 1, 1, TABLE)
    first, second = files(folder)
    first.write_bytes(second.read_bytes())
    assert (load_table(TANH, 0, 0) is None) != (load_table(TANH, 1, 1) is None)


def test_changed_code_makes_new_tables(monkeypatch):
    store_table(TANH, 0, 0, TABLE)
    monkeypatch.setattr(_table_store, "_builder", lambda: "another")
    assert load_table(TANH, 0, 0) is None


def test_nowhere_to_write(tmp_path, monkeypatch):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setenv("NTKIT_CACHE_DIR", str(blocked))
    store_table(TANH, 0, 0, TABLE)
    assert load_table(TANH, 0, 0) is None
    monkeypatch.setenv("NTKIT_CACHE_DIR", "")
    assert table_directory() is None
    store_table(TANH, 0, 0, TABLE)
    assert load_table(TANH, 0, 0) is None


def test_users_cache(monkeypatch, tmp_path):
    monkeypatch.delenv("NTKIT_CACHE_DIR")
    monkeypatch.setattr("sys.platform", "linux")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert table_directory() == tmp_path / "ntkit" / "tables"
    monkeypatch.delenv("XDG_CACHE_HOME")
    assert table_directory().parts[-3:] == (".cache", "ntkit", "tables")


def test_kernels_use_the_stored_table(folder, monkeypatch):
    """The same numbers as from a table just built, and no building."""
    phi = AnyFunction(torch.sigmoid, label="stored")
    q = torch.full((3,), 0.5, dtype=torch.float64)
    k = torch.tensor([0.5, 0.1, -0.2], dtype=torch.float64)
    _table._accurate.cache_clear()
    built = dual(phi, k, q, q, tangent=True)
    assert len(files(folder)) == 1
    _table._accurate.cache_clear()
    monkeypatch.setattr(_table, "_build", None)
    loaded = dual(phi, k, q, q, tangent=True)
    for a, b in zip(built, loaded, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-14, atol=0)
