from __future__ import annotations

import hashlib
import sys

import pytest

from ntkit._src.datasets._fetch import RemoteFile, fetch
from ntkit.errors import InputError, MissingDependencyError

CONTENT = b"some images"
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@pytest.fixture
def pooch(monkeypatch, tmp_path):
    module = pytest.importorskip("pooch")
    monkeypatch.setattr(module, "os_cache", lambda name: tmp_path / "cache" / name)
    return module


@pytest.fixture
def served(monkeypatch, pooch):
    """Files that a download finds, by address."""
    files, asked = {"https://x.org/a.bin": CONTENT}, []

    def download(url, output_file, *_):
        asked.append(url)
        if url not in files:
            raise ConnectionError("no network")
        with open(output_file, "wb") as file:
            file.write(files[url])

    monkeypatch.setattr(pooch.core, "choose_downloader", lambda url, progressbar=False: download)
    return asked


def test_files_in_a_folder_are_taken_as_they_are(tmp_path):
    (tmp_path / "a.bin").write_bytes(b"mine")
    assert fetch("set", [RemoteFile("a.bin", "https://x.org/a.bin", SHA256)], tmp_path) == [tmp_path / "a.bin"]
    with pytest.raises(InputError, match=r"must hold the files of set. Missing: b.bin \(from https://x.org/b.bin\)"):
        fetch("set", [RemoteFile("b.bin", "https://x.org/b.bin", SHA256)], tmp_path)


def test_a_file_is_downloaded_once_and_checked(served, tmp_path):
    for _ in range(2):
        (path,) = fetch("set", [RemoteFile("a.bin", "https://x.org/a.bin", SHA256)])
        assert path == tmp_path / "cache" / "ntkit" / "set" / "a.bin" and path.read_bytes() == CONTENT
    assert served == ["https://x.org/a.bin"]


def test_another_hash_is_refused(served):
    with pytest.raises(InputError, match="must have the sha256 000"):
        fetch("set", [RemoteFile("a.bin", "https://x.org/a.bin", "0" * 64)])


def test_without_a_network_the_message_says_what_to_do(served):
    with pytest.raises(InputError, match=r"cannot download https://x.org/b.bin \(ConnectionError\).*pass folder="):
        fetch("set", [RemoteFile("b.bin", "https://x.org/b.bin", SHA256)])


def test_without_pooch_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pooch", None)
    with pytest.raises(MissingDependencyError, match=r"pip install 'ntkit\[data\]'"):
        fetch("set", [RemoteFile("a.bin", "https://x.org/a.bin", SHA256)])
