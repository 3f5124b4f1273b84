"""LayerNorm and GroupNorm: K' = K / (s s') with s^2 = q + eps."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ntkit._src.program import Conv, Dense, Node, Normalize, Pointwise, Sum

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork

MOST_RATIO = 2.0**16
"""Of two deviations: K / (s s') computed from H loses log2 of it from its 52 bits."""


class NormalizeFamily(Family[Normalize]):
    """Normalisations over the channels, or over the channels and positions."""

    reads_h = True
    reads_angle = True
    single_precision = False

    def missing(self, network: PlannedNetwork, index: int, op: Normalize) -> str | None:
        nodes = network.program.nodes
        node = nodes[index]
        if node.inputs[0] != node.inputs[1]:
            return "normalisation of a part of the channels"
        if not op.weight_trained:
            return None
        readers = [nodes[reader].op for reader in network.readers[index]]
        activations = [reader for reader in readers if isinstance(reader, Pointwise)]
        if activations and len(activations) < len(readers):
            return "a trained gain before an activation and something else"
        if any(isinstance(reader, (Sum, Normalize)) for reader in readers):
            return "a trained gain before a sum or another normalisation"
        if any(_activated_later(network, reader) for reader in network.readers[index]):
            return "a trained gain before an operation on positions and an activation"
        return None

    def local(self, network: PlannedNetwork, index: int, op: Normalize) -> bool:
        return not op.affine_axes

    def homogeneous(self, op: Normalize) -> bool:
        return False

    def cache_entries(self, network: PlannedNetwork, index: int, op: Normalize) -> Iterator[tuple[_core.Cached, int]]:
        yield _core.Cached.SCALE, index

    def cache_numbers(self, network: PlannedNetwork, what: _core.Cached, op: Normalize) -> int:
        return 2 if what == _core.Cached.SCALE else 1

    def made_before(self, what: _core.Cached) -> bool:
        return what == _core.Cached.SCALE

    def covered(self, op: Normalize) -> str:
        return f"standard deviations of any two inputs within a factor of {MOST_RATIO:,.0f}"

    def store(self, network: PlannedNetwork, index: int, op: Normalize, what: _core.Cached, target: int) -> _core.Store:
        over = [False] * _core.AXES
        for axis in op.axes:
            over[network.first_axis(index) + axis] = True
        unit_at = network.unit_at(network.program.nodes[index].inputs[0])
        return _core.Store(
            size=network.size(index), what=what, target_at=target, eps=op.eps, unit_at=unit_at, mean_over=over
        )

    def inputs(self, node: Node) -> tuple[int, ...]:
        return node.inputs[
            :1
        ]  # the second input, whose statistics normalise this one, is the same field: see `missing`

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Normalize) -> None:
        network, index = emitter.network, plane.node
        nodes = network.program.nodes
        # A later activation itself adds the term of a trained gain before it.
        settled = not any(isinstance(nodes[reader].op, Pointwise) for reader in network.readers[index])
        operation = emitter.operation(
            "normalize",
            index,
            lambda: _core.Normalize(
                size=network.size(index),
                scale_at=network.cache_at(_core.Cached.SCALE, index),
                weight_rate=float(op.weight_trained and settled),
                bias_rate=float(op.bias_trained),
            ),
        )
        emitter.unary(_core.Kind.NORMALIZE, operation, plane, parts, gain_factor(op, plane.offset))


def same_gain(network: PlannedNetwork, index: int) -> bool:
    """Return whether the gains of the normalisation before an activation, if there is one, are the same at all positions."""
    before = network.program.nodes[network.program.nodes[index].inputs[0]].op
    return not isinstance(before, Normalize) or not before.affine_axes


def _activated_later(network: PlannedNetwork, index: int) -> bool:
    """Return whether an activation follows with no layer with weights between, which would make a gain's term new."""
    nodes = network.program.nodes
    if isinstance(nodes[index].op, (Pointwise, Dense, Conv)):
        return False  # an activation that reads the normalisation itself adds the gain's term
    readers = network.readers[index]
    return any(isinstance(nodes[r].op, Pointwise) or _activated_later(network, r) for r in readers)


def gain_factor(op: Normalize, offset: Offset) -> float:
    """Return 1 where both positions share their affine parameters, so that training them adds to Theta, and 0 elsewhere."""
    return 0.0 if any(offset[axis] for axis in op.affine_axes) else 1.0
