"""The data, K = x . x' / C and H = |x - x'|^2 / (2 C), and where their scale changes to the common one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod
from typing import TYPE_CHECKING

from ntkit._src.program import DataMap, Input, Lookup, Node, Op, Program

from .. import _core
from .._plane import Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


Data = Input | Lookup | DataMap
"""Operations that read data."""


def data_size(program: Program, node: Node) -> int:
    """Count the numbers of each input that a node reads."""
    op = node.op
    if isinstance(op, DataMap):
        return op.size * program.nodes[node.inputs[0]].positions[op.axis]
    return prod(node.positions) * (op.channels if isinstance(op, Input) else 1)


class InputFamily(Family[Input]):
    """The data a network reads."""

    def local(self, network: PlannedNetwork, index: int, op: Input) -> bool:
        return True

    def may_be_negative(self, op: Input, before: bool) -> bool:
        return True

    def cache_entries(self, network: PlannedNetwork, index: int, op: Input) -> Iterator[tuple[_core.Cached, int]]:
        # A matrix product gives x . x' of vectors, and H follows from it by the norms.
        if not network.program.nodes[index].positions and not network.linear_after[index]:
            yield _core.Cached.HALF, index

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Input) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "input",
            index,
            lambda: _core.Input(
                size=network.size(index),
                data=network.inputs.index(index),
                channels=op.channels,
                half_at=network.cache_at(_core.Cached.HALF, index),
                sizes_matter=network.normalises and not network.rescales,
            ),
        )
        emitter.unary(_core.Kind.INPUT, operation, plane, parts)


@dataclass(frozen=True)
class Rescale(Op):
    """Each value times a number of its input, which changes the scale; see ``_rescaling``."""


class RescaleFamily(Family[Rescale]):
    """K' = a a' K and H' = a a' H + (a - a') (a q - a' q') / 2, with a the common scale of an input over that of its data."""

    def local(self, network: PlannedNetwork, index: int, op: Rescale) -> bool:
        return True

    def homogeneous(self, op: Rescale) -> bool:
        return False  # from here on, biases count

    def cache_entries(self, network: PlannedNetwork, index: int, op: Rescale) -> Iterator[tuple[_core.Cached, int]]:
        if not network.linear_after[index]:
            yield _core.Cached.HALF, network.program.nodes[index].inputs[0]

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Rescale) -> None:
        network, index = emitter.network, plane.node
        before = network.program.nodes[index].inputs[0]
        operation = emitter.operation(
            "rescale",
            index,
            lambda: _core.Rescale(
                size=network.size(index),
                ratio_at=network.ratio_at,
                half_at=network.cache_at(_core.Cached.HALF, before),
            ),
        )
        emitter.unary(_core.Kind.RESCALE, operation, plane, parts)
