"""Layers with weights, how they read and check them: linear, convolutions, and transposed ones as convolutions of spread input.

A transposed convolution, y[q] = sum over p, r with p s - pad + d r = q of W_r x[p], reads the input with s - 1 zeros between
its positions, padded by d (k - 1) - pad, through the reversed window. In the limit the reversal makes no difference, so
K'[q, q'] = w^2 / k^n sum_r sum_{p, p'} K[p, p'] + c^2 with the same tap r on both sides. The divisor is the whole window k^n:
where a stride leaves fewer taps to each q, the gain falls by as much.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.common import parameter_source
from ntkit._src.program import Conv, Dense

from .._builder import EMPIRICAL, Builder, Held, Refused
from .._layout import entry_numbers, rearranged
from .._values import BATCH, CHANNEL, Block, Data, Field, Weight
from ._positions import expand, pad_axis, select
from ._registry import ModuleArguments, matches


def layer_parameters(
    module: nn.Module, path: str, names: Sequence[str] = ("weight", "bias")
) -> dict[str, Weight | None]:
    """Read the weight and the bias of a layer, or other parameters by their names."""
    prefix = f"{path}." if path else ""
    found: dict[str, Weight | None] = {}
    for name in names:
        source = parameter_source(module, name)
        found[name] = None if source is None else Weight(prefix + name, source.value, source.computed_by, source.remedy)
    return found


def with_parameters(*attributes: str, names: Sequence[str] = ("weight", "bias")) -> ModuleArguments:
    """Return the function that reads the parameters of a layer and some of its attributes."""
    return lambda module, path: {
        **layer_parameters(module, path, names),
        **{name: getattr(module, name) for name in attributes},
    }


def check_plain(*weights: Weight | None, then: Field) -> None:
    """Refuse weights that something computes; the analysis continues with ``then``, the result of plain weights."""
    for weight in weights:
        if weight is not None and weight.computed_by:
            name = weight.path.rpartition(".")[2]
            raise Refused(
                f"its {name} is computed by {weight.computed_by}, so its distribution is not that of a plain parameter",
                f"remove that: {weight.remedy}; or {EMPIRICAL}",
                then,
            )


def checked_weights(weight: object, bias: object) -> tuple[Weight, Weight | None]:
    """Refuse weights that are not parameters."""
    if not isinstance(weight, Weight) or not (bias is None or isinstance(bias, Weight)):
        raise Refused(
            "its weights are computed, or fixed numbers, not parameters, so their distribution is not known",
            f"use nn.Linear or nn.Conv layers; or {EMPIRICAL}",
        )
    return weight, bias


def held(weight: Weight, bias: Weight | None, numbers: Tensor) -> Held:
    """Apply a weight with its columns in the order of the finite form, and a bias."""
    return lambda read: (rearranged(read(weight), numbers, 1), None if bias is None else read(bias))


@matches(
    F.linear,
    "linear",
    modules={nn.Linear: layer_parameters},
    family="linear",
    note="on vectors and at every position of (n, positions..., features)",
    fresh=True,
)
def linear(
    builder: Builder, x: Any, weight: object, bias: object = None, torch_gains: tuple[float, float] | None = None
) -> Field:
    """K' = w^2 K + b^2 at every position; positions that were flattened into the features are averaged over."""
    weight, bias = checked_weights(weight, bias)
    if isinstance(x, Data):
        x = builder.data_field(x, x.value.ndim - 1)
    last = len(x.dims) - 1
    if CHANNEL not in x.dims[last]:
        raise Refused(
            "it acts along a position axis, so every channel shares its weights and they do not average out",
            "move the channels to the last dimension first",
        )
    if BATCH in x.dims[last]:
        raise Refused("its input has the batch merged into the features", "keep the batch in dimension 0")
    width, fan_in = weight.parameter.shape
    contracted = [atom for atom in x.dims[last] if atom >= 0]
    joined = builder.join(x, contracted)
    positions = builder.nodes[joined].positions
    numbers = entry_numbers(builder, x, x.dims[last])
    op = Dense(builder.layer_gains(weight, bias, fan_in, torch_gains, numbers))
    node = builder.add(op, (joined,), positions, held=held(weight, bias, numbers), call=weight.parameter.data_ptr())
    kept = [axis for axis in range(len(x.positions)) if axis not in contracted]
    dims = [tuple(kept.index(atom) if atom >= 0 else atom for atom in dim) for dim in x.dims[:-1]]
    result = Field((Block(node, width),), positions, (*dims, (CHANNEL,)), width, x.batch)
    check_plain(weight, bias, then=result)
    return result


