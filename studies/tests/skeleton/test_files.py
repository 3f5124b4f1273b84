from __future__ import annotations

import os

import pytest

from ntkit_studies.skeleton._files import check_folder, write_whole


def test_a_stopped_write_leaves_the_old_file_whole(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    write_whole(path, "old")

    def stop(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", stop)
    with pytest.raises(KeyboardInterrupt):
        write_whole(path, "new")
    assert path.read_text() == "old" and list(tmp_path.iterdir()) == [path]
    monkeypatch.undo()
    write_whole(path, "new\n")
    assert path.read_bytes() == b"new\n"


def test_a_folder_is_made_and_left_empty(tmp_path):
    check_folder(tmp_path / "a" / "b")
    assert not list((tmp_path / "a" / "b").iterdir())
    (tmp_path / "file").write_text("")
    with pytest.raises(OSError, match="File exists"):
        check_folder(tmp_path / "file")
