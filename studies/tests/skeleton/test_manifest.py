from __future__ import annotations

import hashlib

import pytest

from ntkit.errors import InputError
from ntkit_studies.skeleton._manifest import Data, data_of, this_machine, versions


def test_a_file_is_known_by_its_bytes(tmp_path):
    path = tmp_path / "a.npz"
    path.write_bytes(b"abc")
    assert data_of(path, "digits") == Data("a.npz", hashlib.sha256(b"abc").hexdigest(), False)
    with pytest.raises(InputError, match="must be an .npz file. Cannot read"):
        data_of(tmp_path / "missing", "digits")


def test_embedded_data_have_hashes_of_their_own():
    digits, tables = data_of(None, "digits"), data_of(None, "tables")
    assert digits.embedded and digits.sha256 != tables.sha256 and digits == data_of(None, "digits")
    assert data_of(None, "") is None


def test_versions_and_machine():
    assert {"python", "ntkit", "torch", "numpy"} <= set(versions())
    machine = this_machine()
    assert machine.cores >= 1 and machine.threads >= 1 and machine.processor


def test_a_folder_is_known_by_its_files(tmp_path):
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "x").write_bytes(b"1")
    first = data_of(tmp_path, "tables").sha256
    (tmp_path / "a" / "x").write_bytes(b"2")
    second = data_of(tmp_path, "tables").sha256
    (tmp_path / "a" / "x").rename(tmp_path / "a" / "y")
    assert len({first, second, data_of(tmp_path, "tables").sha256}) == 3