Pads = tuple[tuple[int, int], ...]


def conv(
    ndim: int, builder: Builder, x: Any, weight: object, bias: object = None, stride: Any = 1, padding: Any = 0,
    dilation: Any = 1, groups: int = 1, padding_mode: str = "zeros",
) -> Field:  # fmt: skip
    """K'[p, p'] = w^2 mean over the window of K[s p + d e, s p' + d e], + b^2."""
    weight, bias = checked_weights(weight, bias)
    raw = isinstance(x, Data)
    x, axes = _image(ndim, builder, x)
    kernel, strides, dilation = (expand(value, ndim) for value in (weight.parameter.shape[2:], stride, dilation))
    pads = _padding(padding, kernel, dilation)
    if padding_mode in ("reflect", "replicate"):
        for axis, pad in zip(axes, pads, strict=True):
            x = pad_axis(builder, x, axis, pad, padding_mode)
        pads = ((0, 0),) * ndim
    # Groups are slices of the channels in the tensor's order, which is that of a single block.
    numbers = entry_numbers(builder, x, (CHANNEL,)) if groups == 1 else torch.arange(weight.parameter.shape[1])
    gains = builder.layer_gains(weight, bias, weight.parameter[0].numel(), columns=numbers if groups == 1 else None)
    op = Conv(gains, axes, kernel, strides, dilation, pads, padding_mode == "circular")
    call = weight.parameter.data_ptr() if groups == 1 else None
    result = _convolved(builder, x, op, held(weight, bias, numbers), weight.parameter.shape[0], call)
    return _checked(x, groups, raw, weight, bias, result)


def conv_transpose(
    ndim: int, builder: Builder, x: Any, weight: object, bias: object = None, stride: Any = 1, padding: Any = 0,
    output_padding: Any = 0, groups: int = 1, dilation: Any = 1, output_size: Any = None,
) -> Field:  # fmt: skip
    """Insert zeros, then average over the window."""
    weight, bias = checked_weights(weight, bias)
    raw = isinstance(x, Data)
    x, axes = _image(ndim, builder, x)
    kernel = tuple(int(size) for size in weight.parameter.shape[2:])
    strides, padding, extra, dilation = (expand(v, ndim) for v in (stride, padding, output_padding, dilation))
    for index, axis in enumerate(axes):
        reach = dilation[index] * (kernel[index] - 1)
        smallest = (x.positions[axis] - 1) * strides[index] - 2 * padding[index] + reach + 1
        more = extra[index] if output_size is None else int(output_size[index - ndim]) - smallest
        x = _spread(builder, x, axis, strides[index], reach - padding[index], more)
    entries, per_group = weight.parameter.shape[0] // groups, int(weight.parameter.shape[1])
    fan_in = entries * math.prod(kernel)
    # PyTorch's default initialisation takes the fan from dimension 1 of the weight, here the output channels.
    torch_fan = per_group * math.prod(kernel)
    torch_gains = (fan_in / (3 * torch_fan)) ** 0.5, (3 * torch_fan) ** -0.5
    gains = builder.layer_gains(weight, bias, fan_in, torch_gains)
    op = Conv(gains, axes, kernel, (1,) * ndim, dilation, ((0, 0),) * ndim, False)
    numbers = entry_numbers(builder, x, (CHANNEL,)) if groups == 1 else torch.arange(entries)
    result = _convolved(builder, x, op, _held_transposed(weight, bias, groups, numbers), groups * per_group)
    return _checked(x, groups, raw, weight, bias, result)


