"""Conversion between the tensors of a module and the finite forms of a program: where each entry is among the blocks."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from ._builder import Builder
from ._values import BATCH, CHANNEL, Field


def entry_numbers(builder: Builder, field: Field, atoms: Sequence[int]) -> Tensor:
    """Return, for the entries that some atoms enumerate in the tensor's order, their indices (entries,) in the finite form.

    There the blocks are concatenated, and in each the channels vary slowest, then the position axes in order.
    """
    axes = sorted(atom for atom in atoms if atom >= 0)
    sizes = [field.positions[axis] for axis in axes]
    parts, start = [], 0
    for block in field.blocks:
        merged = math.prod(builder.nodes[block.node].positions[axis] for axis in block.merged)
        count = block.width * math.prod(sizes) * merged
        numbers = torch.arange(start, start + count).reshape(block.width, *sizes, merged)
        parts.append(numbers.movedim(0, -2).flatten(-2))
        start += count
    whole = torch.cat(parts, -1)  # (*sizes, channels)
    if field.order is not None:
        whole = whole[..., field.order]
    places = {**{axis: place for place, axis in enumerate(axes)}, CHANNEL: len(axes)}
    return whole.permute([places[atom] for atom in atoms]).flatten()


def rearranged(tensor: Tensor, numbers: Tensor, dim: int) -> Tensor:
    """Reorder a dimension of a parameter from the tensor's order to that of the finite form."""
    if bool((numbers == torch.arange(len(numbers))).all()):
        return tensor
    return tensor.index_select(dim, numbers.argsort().to(tensor.device))


def tensor_of(builder: Builder, field: Field, values: Sequence[Tensor]) -> Tensor:
    """Return the module's tensor for a field, from the values of all nodes in a finite network."""
    parts = []
    for block in field.blocks:
        value = values[block.node].expand(field.batch, *builder.nodes[block.node].positions, block.width)
        if block.merged:
            first = -1 - len(block.merged)
            value = value.movedim(-1, first).flatten(first)
        parts.append(value)
    whole = torch.cat(parts, -1)  # (n, *positions, channels)
    if field.order is not None:
        whole = whole[..., field.order.to(whole.device)]
    places = {BATCH: 0, CHANNEL: whole.ndim - 1, **{axis: axis + 1 for axis in range(len(field.positions))}}
    order = [places[atom] for dim in field.dims for atom in dim]
    unseen = [place for place in range(whole.ndim) if place not in order]  # axes of length one
    return whole.permute(*order, *unseen).reshape(field.shape)
