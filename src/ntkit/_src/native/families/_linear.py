"""Fully connected layers and convolutions: K' = w^2 M(K) + b^2 with M the mean over a window."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from ntkit._src.program import Conv, Dense, Gains

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

    def relative_bias(self, op: Dense | Conv) -> float:
        return float(op.gains.b_std / op.gains.w_std) ** 2 if float(op.gains.w_std) else 0.0

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
    rate, variance = float(op.gains.weight_rate), float(op.gains.w_std**2)
    output = index if output is None else output
    return _core.Layer(
        in_size=network.size(before),
        out_size=network.size(output),
        kernel=kernel,
        stride=stride,
        dilation=dilation,
        padding=padding,
        circular=circular,
        weight=window_weight(op),
        bias=float(op.gains.b_std**2),
        weight_rate=rate / variance if rate else 0.0,
        bias_rate=float(op.gains.bias_rate),
        half_in_at=network.cache_at(_core.Cached.HALF, before),
        half_out_at=network.cache_at(_core.Cached.HALF, output),
        unit_at=network.unit_at(index),
        activation=activation,
    )


def window_weight(op: Dense | Conv) -> float:
    """Return w^2 / k, the factor of the sum over a window of k positions."""
    gains: Gains = op.gains
    return float(gains.w_std**2) / (prod(op.kernel) if isinstance(op, Conv) else 1)
