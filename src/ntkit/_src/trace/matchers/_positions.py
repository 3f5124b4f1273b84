"""Positions read from elsewhere: slices, flips and padding, and any matrix along one axis."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.program import ConstantMap, Reindex

from .._builder import Builder, Refused
from .._values import BATCH, CHANNEL, Field
from ._registry import matches


def expand(value: Any, ndim: int) -> tuple[int, ...]:
    """Return one value per axis from PyTorch's convention of one value for all axes or one for each."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(v) for v in (values * ndim if len(values) == 1 else values))


def select(builder: Builder, x: Field, axis: int, index: Sequence[int], name: str = "reindex") -> Field:
    """Read the positions ``index`` along one axis, zeros where it is negative."""
    if list(index) == list(range(x.positions[axis])):
        return x
    return builder.map_axes(x, Reindex(axis, tuple(index), name), x.with_length(axis, len(index)))


def pad_axis(builder: Builder, x: Field, axis: int, pad: tuple[int, int], mode: str) -> Field:
    """Pad (or, with negative numbers, crop) one axis: zeros, circular, reflect or replicate."""
    size = x.positions[axis]
    index = []
    for p in range(-pad[0], size + pad[1]):
        if mode == "circular":
            p %= size
        elif mode == "replicate":
            p = min(max(p, 0), size - 1)
        elif mode == "reflect":
            p = abs(p) if p < size else 2 * (size - 1) - p
        elif not 0 <= p < size:
            p = -1
        index.append(p)
    return select(builder, x, axis, index)


def map_axis(builder: Builder, x: Field, axis: int, matrix: Tensor, name: str) -> Field:
    """Apply x'[q] = sum_p A[q, p] x[p] along one axis; ``matrix`` is A, shape (positions after, positions before)."""
    rows, columns = matrix.shape
    chosen = matrix != 0
    if bool((chosen.sum(1) <= 1).all()) and bool((matrix[chosen] == 1).all()):  # every row reads one position
        index = torch.where(chosen.any(1), chosen.to(torch.int64).argmax(1), -1).tolist() if columns else [-1] * rows
        return select(builder, x, axis, index, name)
    return builder.map_axes(x, ConstantMap.of(axis, matrix, name), x.with_length(axis, rows))


@matches(operator.getitem, family="shape", note="slices along positions")
def getitem(builder: Builder, x: Field, index: Any) -> Field:
    """Slice along positions: x[:, 0], x[..., ::2], x[:, :, None]."""
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(x.dims) - sum(item is not None for item in items) + 1
        items[at : at + 1] = [slice(None)] * missing
    dim = 0
    for item in items:
        if item is None:
            x = x.unsqueeze(dim)
            dim += 1
        elif isinstance(item, slice) and item == slice(None):
            dim += 1
        elif isinstance(item, (int, slice)):
            if BATCH in x.dims[dim] or CHANNEL in x.dims[dim]:
                raise Refused(
                    "it takes a part of the " + ("batch" if BATCH in x.dims[dim] else "channels"),
                    "slice positions only; split channels by separate layers",
                )
            x, axis = builder.axis_of(x, dim)
            picked = range(x.positions[axis])[item]
            x = select(builder, x, axis, [picked] if isinstance(picked, int) else picked)
            if isinstance(item, int):
                x = x.squeeze(dim)
            else:
                dim += 1
        else:
            raise Refused("it is indexed by a tensor or a mask", "slice with constants")
    return x


@matches("select", torch.select)
def select_(builder: Builder, x: Field, dim: int, index: int) -> Field:
    """Take one position."""
    taken: Field = getitem(builder, x, (slice(None),) * (dim % len(x.dims)) + (index,))
    return taken


@matches("slice")
def slice_(builder: Builder, x: Field, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Field:
    """Take a range of positions."""
    stop = None if end is None or end >= x.shape[dim] else end
    chosen = slice(start or None, stop, None if step == 1 else step)
    taken: Field = getitem(builder, x, (slice(None),) * (dim % len(x.dims)) + (chosen,))
    return taken


@matches("flip", torch.flip, family="shape")
def flip(builder: Builder, x: Field, *dims: Any) -> Field:
    """Reverse positions."""
    chosen = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    for dim in chosen:
        x, axis = builder.axis_of(x, dim % len(x.dims))
        x = select(builder, x, axis, range(x.positions[axis])[::-1])
    return x


_PADS: dict[str, tuple[type[nn.Module], ...]] = {
    "constant": (nn.ZeroPad1d, nn.ZeroPad2d, nn.ZeroPad3d),
    "circular": (nn.CircularPad1d, nn.CircularPad2d, nn.CircularPad3d),
    "reflect": (nn.ReflectionPad1d, nn.ReflectionPad2d, nn.ReflectionPad3d),
    "replicate": (nn.ReplicationPad1d, nn.ReplicationPad2d, nn.ReplicationPad3d),
}


def _pad_arguments(mode: str, module: Any, path: str) -> dict[str, Any]:
    return {"pad": module.padding, "mode": mode}


def _constant_pad_arguments(module: Any, path: str) -> dict[str, Any]:
    return {"pad": module.padding, "value": module.value}


@matches(
    F.pad,
    torch._C._nn.pad,
    "pad",
    modules={
        **{kind: partial(_pad_arguments, mode) for mode, kinds in _PADS.items() for kind in kinds},
        **dict.fromkeys((nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d), _constant_pad_arguments),
    },
    family="shape",
    note="padding with zeros, circular, reflect or replicate",
)
def pad(builder: Builder, x: Field, pad: Any, mode: str = "constant", value: float | None = None) -> Field:
    """Pad positions."""
    if mode == "constant" and value:
        raise Refused("it pads with a constant that is not zero", "pad with zeros")
    for index in range(len(pad) // 2):
        amounts = (int(pad[2 * index]), int(pad[2 * index + 1]))
        if amounts != (0, 0):
            x, axis = builder.axis_of(x, len(x.dims) - 1 - index)
            x = pad_axis(builder, x, axis, amounts, mode)
    return x
