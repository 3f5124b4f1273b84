"""The ReLU family: phi(z) = a min(z, 0) + b max(z, 0)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ntkit._src.program import Conv, Dense, Normalize, Pointwise, Rectified

from .. import _core
from .._plane import Part, Plane
from ._family import Family
from ._linear import layer_numbers, layer_operation
from ._normalize import gain_factor, same_gain

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


class RectifiedFamily(Family[Pointwise]):
    """Rectifiers. One that is the only reader of a linear layer is fused with it: the layer's sums feed it directly."""

    reads_h = True
    reads_angle = True

    def fuses(self, network: PlannedNetwork, index: int, op: Pointwise) -> bool:
        before = network.program.nodes[index].inputs[0]
        layer = network.program.nodes[before].op
        return isinstance(layer, (Dense, Conv)) and float(layer.gains.w_std) != 0 and len(network.readers[before]) == 1

    def local(self, network: PlannedNetwork, index: int, op: Pointwise) -> bool:
        before = network.program.nodes[index].inputs[0]
        windows = isinstance(network.program.nodes[before].op, Conv) and self.fuses(network, index, op)
        return same_gain(network, index) and not windows

    def may_be_negative(self, op: Pointwise, before: bool) -> bool:
        low, high = _slopes(op)
        return before and low * high > 0  # otherwise its values have one sign

    def cache_entries(self, network: PlannedNetwork, index: int, op: Pointwise) -> Iterator[tuple[_core.Cached, int]]:
        yield _core.Cached.DEVIATION, index

    def store(self, network: PlannedNetwork, index: int, op: Pointwise, what: _core.Cached, target: int) -> _core.Store:
        # The deviations of a fused layer are divided by the root of its weight, see core/interpreter/rectifier.hpp.
        factor, number = 1.0, _core.NOTHING
        if what == _core.Cached.DEVIATION and index in network.fused:
            before = network.program.nodes[index].inputs[0]
            layer = network.program.nodes[before].op
            assert isinstance(layer, (Dense, Conv))
            factor, number = 1.0 / layer_numbers(layer)[0], network.layers.index(before)
        return _core.Store(size=network.size(index), what=what, target_at=target, factor=factor, number=number)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Pointwise) -> None:
        network, index = emitter.network, plane.node
        before = network.program.nodes[index].inputs[0]
        layer = network.program.nodes[before].op
        if index in network.fused and not emitter.demand.holds_variances(plane):
            assert isinstance(layer, (Dense, Conv))
            operation = emitter.operation(
                "fused", index, lambda: layer_operation(network, before, layer, index, _rectifier(network, index, op))
            )
            emitter.unary(_core.Kind.LAYER, operation, plane, parts)
            return
        operation = emitter.operation(
            "rectified",
            index,
            lambda: _core.Rectified(size=network.size(index), activation=_rectifier(network, index, op)),
        )
        factor = gain_factor(layer, plane.offset) if isinstance(layer, Normalize) else 1.0
        emitter.unary(_core.Kind.RECTIFIED, operation, plane, parts, factor)


def _slopes(op: Pointwise) -> tuple[float, float]:
    assert isinstance(op.phi, Rectified)
    return op.phi.slopes()


def _rectifier(network: PlannedNetwork, index: int, op: Pointwise) -> _core.Rectifier:
    before = network.program.nodes[index].inputs[0]
    norm = network.program.nodes[before].op
    low, high = _slopes(op)
    return _core.Rectifier(
        negative_slope=low,
        positive_slope=high,
        deviation_at=network.cache_at(_core.Cached.DEVIATION, index),
        signed_covariance=network.negative[before],
        rounded=network.rounded[before],
        trained_gain=float(isinstance(norm, Normalize) and norm.weight_trained),
    )
