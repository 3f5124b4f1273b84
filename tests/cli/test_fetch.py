from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest


def write_mnist(folder: Path) -> None:
    """Write the four files of MNIST with twelve images."""
    for part, n in (("train", 8), ("t10k", 4)):
        images = np.arange(n * 28 * 28, dtype=np.uint32).astype(np.uint8)
        header = np.array([2051, n, 28, 28], ">i4").tobytes()
        (folder / f"{part}-images-idx3-ubyte.gz").write_bytes(gzip.compress(header + images.tobytes()))
        labels = np.arange(n, dtype=np.uint8) % 10
        (folder / f"{part}-labels-idx1-ubyte.gz").write_bytes(
            gzip.compress(np.array([2049, n], ">i4").tobytes() + labels.tobytes())
        )


def test_local_files(program, tmp_path: Path):
    write_mnist(tmp_path)
    found = json.loads(program("fetch", "mnist", "--folder", ".", "--out", "m.npz", "--json"))
    assert (found["train"], found["test"], len(found["classes"])) == (8, 4, 10)
    with np.load(tmp_path / "m.npz") as file:
        assert file["x_train"].shape == (8, 28, 28, 1) and file["y_test"].tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("name", ["cifar10", "svhn", "stl10", "mnist", "fashion_mnist"])
def test_missing_files_and_no_network(name, program, monkeypatch, tmp_path: Path):
    message = program.fails("fetch", name, "--folder", ".", "--out", "m.npz")
    assert "must hold the files of" in message and "from http" in message

    def offline(*_: object, **__: object) -> None:
        raise ConnectionError("no network")

    monkeypatch.setattr("pooch.retrieve", offline)
    message = program.fails("fetch", name, "--out", "m.npz")
    assert "cannot download http" in message and "pass --folder with" in message
    assert not list(tmp_path.iterdir())


def test_the_uci_tables_are_never_downloaded(program, tmp_path: Path):
    message = program.fails("fetch", "uci", "--out", "f.npz")
    assert "no checksum" in message and "jmlr/data.tar.gz" in message and "ntkit run uci --data FOLDER" in message
    assert not list(tmp_path.iterdir())


def test_celeba_is_never_downloaded(program):
    assert "celeba needs --folder" in program.fails("fetch", "celeba", "--out", "f.npz")
    assert "list_attr_celeba.txt" in program.fails("fetch", "celeba", "--folder", ".", "--out", "f.npz")
    assert "must end in .npz" in program.fails("fetch", "mnist", "--out", "f.csv")
