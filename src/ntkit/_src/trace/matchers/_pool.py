"""Averages over positions: AvgPool, AdaptiveAvgPool, mean and sum over dimensions."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ntkit._src.program import AdaptiveAvgPool, AvgPool

from .._builder import Builder, Refused
from .._values import BATCH, CHANNEL, Field
from ._positions import expand
from ._registry import matches

__all__: list[str] = []


def _pool_axis(builder: Builder, x: Field, op: AvgPool | AdaptiveAvgPool) -> Field:
    return builder.map_axes(x, op, x.with_length(op.axis, op.size))


def avg_pool(
    ndim: int,
    builder: Builder,
    x: Field,
    kernel_size: Any,
    stride: Any = None,
    padding: Any = 0,
    ceil_mode: bool = False,
    count_include_pad: bool = True,
    divisor_override: int | None = None,
) -> Field:
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


_KINDS = (
    (1, nn.AvgPool1d, F.avg_pool1d, nn.AdaptiveAvgPool1d, F.adaptive_avg_pool1d),
    (2, nn.AvgPool2d, F.avg_pool2d, nn.AdaptiveAvgPool2d, F.adaptive_avg_pool2d),
    (3, nn.AvgPool3d, F.avg_pool3d, nn.AdaptiveAvgPool3d, F.adaptive_avg_pool3d),
)
for _ndim, _pool, _pool_function, _adaptive, _adaptive_function in _KINDS:
    matches(
        _pool_function,
        f"avg_pool{_ndim}d",
        modules={_pool: _pool_arguments},
        family="pooling",
        note="any window, stride and padding",
    )(partial(avg_pool, _ndim))
    matches(
        _adaptive_function,
        f"adaptive_avg_pool{_ndim}d",
        modules={_adaptive: ("output_size",)},
        family="pooling",
        note="adaptive to any size",
    )(partial(adaptive_avg_pool, _ndim))
