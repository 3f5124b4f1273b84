"""Images for classification in the form that experiments use: CIFAR-10, SVHN, STL-10, MNIST, Fashion-MNIST, CelebA."""

from __future__ import annotations

import gzip
import os
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.io import loadmat

from ntkit.errors import InputError, MissingDependencyError

from ._fetch import RemoteFile, fetch

Bytes = NDArray[np.uint8]

_DIGITS = tuple(map(str, range(10)))
_CIFAR10 = RemoteFile(
    "cifar-10-binary.tar.gz",
    "https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
)
_STL10 = RemoteFile(
    "stl10_binary.tar.gz",
    "https://ai.stanford.edu/~acoates/stl10/stl10_binary.tar.gz",
    "f31fd99273a1acb8609c8db427cebb1de3f71de77758cdc0e22956e1289b9866",
)
_SVHN = tuple(
    RemoteFile(name, f"http://ufldl.stanford.edu/housenumbers/{name}", sha256)
    for name, sha256 in (
        ("train_32x32.mat", "435e94d69a87fde4fd4d7f3dd208dfc32cb6ae8af2240d066de1df7508d083b8"),
        ("test_32x32.mat", "cdce80dfb2a2c4c6160906d0bd7c68ec5a99d7ca4831afa54f09182025b6a75b"),
    )
)
_IDX = ("train-images-idx3-ubyte", "train-labels-idx1-ubyte", "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte")
_IDX_HASHES = {
    "https://storage.googleapis.com/cvdf-datasets/mnist": (
        "440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609",
        "3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c",
        "8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6",
        "f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6",
    ),
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com": (
        "3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84",
        "a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845",
        "346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073",
        "67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5",
    ),
}
_MNIST, _FASHION = (
    tuple(RemoteFile(f"{name}.gz", f"{url}/{name}.gz", sha256) for name, sha256 in zip(_IDX, hashes, strict=True))
    for url, hashes in _IDX_HASHES.items()
)


@dataclass(frozen=True)
class ImageSet:
    """Training and test images with their classes.

    Attributes
    ----------
    x_train, x_test
        Shape (n, side, side, channels), uint8.
    y_train, y_test
        Shape (n,), int64, indices into ``classes``.
    classes
        Their names.
    """

    x_train: Bytes
    y_train: NDArray[np.int64]
    x_test: Bytes
    y_test: NDArray[np.int64]
    classes: tuple[str, ...]

    def save(self, path: str | Path) -> None:
        """Write the ``.npz`` file that ``ntkit run NAME --data`` takes, atomically.

        Parameters
        ----------
        path
            Path of the file; its name must end in ``.npz``.
        """
        place = Path(path)
        if place.suffix != ".npz":
            raise InputError(f"path must end in .npz. Got {place}.")
        fresh = place.with_name(place.name + ".part")
        try:
            with fresh.open("wb") as file:
                arrays: dict[str, Any] = {
                    "x_train": self.x_train, "y_train": self.y_train, "x_test": self.x_test, "y_test": self.y_test,
                }  # fmt: skip
                np.savez_compressed(file, **arrays)
            os.replace(fresh, place)
        finally:
            fresh.unlink(missing_ok=True)


def load_cifar10(folder: str | Path | None = None) -> ImageSet:
    """Load CIFAR-10 (Krizhevsky 2009): 50,000 and 10,000 colour images of 32x32 pixels, ten classes.

    Parameters
    ----------
    folder
        Where ``cifar-10-binary.tar.gz`` is; None downloads it (170 MB) to pooch's cache.

    See Also
    --------
    load_digits : needs no download.

    Examples
    --------
    >>> load_cifar10("/nowhere")  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    ...
    ntkit.errors.InputError: /nowhere must hold the files of cifar10. Missing: cifar-10-binary.tar.gz (from https...
    """
    (path,) = fetch("cifar10", [_CIFAR10], folder)
    batches = [f"data_batch_{number}.bin" for number in range(1, 6)]
    members = _members(path, [*batches, "test_batch.bin", "batches.meta.txt"])
    parts: list[Any] = []
    for names in (batches, ["test_batch.bin"]):
        rows = _array(path, b"".join(members[name] for name in names), (-1, 3073))
        # A row is the class, then the red, green and blue planes.
        parts += [_planes_last(rows[:, 1:].reshape(-1, 3, 32, 32)), rows[:, 0].astype(np.int64)]
    return _image_set(parts, tuple(members["batches.meta.txt"].decode().split()))


