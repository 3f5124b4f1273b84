"""Which derivatives of a network serve as features."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import nn

from ntkit.errors import InputError

__all__ = ["Coordinate", "draw_coordinates"]


@dataclass(frozen=True, order=True)
class Coordinate:
    """One derivative used as a feature.

    Attributes
    ----------
    parameter
        Name of the parameter.
    output
        Which output is differentiated.
    index
        Index of the entry in the flattened parameter.
    """

    parameter: str
    output: int
    index: int


def draw_coordinates(module: nn.Module, outputs: int, count: int, seed: int) -> tuple[Coordinate, ...]:
    """Draw pairs of an output and an entry of a trained parameter, without repetition, sorted."""
    sizes = {name: parameter.numel() for name, parameter in module.named_parameters() if parameter.requires_grad}
    total = outputs * sum(sizes.values())
    if count > total:
        raise InputError(f"features must be at most {total}, the derivatives that the network has. Got {count}.")
    drawn = torch.randperm(total, generator=torch.Generator().manual_seed(seed))[:count].sort().values.tolist()
    found, start = [], 0
    names = iter(sizes.items())
    name, size = next(names)
    for number in drawn:
        while number >= start + outputs * size:
            start += outputs * size
            name, size = next(names)
        output, index = divmod(number - start, size)
        found.append(Coordinate(name, output, index))
    return tuple(found)
