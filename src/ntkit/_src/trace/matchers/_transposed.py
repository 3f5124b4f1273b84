"""Transposed convolutions: zeros between the positions, then a convolution of stride one.

y[q] = sum over p, r with p s - pad + d r = q of W_r x[p] reads the input with s - 1 zeros between its positions, padded by
d (k - 1) - pad, through the reversed window. In the limit the reversal makes no difference, so
K'[q, q'] = w^2 / k^n sum_r sum_{p, p'} K[p, p'] + c^2 with the same tap r on both sides. The divisor is the whole window k^n:
where a stride leaves fewer taps to each q, the gain falls by as much.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.program import Conv

from .._builder import Builder, Held
from .._layout import entry_numbers, rearranged
from .._values import CHANNEL, Block, Data, Field, Weight
from ._linear import check_groups, check_plain, checked_weights, expand, image_field, layer_parameters, select
from ._registry import matches

__all__: list[str] = []


def conv_transpose(
    ndim: int,
    builder: Builder,
    x: Any,
    weight: object,
    bias: object = None,
    stride: Any = 1,
    padding: Any = 0,
    output_padding: Any = 0,
    groups: int = 1,
    dilation: Any = 1,
    output_size: Any = None,
) -> Field:
    """Insert zeros, then average over the window."""
    weight, bias = checked_weights(weight, bias)
    raw = isinstance(x, Data)
    x = image_field(ndim, builder, x)
    kernel = tuple(int(size) for size in weight.parameter.shape[2:])
    stride, padding, extra, dilation = (expand(v, ndim) for v in (stride, padding, output_padding, dilation))
    axes = []
    for index in range(ndim):
        x, axis = builder.axis_of(x, 2 + index)
        axes.append(axis)
        smallest = (
            (x.positions[axis] - 1) * stride[index] - 2 * padding[index] + dilation[index] * (kernel[index] - 1) + 1
        )
        more = extra[index] if output_size is None else int(output_size[index - ndim]) - smallest
        x = _spread(builder, x, axis, stride[index], dilation[index] * (kernel[index] - 1) - padding[index], more)
    entries, per_group = weight.parameter.shape[0] // groups, int(weight.parameter.shape[1])
    fan_in = entries * math.prod(kernel)
    # PyTorch's default initialisation takes the fan from dimension 1 of the weight, here the output channels.
    torch_fan = per_group * math.prod(kernel)
    torch_gains = (fan_in / (3 * torch_fan)) ** 0.5, (3 * torch_fan) ** -0.5
    gains = builder.layer_gains(weight, bias, fan_in, torch_gains)
    op = Conv(gains, tuple(axes), kernel, (1,) * ndim, dilation, ((0, 0),) * ndim, False)
    joined = builder.join(x)
    positions = list(x.positions)
    for index, axis in enumerate(axes):
        positions[axis] = op.output_size(index, positions[axis])
    node = builder.add(op, (joined,), positions, gaussian=True, centred=True)
    numbers = entry_numbers(builder, x, (CHANNEL,)) if groups == 1 else torch.arange(entries)
    builder.held[node] = _held(weight, bias, groups, numbers)
    width = groups * per_group
    result = Field((Block(node, width),), tuple(positions), x.dims, width, x.batch)
    check_plain(weight, bias, then=result)
    if groups > 1:
        check_groups(x, groups, raw, result)
    return result


def _spread(builder: Builder, x: Field, axis: int, stride: int, pad: int, more: int) -> Field:
    """Put ``stride`` - 1 zeros between positions, ``pad`` at both ends (negative: crop), and ``more`` at the end."""
    index = [p // stride if p % stride == 0 else -1 for p in range((x.positions[axis] - 1) * stride + 1)]
    index = [-1] * pad + index + [-1] * (pad + more)
    if pad < 0:
        index = index[-pad : pad + more or None] if pad + more < 0 else index[-pad:]
    return select(builder, x, axis, index, "zeros between")


def _held(weight: Weight, bias: Weight | None, groups: int, numbers: Tensor) -> Held:
    """Return the weight (in, out of a group, *kernel) as that of a convolution, (out, in of a group, *kernel), reversed."""

    def turned(tensor: Tensor) -> Tensor:
        split = tensor.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        return rearranged(split.flip(list(range(2, split.ndim))), numbers, 1)

    return lambda read: (turned(read(weight)), None if bias is None else read(bias))


def _arguments(module: Any, path: str) -> dict[str, Any]:
    names = ("stride", "padding", "output_padding", "groups", "dilation")
    return {**layer_parameters(module, path), **{name: getattr(module, name) for name in names}}


def _of_module(ndim: int, builder: Builder, x: Any, output_size: Any = None, **options: Any) -> Field:
    return conv_transpose(ndim, builder, x, output_size=output_size, **options)


def _exported(ndim: int, builder: Builder, x: Any, weight: object, bias: object = None, *rest: Any) -> Field:
    return conv_transpose(ndim, builder, x, weight, bias, *rest)


for _ndim, _module, _function in (
    (1, nn.ConvTranspose1d, F.conv_transpose1d),
    (2, nn.ConvTranspose2d, F.conv_transpose2d),
    (3, nn.ConvTranspose3d, F.conv_transpose3d),
):
    matches(
        modules={_module: _arguments},
        family="convolution",
        note="transposed: any stride, padding, output padding and dilation, divided by the whole window",
        fresh=True,
    )(partial(_of_module, _ndim))
    matches(_function, f"conv_transpose{_ndim}d", family="convolution", fresh=True)(partial(_exported, _ndim))