def load_stl10(folder: str | Path | None = None) -> ImageSet:
    """Load the labelled part of STL-10 (Coates et al. 2011): 5,000 and 8,000 colour images of 96x96 pixels, ten classes.

    Parameters
    ----------
    folder
        Where ``stl10_binary.tar.gz`` is; None downloads it (2.6 GB) to pooch's cache.
    """
    (path,) = fetch("stl10", [_STL10], folder)
    names = ["train_X.bin", "train_y.bin", "test_X.bin", "test_y.bin", "class_names.txt"]
    members = _members(path, names)
    parts: list[Any] = []
    for part in ("train", "test"):
        pixels = _array(path, members[f"{part}_X.bin"], (-1, 3, 96, 96)).transpose(
            0, 1, 3, 2
        )  # stored column by column
        parts += [_planes_last(pixels), _array(path, members[f"{part}_y.bin"], (-1,)).astype(np.int64) - 1]
    return _image_set(parts, tuple(members["class_names.txt"].decode().split()))


def load_svhn(folder: str | Path | None = None) -> ImageSet:
    """Load SVHN (Netzer et al. 2011): 73,257 and 26,032 colour images of house numbers, 32x32 pixels, ten digits.

    Parameters
    ----------
    folder
        Where ``train_32x32.mat`` and ``test_32x32.mat`` are; None downloads them (246 MB) to pooch's cache.
    """
    parts: list[Any] = []
    for path in fetch("svhn", _SVHN, folder):
        try:
            content = loadmat(path)
            pixels, labels = np.asarray(content["X"], np.uint8), np.asarray(content["y"], np.int64).ravel()
            parts += [np.ascontiguousarray(pixels.transpose(3, 0, 1, 2)), labels % 10]  # zero is stored as ten
        except (ValueError, KeyError, TypeError, OSError) as error:
            raise InputError(f"{path} must be a MATLAB file of SVHN: {error}") from error
    return _image_set(parts, _DIGITS)


def load_mnist(folder: str | Path | None = None) -> ImageSet:
    """Load MNIST (LeCun et al. 1998): 60,000 and 10,000 grey images of 28x28 pixels, ten digits.

    Parameters
    ----------
    folder
        Where the four ``.gz`` files are; None downloads them (12 MB) to pooch's cache.
    """
    return _image_set(_idx_parts(fetch("mnist", _MNIST, folder)), _DIGITS)


def load_fashion_mnist(folder: str | Path | None = None) -> ImageSet:
    """Load Fashion-MNIST (Xiao et al. 2017): 60,000 and 10,000 grey images of 28x28 pixels, ten kinds of clothes.

    Parameters
    ----------
    folder
        Where the four ``.gz`` files are; None downloads them (31 MB) to pooch's cache.
    """
    classes = ("t-shirt", "trouser", "pullover", "dress", "coat", "sandal", "shirt", "sneaker", "bag", "boot")
    return _image_set(_idx_parts(fetch("fashion_mnist", _FASHION, folder)), classes)


