"""Data: K = x . x' / C, H = |x - x'|^2 / (2 C)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ntkit._src.program import Input

from .. import _core
from .._plane import Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network


class InputFamily(Family[Input]):
    """The data a network reads."""

    def may_be_negative(self, op: Input, before: bool) -> bool:
        return True

    def own_data(self, network: Network, index: int, op: Input) -> Iterator[tuple[_core.Own, int]]:
        # A matrix product gives x . x' of vectors, and H follows from it by the norms.
        if not network.program.nodes[index].positions and not network.linear_after[index]:
            yield _core.Own.HALF, index

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Input) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "input",
            index,
            lambda: _core.Input(
                size=network.size(index),
                data=network.inputs.index(index),
                channels=op.channels,
                half_at=network.own_at(_core.Own.HALF, index),
                sizes_matter=network.normalises and not network.rescales,
            ),
        )
        emitter.unary(_core.Kind.INPUT, operation, plane, parts)
