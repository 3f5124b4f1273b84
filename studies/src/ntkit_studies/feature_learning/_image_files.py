"""Images for figures 13 and 14: an .npz file such as one of SVHN, or the digits."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from zipfile import BadZipFile

import numpy as np
import torch
from torch import Tensor

from ntkit.datasets import load_digits
from ntkit.errors import InputError

__all__ = ["ImageRows", "load_image_rows", "standardize"]


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
        """Draw n images at random, equally many of every class (or of the named classes, renumbered)."""
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


def load_image_rows(path: Path | None) -> ImageRows:
    """Read ``x_train``, shape (n, height, width, channels), uint8, and ``y_train`` of an .npz file; None takes the digits."""
    if path is None:
        digits = load_digits()
        channels, height, width = digits.images.shape[1:]
        return ImageRows(digits.images.flatten(1).float(), digits.labels, (channels, height, width))
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as file:
            return _rows(file["x_train"], file["y_train"])
    except (OSError, KeyError, ValueError, TypeError, EOFError, BadZipFile) as error:
        raise InputError(
            f"cannot read {path}: {error}. Expected an .npz file with x_train, shape (n, height, width, channels), and y_train."
        ) from error


def standardize(x: Tensor) -> Tensor:
    """Scale every pixel to mean zero and standard deviation one; constant pixels stay zero."""
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
