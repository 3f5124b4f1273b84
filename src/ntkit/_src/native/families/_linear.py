"""Fully connected layers and convolutions: K' = w^2 M(K) + b^2 with M the mean over a window."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import TYPE_CHECKING, Any

import torch

from ntkit._src.program import Conv, Dense, Gains, Program

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


class LinearFamily(Family[Dense | Conv]):
    """Layers with weights. A rectifier that is the only reader of a layer is fused with it, see ``_rectified``."""

    def missing(self, network: PlannedNetwork, index: int, op: Dense | Conv) -> str | None:
        if float(op.gains.w_std) == 0 and float(op.gains.weight_rate) != 0:
            return "a trained weight without variance"
        return None

    def local(self, network: PlannedNetwork, index: int, op: Dense | Conv) -> bool:
        return isinstance(op, Dense)

    def homogeneous(self, op: Dense | Conv) -> bool:
        return float(op.gains.b_std) == 0

    def cache_entries(
        self, network: PlannedNetwork, index: int, op: Dense | Conv
    ) -> Iterator[tuple[_core.Cached, int]]:
        node = network.program.nodes[index]
        if network.linear_after[index]:
            return
        # In the padding one of two values is zero, and H is half the variance of the other.
        if isinstance(op, Conv) and not op.circular and any(map(any, op.padding)):
            yield _core.Cached.HALF, node.inputs[0]
        # Theta needs K, which is computed from H.
        if node.trained and not network.fused.intersection(network.readers[index]):
            yield _core.Cached.HALF, index

    def wrapped_axes(self, op: Dense | Conv) -> tuple[int, ...]:
        return op.axes if isinstance(op, Conv) and op.circular else ()

    def sources(self, op: Dense | Conv, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        scaled = list(offset)
        if isinstance(op, Conv):
            for axis, stride in zip(op.axes, op.stride, strict=True):
                scaled[axis] *= stride
                if op.circular:
                    scaled[axis] %= positions[axis]
        yield tuple(scaled)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Dense | Conv) -> None:
        operation = emitter.operation("layer", plane.node, lambda: layer_operation(emitter.network, plane.node, op))
        emitter.unary(_core.Kind.LAYER, operation, plane, parts)


def layer_operation(
    network: PlannedNetwork,
    index: int,
    op: Dense | Conv,
    output: int | None = None,
    activation: _core.Rectifier | None = None,
) -> _core.Layer:
    """Return the operation of a layer, node ``index``; if an activation, node ``output``, is fused with it, that of both."""
    before = network.program.nodes[index].inputs[0]
    kernel, stride, dilation, padding, circular = [1] * 3, [1] * 3, [1] * 3, [0] * 3, [False] * 3
    if isinstance(op, Conv):
        for i, axis in enumerate(op.axes):
            at = network.first_axis(before) + axis
            kernel[at], stride[at], dilation[at] = op.kernel[i], op.stride[i], op.dilation[i]
            padding[at], circular[at] = op.padding[i][0], op.circular
    weight, bias, weight_rate, bias_rate = layer_numbers(op)
    output = index if output is None else output
    return _core.Layer(
        in_size=network.size(before),
        out_size=network.size(output),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        circular=circular,
        weight=weight,
        bias=bias,
        weight_rate=weight_rate,
        bias_rate=bias_rate,
        half_in_at=network.cache_at(_core.Cached.HALF, before),
        half_out_at=network.cache_at(_core.Cached.HALF, output),
        unit_at=network.unit_at(index),
        activation=activation,
        number=network.layers.index(index),
    )


def layer_numbers(op: Dense | Conv) -> tuple[float, float, float, float]:
    """Return what of a layer depends on gains: w^2 / k for a window of k positions, b^2, and both rates of training."""
    gains: Gains = op.gains
    rate, variance = float(gains.weight_rate), float(gains.w_std**2)
    weight = variance / (prod(op.kernel) if isinstance(op, Conv) else 1)
    return weight, float(gains.b_std**2), rate / variance if rate else 0.0, float(gains.bias_rate)


def largest_bias(program: Program) -> float:
    """Return the largest variance of a bias relative to that of the same layer's weights."""
    gains = [node.op.gains for node in program.nodes if isinstance(node.op, (Dense, Conv))]
    return max((float(own.b_std / own.w_std) ** 2 for own in gains if float(own.w_std)), default=0.0)


def numbers_over_gains(program: Program, gains: Mapping[int, Gains], count: int) -> tuple[Any, list[float]]:
    """Return :func:`layer_numbers` of all layers and :func:`largest_bias` for many gains, tensors (count,), at each node."""
    numbers, biases = [], [torch.zeros(count, dtype=torch.float64)]
    for index, own in gains.items():
        op = program.nodes[index].op
        w_std, b_std, weight_rate, bias_rate = (torch.as_tensor(v, dtype=torch.float64) for v in vars(own).values())
        variance = w_std**2
        rate = weight_rate / variance if bool((weight_rate != 0).any()) else weight_rate
        weight = variance / (prod(op.kernel) if isinstance(op, Conv) else 1)
        numbers.append(torch.stack([value.expand(count) for value in (weight, b_std**2, rate, bias_rate)], 1))
        if bool((w_std != 0).all()):
            biases.append(((b_std / w_std) ** 2).expand(count))
    return torch.stack(numbers, 1).tolist(), torch.stack(biases).amax(0).tolist()
