"""Images for figures 13 and 14: SVHN, CelebA, or an .npz file such as one of CIFAR-10."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ntkit.errors import InputError, MissingDependencyError

__all__ = ["ImageRows", "load_celeba", "load_npz", "load_svhn", "standardize"]

_SVHN = "http://ufldl.stanford.edu/housenumbers/train_32x32.mat"
_SVHN_HASH = "md5:e26dedcc434d2e4c54c9b2d4a06d8373"
_CELEBA_SIDE = 32  # the paper does not say what the faces were shrunk to


@dataclass(frozen=True)
class ImageRows:
    """Images as rows of pixels.

    Attributes
    ----------
    x
        Shape (n, channels * height * width), float32, between 0 and 1.
    labels
        Shape (n,), int64.
    shape
        (channels, height, width).
    """

    x: Tensor
    labels: Tensor
    shape: tuple[int, int, int]

    def balanced(self, n: int, seed: int, classes: tuple[int, ...] | None = None) -> ImageRows:
        """Draw n images, equally many of every class (or of those named, numbered anew), at random."""
        names = classes or tuple(int(label) for label in self.labels.unique())
        generator = torch.Generator().manual_seed(seed)
        chosen, numbers = [], []
        for number, name in enumerate(names):
            members = torch.nonzero(self.labels == name).squeeze(1)
            if len(members) < n // len(names):
                raise InputError(f"class {name} must have {n // len(names)} images. Got {len(members)}.")
            chosen.append(members[torch.randperm(len(members), generator=generator)[: n // len(names)]])
            numbers += [number] * (n // len(names))
        order = torch.randperm(len(numbers), generator=generator)
        return ImageRows(self.x[torch.cat(chosen)[order]], torch.tensor(numbers)[order], self.shape)


def load_npz(path: Path) -> ImageRows:
    """Read ``x_train``, shape (n, height, width, channels), uint8, and ``y_train`` of an .npz file."""
    try:
        with np.load(path, allow_pickle=False) as file:
            images, labels = file["x_train"], file["y_train"]
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"cannot read {path}: {error}. Expected an .npz file with x_train and y_train.") from error
    return _rows(images, labels)


def load_svhn(path: Path | None = None) -> ImageRows:
    """Load the training images of SVHN (Netzer et al. 2011), fetched once with pooch where no file is given."""
    from scipy.io import loadmat

    content = loadmat(path or _fetch(_SVHN, _SVHN_HASH))
    labels = content["y"].ravel().astype(np.int64) % 10  # ten stands for the digit zero
    return _rows(content["X"].transpose(3, 0, 1, 2), labels)


def load_celeba(folder: Path, attribute: str = "Eyeglasses", most: int = 20_000) -> ImageRows:
    """Load aligned faces of CelebA (Liu et al. 2015) from a folder, with one attribute as label.

    Its licence allows no copy to fetch them from: get ``img_align_celeba.zip`` and ``list_attr_celeba.txt`` from the authors'
    page, https://mmlab.ie.cuhk.edu.hk/projects/CelebA.html, and unpack them there.

    Parameters
    ----------
    folder
        With ``img_align_celeba/*.jpg`` and ``list_attr_celeba.txt``.
    attribute
        A column of the list.
    most
        Read so many faces, those with the attribute first.
    """
    from PIL import Image

    listed = folder / "list_attr_celeba.txt"
    if not listed.exists():
        raise InputError(
            f"{folder} must hold img_align_celeba and list_attr_celeba.txt, from mmlab.ie.cuhk.edu.hk/projects/CelebA.html."
        )
    _, header, *lines = listed.read_text().splitlines()
    column = header.split().index(attribute) + 1
    marks = {line.split()[0]: int(line.split()[column]) > 0 for line in lines if line.strip()}
    names = sorted(marks, key=lambda name: (not marks[name], name))
    half = min(most // 2, sum(marks.values()))
    names = [*names[:half], *[name for name in names if not marks[name]][:half]]
    images = np.stack(
        [
            np.asarray(
                Image.open(folder / "img_align_celeba" / name).convert("RGB").resize((_CELEBA_SIDE, _CELEBA_SIDE))
            )
            for name in names
        ]
    )
    return _rows(images, np.array([marks[name] for name in names], dtype=np.int64))


def standardize(x: Tensor) -> Tensor:
    """Give every pixel mean zero and standard deviation one; constant pixels stay zero."""
    centred = x - x.mean(0)
    spread = centred.std(0, correction=0)
    scaled: Tensor = centred / torch.where(spread > 0, spread, 1)
    return scaled


def _rows(images: np.ndarray, labels: np.ndarray) -> ImageRows:
    height, width, channels = images.shape[1:]
    pixels = torch.from_numpy(np.ascontiguousarray(images.transpose(0, 3, 1, 2))).float() / 255
    return ImageRows(
        pixels.flatten(1), torch.from_numpy(np.asarray(labels).astype(np.int64)), (channels, height, width)
    )


def _fetch(url: str, known_hash: str) -> str:
    try:
        import pooch
    except ImportError as error:
        raise MissingDependencyError(
            "fetching images needs pooch: pip install 'ntkit[data]', or pass a file"
        ) from error
    return str(pooch.retrieve(url, known_hash))
