"""Images for the experiments: from the user's file, or scikit-learn's 8x8 digits."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.datasets import balanced_split, load_digits
from ntkit.errors import InputError

__all__ = ["CIFAR_CLASSES", "FILES", "Images", "images_size", "load_images", "pair_name"]

FILES = "images as an .npz file with x_train, y_train, x_test, y_test (scikit-learn's digits)"
"""What ``--data`` takes in experiments on images."""

CIFAR_CLASSES = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")


def pair_name(classes: Sequence[int], from_file: bool) -> str:
    """Name two classes: in the words of CIFAR-10 where the images come from a file, else as digits."""
    return " vs ".join(CIFAR_CLASSES[one] if from_file else str(one) for one in classes)


@dataclass(frozen=True)
class Images:
    """Training and test images with their classes.

    Attributes
    ----------
    x, x_test
        Shape (n, channels, side, side), float32.
    y, y_test
        Shape (n,), the classes.
    """

    x: Tensor
    y: NDArray[Any]
    x_test: Tensor
    y_test: NDArray[Any]


def load_images(
    train: int,
    test: int,
    seed: int,
    data: Path | None = None,
    classes: Sequence[int] | None = None,
    pixels: Literal["standardised", "signed"] = "standardised",
) -> Images:
    """Draw training and test images, equally many of each class.

    Parameters
    ----------
    train, test
        How many of each.
    seed
        Decides which images.
    data
        An ``.npz`` file with ``x_train`` and ``x_test`` of shape (n, side, side, channels), uint8, and ``y_train``,
        ``y_test``: the images are standardised by channel, by the mean and deviation of the training images drawn. None takes
        the digits, as they are.
    classes
        Only these; None takes all.
    pixels
        Of a file: ``"signed"`` maps 0 and 255 to -1 and 1 instead of standardising.
    """
    if data is None:
        digits = load_digits()
        rows = _rows_of(digits.labels, classes)
        images, labels = digits.images[rows].float(), digits.labels[rows]
        first, second = balanced_split(labels, [train, test], seed)
        return Images(images[first], labels[first].numpy(), images[second], labels[second].numpy())
    parts = []
    try:
        with np.load(data) as arrays:
            for part, size in (("train", train), ("test", test)):
                array = np.asarray(arrays[f"x_{part}"])
                labels = torch.from_numpy(np.asarray(arrays[f"y_{part}"], np.int64))
                if array.ndim != 4 or array.dtype != np.uint8 or labels.shape != (len(array),):
                    raise InputError(
                        f"x_{part} must be uint8 of shape (n, side, side, channels) and y_{part} of shape (n,)."
                    )
                rows = _rows_of(labels, classes)
                chosen = rows[balanced_split(labels[rows], [size], seed)[0]].numpy()
                parts.append(
                    (torch.from_numpy(array[chosen]).permute(0, 3, 1, 2).float() / 255, labels.numpy()[chosen])
                )
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{data} must be an .npz file with x_train, y_train, x_test and y_test: {error}") from error
    (x, y), (x_test, y_test) = parts
    if pixels == "signed":
        return Images(2 * x - 1, y, 2 * x_test - 1, y_test)
    mean, deviation = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return Images((x - mean) / deviation, y, (x_test - mean) / deviation, y_test)


def images_size(train: int, test: int, pool: int = 1) -> str:
    """Return in words how many images a run has, and what is left of their pixels."""
    averaged = f", pixels averaged over squares of {pool}" if pool > 1 else ""
    return f"{train:,} training and {test:,} test images{averaged}"


def _rows_of(labels: Tensor, classes: Sequence[int] | None) -> Tensor:
    if classes is None:
        return torch.arange(len(labels))
    return torch.nonzero((labels[:, None] == torch.tensor(list(classes))).any(1)).squeeze(1)
