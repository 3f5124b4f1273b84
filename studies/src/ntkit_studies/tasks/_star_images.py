"""Images of noise, half of which have a star somewhere."""

from __future__ import annotations

import torch
from torch import Tensor

from ._draws import check_count, check_generator

__all__ = ["star_images"]

_STAR = ("...#...", "..###..", "#######", ".#####.", "..###..", ".#####.", ".##.##.")
_SIZE, _NOISE, _CORNER, _FREE = 32, 0.3, (3, 7), 18


def star_images(n: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Draw images of noise, with a yellow star at a random place in half of them (Beaglehole et al. 2023, "star").

    A star has the value 1 in the first two of three channels; noise has the standard deviation 0.3. No pixel tells the classes
    apart, because the star may be anywhere: a kernel without a metric on patches sees little of it.

    Parameters
    ----------
    n
        Number of images.
    generator
        Generator of the draw.

    Returns
    -------
    tuple
        Images, shape (n, 3, 32, 32), float64, and whether each has a star, shape (n,), int64.

    Examples
    --------
    >>> import torch
    >>> images, labels = star_images(4, torch.Generator().manual_seed(0))
    >>> images.shape, labels.sum().item()
    (torch.Size([4, 3, 32, 32]), 2)
    """
    check_count("n", n)
    check_generator(generator)
    images = _NOISE * torch.randn(n, 3, _SIZE, _SIZE, generator=generator, dtype=torch.float64)
    labels = (torch.randperm(n, generator=generator) < n // 2).long()
    star = torch.tensor([[mark == "#" for mark in row] for row in _STAR])
    for index in torch.nonzero(labels).squeeze(1):
        down, right = torch.randint(_FREE, (2,), generator=generator).tolist()
        top, left = _CORNER[0] + down, _CORNER[1] + right
        images[index, :2, top : top + star.shape[0], left : left + star.shape[1]].masked_fill_(star, 1.0)
    return images, labels
