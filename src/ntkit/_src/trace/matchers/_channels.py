"""Channels split into parts: chunk, split and gated linear units. Different channels are independent fields."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .._builder import Builder, Refused
from .._values import BATCH, CHANNEL, Block, Field
from ._activations import sigmoid
from ._arithmetic import multiply
from ._linear import select
from ._registry import matches

__all__: list[str] = []


def split_channels(builder: Builder, x: Field, dim: int, sizes: Sequence[int]) -> tuple[Field, ...]:
    """Split the channels into parts of given sizes."""
    if x.core(dim) != (CHANNEL,) or any(block.merged for block in x.blocks) or x.order is not None:
        raise Refused(
            "it cuts a dimension in which positions are merged with the channels",
            "cut the channels before flattening",
            x,
        )
    ends = list(accumulate(sizes))
    return tuple(_part(builder, x, end - size, end) for size, end in zip(sizes, ends, strict=True))


def _part(builder: Builder, x: Field, start: int, stop: int) -> Field:
    blocks, first = [], 0
    for block in x.blocks:
        low, high = max(start - first, 0), min(stop - first, block.width)
        if low < high:
            whole = (low, high) == (0, block.width)
            node = block.node if whole else builder.part(block.node, low, high, block.width)
            blocks.append(Block(node, high - low))
        first += block.width
    return replace(x, blocks=tuple(blocks), channels=stop - start)


def _parts(builder: Builder, x: Field, dim: int, sizes: Sequence[int]) -> tuple[Field, ...]:
    dim %= len(x.dims)
    if BATCH in x.dims[dim]:
        raise Refused("it cuts the batch into parts", "cut channels or positions", x)
    if CHANNEL in x.dims[dim]:
        return split_channels(builder, x, dim, sizes)
    x, axis = builder.axis_of(x, dim)
    ends = list(accumulate(sizes))
    return tuple(select(builder, x, axis, range(end - size, end)) for size, end in zip(sizes, ends, strict=True))


@matches(torch.chunk, "chunk", family="shape", note="parts of the channels, which are independent, or of positions")
def chunk(builder: Builder, x: Field, chunks: int, dim: int = 0) -> tuple[Field, ...]:
    """Split into a given number of equal parts."""
    length = x.shape[dim]
    size = -(-length // chunks)
    return _parts(builder, x, dim, [min(size, length - start) for start in range(0, length, size)])


@matches(torch.split, "split", "split_with_sizes", torch.split_with_sizes, family="shape")
def split(builder: Builder, x: Field, split_size_or_sections: Any, dim: int = 0) -> tuple[Field, ...]:
    """Split into parts of one size, or of given sizes."""
    length = x.shape[dim]
    sizes = split_size_or_sections
    if not isinstance(sizes, (tuple, list)):
        sizes = [min(int(sizes), length - start) for start in range(0, length, int(sizes))]
    return _parts(builder, x, dim, [int(size) for size in sizes])


@matches(
    F.glu, torch._C._nn.glu, "glu",
    modules={nn.GLU: lambda module, path: {"dim": module.dim}},
    family="activation, by quadrature",
    note="GLU: the halves of the channels are independent",
)  # fmt: skip
def glu(builder: Builder, x: Field, dim: int = -1) -> Field:
    """Multiply the first half of the channels by the sigmoid of the second."""
    dim %= len(x.dims)
    if CHANNEL not in x.dims[dim]:
        raise Refused(
            "it gates positions by others, which depend on each other",
            "gate channels: nn.GLU(dim) with their dimension",
            x,
        )
    half = x.channels // 2
    value, gate = split_channels(builder, x, dim, (half, half))
    gated: Field = multiply(builder, value, sigmoid(builder, gate))
    return gated
