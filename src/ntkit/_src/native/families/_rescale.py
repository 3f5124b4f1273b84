"""From the scale of the data to the common one, where the values of an input stop being multiples of it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ntkit._src.program import Op

from .. import _core
from .._plane import Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network


@dataclass(frozen=True)
class Rescale(Op):
    """Each value times a number of its input, which changes the scale; see ``_rescaling``."""


class RescaleFamily(Family[Rescale]):
    """K' = a a' K and H' = a a' H + (a - a') (a q - a' q') / 2, with a the common scale of an input over that of its data."""

    def homogeneous(self, op: Rescale) -> bool:
        return False  # from here on, biases count

    def own_data(self, network: Network, index: int, op: Rescale) -> Iterator[tuple[_core.Own, int]]:
        if not network.linear_after[index]:
            yield _core.Own.HALF, network.program.nodes[index].inputs[0]

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Rescale) -> None:
        network, index = emitter.network, plane.node
        before = network.program.nodes[index].inputs[0]
        operation = emitter.operation(
            "rescale",
            index,
            lambda: _core.Rescale(
                size=network.size(index),
                ratio_at=network.ratio_at,
                half_at=network.own_at(_core.Own.HALF, before),
            ),
        )
        emitter.unary(_core.Kind.RESCALE, operation, plane, parts)
