"""Layers with weights: Linear and Conv1d/2d/3d."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.common import parameter_source
from ntkit._src.program import Conv, Dense, Reindex

from .._builder import EMPIRICAL, Builder, Held, Refused
from .._layout import entry_numbers, rearranged
from .._values import BATCH, CHANNEL, Block, Data, Field, Weight
from ._registry import matches

__all__: list[str] = []


def layer_parameters(module: nn.Module, path: str) -> dict[str, Weight | None]:
    """Read the weight and the bias of a layer."""
    prefix = f"{path}." if path else ""
    found: dict[str, Weight | None] = {}
    for name in ("weight", "bias"):
        source = parameter_source(module, name)
        found[name] = None if source is None else Weight(prefix + name, source.value, source.computed_by, source.remedy)
    return found


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


@matches(
    F.linear,
    "linear",
    modules={nn.Linear: layer_parameters},
    family="linear",
    note="on vectors and at every position of (n, positions..., features)",
    fresh=True,
)
def linear(builder: Builder, x: Any, weight: object, bias: object = None) -> Field:
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
    out_features, fan_in = weight.parameter.shape
    contracted = [atom for atom in x.dims[last] if atom >= 0]
    joined = builder.join(x, contracted)
    node = builder.add(
        Dense(builder.layer_gains(weight, bias, fan_in)),
        (joined,),
        builder.nodes[joined].positions,
        gaussian=True,
        centred=True,
    )
    builder.held[node] = _held(weight, bias, entry_numbers(builder, x, x.dims[last]))
    kept = [axis for axis in range(len(x.positions)) if axis not in contracted]
    dims = [tuple(kept.index(atom) if atom >= 0 else atom for atom in dim) for dim in x.dims[:-1]]
    result = Field(
        (Block(node, out_features),), builder.nodes[node].positions, (*dims, (CHANNEL,)), out_features, x.batch
    )
    check_plain(weight, bias, then=result)
    return result


def _held(weight: Weight, bias: Weight | None, numbers: Tensor) -> Held:
    return lambda read: (rearranged(read(weight), numbers, 1), None if bias is None else read(bias))


def image_field(ndim: int, builder: Builder, x: Any) -> Field:
    """Read a convolution's input as a field: batch, channels, then ``ndim`` dimensions of positions."""
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
    return field


def conv(
    ndim: int,
    builder: Builder,
    x: Any,
    weight: object,
    bias: object = None,
    stride: Any = 1,
    padding: Any = 0,
    dilation: Any = 1,
    groups: int = 1,
    padding_mode: str = "zeros",
) -> Field:
    """K'[p, p'] = w^2 mean over the window of K[s p + d e, s p' + d e], + b^2."""
    weight, bias = checked_weights(weight, bias)
    raw = isinstance(x, Data)
    x = image_field(ndim, builder, x)
    kernel, stride, dilation = (expand(value, ndim) for value in (tuple(weight.parameter.shape[2:]), stride, dilation))
    pads = _padding(padding, kernel, dilation)
    axes = []
    for dim in range(2, ndim + 2):
        x, axis = builder.axis_of(x, dim)
        axes.append(axis)
    if padding_mode in ("reflect", "replicate"):
        for axis, pad in zip(axes, pads, strict=True):
            x = pad_axis(builder, x, axis, pad, padding_mode)
        pads = ((0, 0),) * ndim
    fan_in = weight.parameter[0].numel()
    joined = builder.join(x)
    op = Conv(
        builder.layer_gains(weight, bias, fan_in),
        tuple(axes),
        kernel,
        stride,
        dilation,
        pads,
        padding_mode == "circular",
    )
    positions = list(x.positions)
    for index, axis in enumerate(axes):
        positions[axis] = op.output_size(index, positions[axis])
    node = builder.add(op, (joined,), positions, gaussian=True, centred=True)
    # Groups are slices of the channels in the tensor's order, which is that of a single block.
    numbers = entry_numbers(builder, x, (CHANNEL,)) if groups == 1 else torch.arange(weight.parameter.shape[1])
    builder.held[node] = _held(weight, bias, numbers)
    width = weight.parameter.shape[0]
    result = Field((Block(node, width),), tuple(positions), x.dims, width, x.batch)
    check_plain(weight, bias, then=result)
    if groups > 1:
        check_groups(x, groups, raw, result)
    return result


def check_groups(x: Field, groups: int, raw: bool, then: Field) -> None:
    """Refuse groups whose channels have different distributions."""
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


def _padding(padding: Any, kernel: Sequence[int], dilation: Sequence[int]) -> tuple[tuple[int, int], ...]:
    if padding == "valid":
        padding = 0
    if padding == "same":
        totals = [d * (k - 1) for d, k in zip(dilation, kernel, strict=True)]
        return tuple((total // 2, total - total // 2) for total in totals)
    return tuple((pad, pad) for pad in expand(padding, len(kernel)))


def expand(value: Any, ndim: int) -> tuple[int, ...]:
    """Return one value per axis from PyTorch's convention of one value for all axes or one for each."""
    values = tuple(value) if isinstance(value, (tuple, list)) else (value,)
    return tuple(int(v) for v in (values * ndim if len(values) == 1 else values))


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


def select(builder: Builder, x: Field, axis: int, index: Sequence[int], name: str = "reindex") -> Field:
    """Read the positions ``index`` along one axis, zeros where it is negative."""
    if list(index) == list(range(x.positions[axis])):
        return x
    op = Reindex(axis, tuple(index), name)
    positions = (*x.positions[:axis], len(index), *x.positions[axis + 1 :])
    return builder.each_block(
        x, lambda block: builder.linear_map(op, block.node, builder.block_positions(x, block, positions)), positions
    )


def _conv_arguments(module: Any, path: str) -> dict[str, Any]:
    names = ("stride", "padding", "dilation", "groups", "padding_mode")
    return {**layer_parameters(module, path), **{name: getattr(module, name) for name in names}}


for _ndim, _module, _function in ((1, nn.Conv1d, F.conv1d), (2, nn.Conv2d, F.conv2d), (3, nn.Conv3d, F.conv3d)):
    matches(
        _function,
        f"conv{_ndim}d",
        modules={_module: _conv_arguments},
        family="convolution",
        note="any kernel, stride, dilation; zero, circular, reflect or replicate padding; groups of hidden channels",
        fresh=True,
    )(partial(conv, _ndim))