def load_celeba(
    folder: str | Path, attribute: str = "Smiling", side: int = 32, train: int = 2000, test: int = 1000
) -> ImageSet:
    """Load a part of CelebA (Liu et al. 2015): faces with and without an attribute, cropped to a square and shrunk.

    Its licence requires every user to agree first, so nothing is downloaded.

    Parameters
    ----------
    folder
        Where ``img_align_celeba/`` (the images) and ``list_attr_celeba.txt`` are.
    attribute
        One of the 40, such as ``"Smiling"`` or ``"Eyeglasses"``.
    side
        Side length of the shrunk images.
    train, test
        Number of training images, the first of the list, and of test images, which follow them.
    """
    try:
        from PIL import Image
    except ImportError as error:
        raise MissingDependencyError("reading CelebA needs pillow: pip install 'ntkit[plot]'") from error
    place = Path(folder)
    try:
        lines = (place / "list_attr_celeba.txt").read_text(encoding="utf-8").splitlines()
        names = lines[1].split()
    except (OSError, IndexError) as error:
        raise InputError(f"{folder} must hold list_attr_celeba.txt and img_align_celeba/ of CelebA: {error}") from error
    if attribute not in names:
        raise InputError(f"attribute must be one of {', '.join(names)}. Got {attribute!r}.")
    rows = [line.split() for line in lines[2 : 2 + train + test]]
    if len(rows) < train + test:
        raise InputError(f"train and test must add up to at most {len(rows)} images. Got {train} and {test}.")
    labels = np.array([int(row[1 + names.index(attribute)]) > 0 for row in rows], dtype=np.int64)
    pixels = np.empty((len(rows), side, side, 3), dtype=np.uint8)
    for number, row in enumerate(rows):
        try:
            with Image.open(place / "img_align_celeba" / row[0]) as image:
                width, height = image.size
                short = min(width, height)
                left, top = (width - short) // 2, (height - short) // 2
                square = image.convert("RGB").crop((left, top, left + short, top + short))
                pixels[number] = np.asarray(square.resize((side, side), Image.Resampling.BOX))
        except OSError as error:
            raise InputError(f"{folder} must hold img_align_celeba/{row[0]}: {error}") from error
    return ImageSet(pixels[:train], labels[:train], pixels[train:], labels[train:], (f"not {attribute}", attribute))


def _image_set(parts: Sequence[Any], classes: tuple[str, ...]) -> ImageSet:
    """Combine training images, their labels, test images and theirs."""
    x, y, x_test, y_test = parts
    for pixels, labels in ((x, y), (x_test, y_test)):
        if pixels.ndim != 4 or labels.shape != (len(pixels),) or not len(labels):
            raise InputError(
                f"images and labels must be equally many, at least one. Got {pixels.shape}, {labels.shape}."
            )
        if labels.min() < 0 or labels.max() >= len(classes):
            raise InputError(f"labels must count the {len(classes)} classes. Got {labels.min()} to {labels.max()}.")
    return ImageSet(x, y, x_test, y_test, classes)


def _members(path: Path, names: Sequence[str]) -> dict[str, bytes]:
    """Read files of an archive by base name, whatever folder they are in; nothing is written to disk."""
    found: dict[str, bytes] = {}
    try:
        with tarfile.open(path) as archive:
            for member in archive:
                name = Path(member.name).name
                stream = archive.extractfile(member) if name in names else None
                if stream is not None:
                    found[name] = stream.read()
    except (tarfile.TarError, OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read: {error}. Remove it and fetch it again.") from error
    missing = [name for name in names if name not in found]
    if missing:
        raise InputError(f"{path} must hold {', '.join(missing)}. Is it another archive?")
    return found


def _array(path: Path, content: bytes, shape: tuple[int, ...]) -> Bytes:
    try:
        return np.frombuffer(content, np.uint8).reshape(shape)
    except ValueError as error:
        raise InputError(f"{path} must hold images of {shape[1:]} bytes: {error}") from error


def _planes_last(pixels: Bytes) -> Bytes:
    return np.ascontiguousarray(pixels.transpose(0, 2, 3, 1))


def _idx_parts(paths: Sequence[Path]) -> list[Any]:
    """Read four gzipped IDX files: a header of big-endian integers, then bytes."""
    parts: list[Any] = []
    for number, path in enumerate(paths):
        images = number % 2 == 0
        try:
            with gzip.open(path) as file:
                content = file.read()
        except (OSError, EOFError) as error:
            raise InputError(f"{path} must be a gzipped IDX file: {error}") from error
        header = np.frombuffer(content[: 16 if images else 8], ">i4")
        if len(header) < (4 if images else 2) or header[0] != (2051 if images else 2049):
            raise InputError(f"{path} must be an IDX file of {'images' if images else 'labels'}. Got another header.")
        shape = tuple(int(size) for size in header[1:])
        body = _array(path, content[4 * len(header) :], shape)
        parts.append(body[..., None] if images else body.astype(np.int64))
    return parts
