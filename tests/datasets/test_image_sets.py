from __future__ import annotations

import gzip
import io
import tarfile

import numpy as np
import pytest
from scipy.io import savemat

from ntkit import datasets
from ntkit.errors import InputError

DRAWS = np.random.default_rng(0)


def images(n, side, channels=3):
    return DRAWS.integers(0, 256, (n, side, side, channels), dtype=np.uint8)


def archive(path, members):
    with tarfile.open(path, "w:gz") as file:
        for name, content in members.items():
            info = tarfile.TarInfo(f"inside/{name}")
            info.size = len(content)
            file.addfile(info, io.BytesIO(content))


def write_cifar10(folder, x, y, x_test, y_test):
    def rows(pixels, labels):
        return np.concatenate([labels[:, None], pixels.transpose(0, 3, 1, 2).reshape(len(pixels), -1)], 1).astype(
            np.uint8
        )

    parts = np.array_split(rows(x, y), 5)
    members = {f"data_batch_{number}.bin": part.tobytes() for number, part in enumerate(parts, 1)}
    members |= {"test_batch.bin": rows(x_test, y_test).tobytes()}
    archive(folder / "cifar-10-binary.tar.gz", members | {"batches.meta.txt": b"airplane\nautomobile\nbird\n\n"})


def write_stl10(folder, x, y, x_test, y_test):
    members = {"class_names.txt": b"airplane\nbird\ncar\n"}
    for part, pixels, labels in (("train", x, y), ("test", x_test, y_test)):
        members[f"{part}_X.bin"] = pixels.transpose(0, 3, 2, 1).tobytes()  # planes column by column
        members[f"{part}_y.bin"] = (labels + 1).astype(np.uint8).tobytes()
    archive(folder / "stl10_binary.tar.gz", members)


def write_svhn(folder, x, y, x_test, y_test):
    for part, pixels, labels in (("train", x, y), ("test", x_test, y_test)):
        stored = np.where(labels == 0, 10, labels)[:, None]
        savemat(folder / f"{part}_32x32.mat", {"X": pixels.transpose(1, 2, 3, 0), "y": stored})


def write_idx(folder, x, y, x_test, y_test):
    for part, pixels, labels in (("train", x, y), ("t10k", x_test, y_test)):
        head = np.array([2051, *pixels.shape[:3]], ">i4").tobytes()
        with gzip.open(folder / f"{part}-images-idx3-ubyte.gz", "wb") as file:
            file.write(head + pixels.tobytes())
        with gzip.open(folder / f"{part}-labels-idx1-ubyte.gz", "wb") as file:
            file.write(np.array([2049, len(labels)], ">i4").tobytes() + labels.astype(np.uint8).tobytes())


CASES = {
    "cifar10": (datasets.load_cifar10, write_cifar10, 32, 3, 3),
    "stl10": (datasets.load_stl10, write_stl10, 96, 3, 3),
    "svhn": (datasets.load_svhn, write_svhn, 32, 3, 10),
    "mnist": (datasets.load_mnist, write_idx, 28, 1, 10),
    "fashion_mnist": (datasets.load_fashion_mnist, write_idx, 28, 1, 10),
}


@pytest.mark.parametrize("name", CASES)
def test_files_come_back_as_the_images_they_were_made_of(name, tmp_path):
    load, write, side, channels, classes = CASES[name]
    x, y = images(11, side, channels), DRAWS.integers(0, classes, 11)
    x_test, y_test = images(4, side, channels), DRAWS.integers(0, classes, 4)
    write(tmp_path, x, y, x_test, y_test)
    found = load(tmp_path)
    for own, expected in ((found.x_train, x), (found.y_train, y), (found.x_test, x_test), (found.y_test, y_test)):
        np.testing.assert_array_equal(own, expected)
    assert found.x_train.dtype == np.uint8 and found.y_train.dtype == np.int64 and len(found.classes) == classes


@pytest.mark.parametrize("name", CASES)
def test_missing_files_are_named_with_their_source(name, tmp_path):
    with pytest.raises(InputError, match=f"must hold the files of {name}. Missing: .* \\(from http"):
        CASES[name][0](tmp_path)


@pytest.mark.parametrize("name", CASES)
def test_damaged_files_are_refused(name, tmp_path):
    load, write, side, channels, classes = CASES[name]
    write(tmp_path, *(part for _ in range(2) for part in (images(6, side, channels), np.arange(6) % classes)))
    for path in tmp_path.iterdir():
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(InputError):
        load(tmp_path)


def test_another_archive_is_refused(tmp_path):
    archive(tmp_path / "cifar-10-binary.tar.gz", {"readme.txt": b"hello"})
    with pytest.raises(InputError, match=r"must hold data_batch_1.bin.*another archive"):
        datasets.load_cifar10(tmp_path)


def test_labels_outside_the_classes_are_refused(tmp_path):
    write_cifar10(tmp_path, images(5, 32), np.arange(5), images(2, 32), np.zeros(2, int))
    with pytest.raises(InputError, match="labels must count the 3 classes. Got 0 to 4"):
        datasets.load_cifar10(tmp_path)


def test_images_are_saved_under_names_that_end_in_npz(tmp_path):
    write_cifar10(tmp_path, images(30, 32), np.arange(30) % 3, images(12, 32), np.arange(12) % 3)
    found = datasets.load_cifar10(tmp_path)
    found.save(tmp_path / "a.npz")
    with np.load(tmp_path / "a.npz") as saved:
        assert sorted(saved["y_train"].tolist()) == [0] * 10 + [1] * 10 + [2] * 10
    with pytest.raises(InputError, match="must end in .npz"):
        found.save(tmp_path / "a")
    assert {path.name for path in tmp_path.iterdir()} == {"a.npz", "cifar-10-binary.tar.gz"}


def write_celeba(folder, n):
    image = pytest.importorskip("PIL.Image")
    (folder / "img_align_celeba").mkdir()
    lines = [str(n), "Smiling Young"]
    for number in range(n):
        pixels = np.full((20, 12, 3), 10 * number, np.uint8)
        image.fromarray(pixels).save(folder / "img_align_celeba" / f"{number}.png")
        lines.append(f"{number}.png {1 if number % 2 else -1} 1")
    (folder / "list_attr_celeba.txt").write_text("\n".join(lines) + "\n")


def test_celeba(tmp_path):
    write_celeba(tmp_path, 5)
    found = datasets.load_celeba(tmp_path, side=4, train=3, test=2)
    assert (
        found.x_train.shape == (3, 4, 4, 3) and found.y_train.tolist() == [0, 1, 0] and found.y_test.tolist() == [1, 0]
    )
    assert found.x_test[1].ravel().tolist() == [40] * 48 and found.classes == ("not Smiling", "Smiling")
    for options, message in (
        ({"attribute": "Bald"}, "one of Smiling, Young. Got 'Bald'"),
        ({"train": 9}, "at most 5 images"),
    ):
        with pytest.raises(InputError, match=message):
            datasets.load_celeba(tmp_path, **{"train": 3, "test": 2} | options)
    (tmp_path / "img_align_celeba" / "1.png").unlink()
    with pytest.raises(InputError, match="img_align_celeba/1.png"):
        datasets.load_celeba(tmp_path, train=3, test=2)
    with pytest.raises(InputError, match="must hold list_attr_celeba.txt"):
        datasets.load_celeba(tmp_path / "nowhere")
