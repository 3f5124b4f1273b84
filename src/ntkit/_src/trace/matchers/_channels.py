"""Channels split into parts: chunk, split and gated linear units. Different channels are independent fields."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from .._builder import Builder, Refused
from .._values import BATCH, CHANNEL, Field
from ._activations import sigmoid
from ._arithmetic import multiply
from ._positions import select
from ._registry import matches

__all__: list[str] = []


def _parts(builder: Builder, x: Field, dim: int, sizes: Sequence[int]) -> tuple[Field, ...]:
    """Split channels or positions into parts of given sizes."""
    dim %= len(x.dims)
    ranges = list(pairwise(accumulate(sizes, initial=0)))
    if BATCH in x.dims[dim]:
        raise Refused("it cuts the batch into parts", "cut channels or positions", x)
    if CHANNEL not in x.dims[dim]:
        x, axis = builder.axis_of(x, dim)
        return tuple(select(builder, x, axis, range(start, end)) for start, end in ranges)
    if x.core(dim) != (CHANNEL,) or any(block.merged for block in x.blocks) or x.order is not None:
        raise Refused(
            "it cuts a dimension in which positions are merged with the channels",
            "cut the channels before flattening",
            x,
        )
    return tuple(builder.channels(x, start, end) for start, end in ranges)


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
    modules={nn.GLU: ("dim",)},
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
    value, gate = _parts(builder, x, dim, (half, half))
    gated: Field = multiply(builder, value, sigmoid(builder, gate))
    return gated
