"""Positions read from elsewhere or averaged: slices, flips, padding, any matrix along one axis, pooling, mean and sum."""

from __future__ import annotations

import math
import operator
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.program import AdaptiveAvgPool, AvgPool, ConstantMap, Join, Reindex

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
    positions = x.with_length(axis, len(index))
    ops = [builder.nodes[block.node].op for block in x.blocks]
    if len(index) == 1 and all(isinstance(op, Join) and op.axis == axis and set(op.sizes) == {1} for op in ops):
        return builder.each_block(x, lambda block: builder.nodes[block.node].inputs[index[0]], positions)
    return builder.map_axes(x, Reindex(axis, tuple(index), name), positions)


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
    return getitem(builder, x, (slice(None),) * (dim % len(x.dims)) + (index,))


@matches("slice")
def slice_(builder: Builder, x: Field, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Field:
    """Take a range of positions."""
    stop = None if end is None or end >= x.shape[dim] else end
    chosen = slice(start or None, stop, None if step == 1 else step)
    return getitem(builder, x, (slice(None),) * (dim % len(x.dims)) + (chosen,))


@matches("flip", torch.flip, family="shape")
def flip(builder: Builder, x: Field, *dims: Any) -> Field:
    """Reverse positions."""
    chosen = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    for dim in chosen:
        x, axis = builder.axis_of(x, dim % len(x.dims))
        x = select(builder, x, axis, range(x.positions[axis])[::-1])
    return x


_PADS = {
    "Zero": "constant",
    "Constant": "constant",
    "Circular": "circular",
    "Reflection": "reflect",
    "Replication": "replicate",
}


def _pad_arguments(mode: str, module: Any, path: str) -> dict[str, Any]:
    return {"pad": module.padding, "mode": mode, "value": module.value if mode == "constant" else None}


@matches(
    F.pad,
    torch._C._nn.pad,
    "pad",
    modules={
        getattr(nn, f"{kind}Pad{n}d"): partial(_pad_arguments, mode) for kind, mode in _PADS.items() for n in (1, 2, 3)
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


def _pool_axis(builder: Builder, x: Field, op: AvgPool | AdaptiveAvgPool) -> Field:
    return builder.map_axes(x, op, x.with_length(op.axis, op.size))


def avg_pool(
    ndim: int, builder: Builder, x: Field, kernel_size: Any, stride: Any = None, padding: Any = 0,
    ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None,
) -> Field:  # fmt: skip
    """Average both sides of the covariance over the window."""
    kernel = expand(kernel_size, ndim)
    strides = kernel if stride is None or stride == [] else expand(stride, ndim)
    pads = expand(padding, ndim)
    for index in range(ndim):
        dim = len(x.dims) - ndim + index
        x, axis = builder.axis_of(x, dim)
        room = x.positions[axis] + 2 * pads[index] - kernel[index]
        size = (math.ceil if ceil_mode else math.floor)(room / strides[index]) + 1
        if ceil_mode and (size - 1) * strides[index] >= x.positions[axis] + pads[index]:
            size -= 1  # the last window must begin inside the input or its left padding
        divisor = None if divisor_override is None else float(divisor_override) if index == 0 else 1.0
        op = AvgPool(axis, kernel[index], strides[index], pads[index], size, count_include_pad, divisor)
        x = _pool_axis(builder, x, op)
    return x


def adaptive_avg_pool(ndim: int, builder: Builder, x: Field, output_size: Any) -> Field:
    """Average over windows that cover the input; an output size of one is global average pooling."""
    sizes = tuple(output_size) if isinstance(output_size, (tuple, list)) else (output_size,) * ndim
    for index in range(ndim):
        x, axis = builder.axis_of(x, len(x.dims) - ndim + index)
        size = x.positions[axis]
        out = size if sizes[index] is None else int(sizes[index])
        if size % out:
            x = _pool_axis(builder, x, AdaptiveAvgPool(axis, out))
        elif out != size:
            x = _pool_axis(builder, x, AvgPool(axis, size // out, size // out, 0, out))
    return x


def reduced(builder: Builder, x: Field, dim: Any, keepdim: bool, divide: bool) -> Field:
    """Average over whole dimensions of positions, or sum over them if ``divide`` is False."""
    if dim is None or dim == []:
        raise Refused("it reduces the batch as well", "name the position dimensions: x.mean((2, 3))")
    dims = sorted(int(d) % len(x.dims) for d in (dim if isinstance(dim, (tuple, list, torch.Size)) else (dim,)))
    for d in dims:
        if BATCH in x.dims[d]:
            raise Refused(
                "it reduces the batch: the kernel of two inputs would depend on all others", "reduce positions only"
            )
        if CHANNEL in x.dims[d]:
            raise Refused(
                "it reduces the channels, whose sum does not concentrate and whose mean vanishes in the limit",
                "read the channels with an nn.Linear layer instead",
            )
        for axis in x.dims[d]:
            size = x.positions[axis]
            x = _pool_axis(builder, x, AvgPool(axis, size, size, 0, 1, divisor=None if divide else 1.0))
    if not keepdim:
        for d in reversed(dims):
            x = x.squeeze(d)
    return x


@matches("mean", torch.mean, family="pooling", note="over positions")
def mean(builder: Builder, x: Field, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Field:
    """Average over positions."""
    return reduced(builder, x, dim, keepdim, divide=True)


@matches("sum", torch.sum, family="pooling")
def sum_(builder: Builder, x: Field, dim: Any = None, keepdim: bool = False, dtype: Any = None) -> Field:
    """Sum over positions."""
    return reduced(builder, x, dim, keepdim, divide=False)


def _pool_arguments(module: Any, path: str) -> dict[str, Any]:
    names = ("kernel_size", "stride", "padding", "ceil_mode", "count_include_pad")
    divisor = getattr(module, "divisor_override", None)  # AvgPool1d has none
    return {**{name: getattr(module, name) for name in names}, "divisor_override": divisor}


for _ndim in (1, 2, 3):
    for _build, _name, _kind, _arguments, _note in (
        (avg_pool, f"avg_pool{_ndim}d", f"AvgPool{_ndim}d", _pool_arguments, "any window, stride and padding"),
        (adaptive_avg_pool, f"adaptive_avg_pool{_ndim}d", f"AdaptiveAvgPool{_ndim}d", ("output_size",), "adaptive to any size"),
    ):  # fmt: skip
        _modules = {getattr(nn, _kind): _arguments}
        matches(getattr(F, _name), _name, modules=_modules, family="pooling", note=_note)(partial(_build, _ndim))