def _image(ndim: int, builder: Builder, x: Any) -> tuple[Field, tuple[int, ...]]:
    """Read the input as a field (batch, channels, then ``ndim`` dimensions of positions); return it and its position axes."""
    rank = x.value.ndim if isinstance(x, Data) else len(x.dims)
    if rank != ndim + 2:
        raise Refused(
            f"its input has {rank} dimensions, expected {ndim + 2} (batch, channels and {ndim} of positions)",
            "give inputs with a batch dimension",
        )
    field = builder.data_field(x, 1) if isinstance(x, Data) else x
    if field.core(1) != (CHANNEL,):
        raise Refused(
            "dimension 1 of its input is not the channels alone", "keep the channels in dimension 1, positions after it"
        )
    axes = []
    for dim in range(2, ndim + 2):
        field, axis = builder.axis_of(field, dim)
        axes.append(axis)
    return field, tuple(axes)


def _convolved(builder: Builder, x: Field, op: Conv, weights: Held, width: int, call: int | None = None) -> Field:
    positions = list(x.positions)
    for index, axis in enumerate(op.axes):
        positions[axis] = op.output_size(index, positions[axis])
    node = builder.add(op, (builder.join(x),), positions, held=weights, call=call)
    return Field((Block(node, width),), tuple(positions), x.dims, width, x.batch)


def _checked(x: Field, groups: int, raw: bool, weight: Weight, bias: Weight | None, then: Field) -> Field:
    """Return the result ``then``; refuse computed weights, and groups whose channels have different distributions."""
    check_plain(weight, bias, then=then)
    if groups == 1:
        return then
    if raw:
        raise Refused(
            "a grouped convolution on raw channels: each group sees other inputs, so its channels are not exchangeable",
            "use groups=1 in the first convolution",
            then,
        )
    if x.channels == groups:
        raise Refused(
            "a depthwise convolution: each output sees a single channel, which does not average out however wide it is",
            f"use fewer groups; or {EMPIRICAL}",
            then,
        )
    if len(x.blocks) > 1:
        raise Refused(
            "a grouped convolution of concatenated channels: its groups have different distributions",
            "use groups=1 after torch.cat",
            then,
        )
    return then


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> Pads:
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((pad, pad) for pad in expand(0 if padding == "valid" else padding, len(kernel)))


def _spread(builder: Builder, x: Field, axis: int, stride: int, pad: int, more: int) -> Field:
    """Put ``stride`` - 1 zeros between positions, ``pad`` at both ends (negative: crop), and ``more`` at the end."""
    index = [p // stride if p % stride == 0 else -1 for p in range((x.positions[axis] - 1) * stride + 1)]
    index = [-1] * pad + index + [-1] * (pad + more)
    if pad < 0:
        index = index[-pad : pad + more or None] if pad + more < 0 else index[-pad:]
    return select(builder, x, axis, index, "zeros between")


def _held_transposed(weight: Weight, bias: Weight | None, groups: int, numbers: Tensor) -> Held:
    """Return the weight (in, out of a group, *kernel) as that of a convolution, (out, in of a group, *kernel), reversed."""

    def turned(tensor: Tensor) -> Tensor:
        split = tensor.unflatten(0, (groups, -1)).transpose(1, 2).flatten(0, 1)
        return rearranged(split.flip(list(range(2, split.ndim))), numbers, 1)

    return lambda read: (turned(read(weight)), None if bias is None else read(bias))


def _of_module(ndim: int, builder: Builder, x: Any, output_size: Any = None, **options: Any) -> Field:
    return conv_transpose(ndim, builder, x, output_size=output_size, **options)


for _ndim in (1, 2, 3):
    matches(
        getattr(F, f"conv{_ndim}d"),
        f"conv{_ndim}d",
        modules={
            getattr(nn, f"Conv{_ndim}d"): with_parameters("stride", "padding", "dilation", "groups", "padding_mode")
        },
        family="convolution",
        note="any kernel, stride, dilation; zero, circular, reflect or replicate padding; groups of hidden channels",
        fresh=True,
    )(partial(conv, _ndim))
    _transposed = with_parameters("stride", "padding", "output_padding", "groups", "dilation")
    matches(
        modules={getattr(nn, f"ConvTranspose{_ndim}d"): _transposed},
        family="convolution",
        note="transposed: any stride, padding, output padding and dilation, divided by the whole window",
        fresh=True,
    )(partial(_of_module, _ndim))
    _name = f"conv_transpose{_ndim}d"
    matches(getattr(F, _name), _name, family="convolution", fresh=True)(partial(conv_transpose, _ndim))
