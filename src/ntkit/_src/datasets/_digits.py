"""The 8x8 digits that scikit-learn ships, as image tensors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sklearn.datasets
import torch
from torch import Tensor

from ntkit.errors import InputError


@dataclass(frozen=True)
class Digits:
    """Handwritten digits.

    Attributes
    ----------
    images
        Shape (n, 1, 8, 8), float64, 0 for paper and 1 for ink.
    labels
        Shape (n,), int64, 0 to 9.
    """

    images: Tensor
    labels: Tensor

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, index: Tensor) -> Digits:
        """Return the digits at some positions, in that order.

        Parameters
        ----------
        index
            Shape (m,), int64.
        """
        return Digits(self.images[index], self.labels[index])


def load_digits() -> Digits:
    """Load scikit-learn's 1,797 digits, which come with the package.

    They are the test part of the UCI set "Optical recognition of handwritten digits" (Alpaydin and Kaynak 1998).

    Examples
    --------
    >>> digits = load_digits()
    >>> digits.images.shape, digits.images.dtype
    (torch.Size([1797, 1, 8, 8]), torch.float64)
    >>> digits.labels[:4]
    tensor([0, 1, 2, 3])
    """
    pixels, labels = sklearn.datasets.load_digits(return_X_y=True)
    images = torch.tensor(pixels, dtype=torch.float64).reshape(-1, 1, 8, 8) / 16  # pixels measure ink from 0 to 16
    return Digits(images, torch.tensor(labels, dtype=torch.int64))


def balanced_split(labels: Tensor, sizes: Sequence[int], seed: int) -> tuple[Tensor, ...]:
    """Draw disjoint index sets at random, each with equally many of every class.

    Parameters
    ----------
    labels
        Shape (n,), integers.
    sizes
        The size of each set, a multiple of the number of classes.
    seed
        Seed of the draw: the same labels, sizes and seed give the same sets on every machine.

    Returns
    -------
    tuple of Tensor
        For each size, a sorted index, int64, shape (size,).

    Raises
    ------
    InputError
        If a size is not a positive multiple of the number of classes, or a class has too few members for all the sets.

    Examples
    --------
    >>> labels = torch.tensor([0, 0, 0, 0, 1, 1, 1, 1])
    >>> train, test = balanced_split(labels, [4, 2], seed=0)
    >>> labels[train], labels[test]
    (tensor([0, 0, 1, 1]), tensor([0, 1]))
    """
    if not len(labels):
        raise InputError("labels must have at least one. Got none: no image has the classes asked for.")
    classes, counts = torch.unique(labels, return_counts=True)
    each = [size // len(classes) for size in sizes]
    for size, quota in zip(sizes, each, strict=True):
        if quota < 1 or quota * len(classes) != size:
            raise InputError(f"a size must be a positive multiple of the {len(classes)} classes. Got {size}.")
    if sum(each) > int(counts.min()):
        raise InputError(
            f"sizes must add up to at most {int(counts.min()) * len(classes)}: the rarest class has "
            f"{int(counts.min())} members. Got {list(sizes)}."
        )
    generator = torch.Generator().manual_seed(seed)
    parts: list[list[Tensor]] = [[] for _ in sizes]
    for label in classes:
        members = torch.nonzero(labels == label).squeeze(1)
        shuffled = members[torch.randperm(len(members), generator=generator)]
        for part, piece in zip(parts, shuffled[: sum(each)].split(each), strict=True):
            part.append(piece)
    return tuple(torch.cat(part).sort().values for part in parts)
