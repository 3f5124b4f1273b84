"""Products of independent values: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ntkit._src.program import Product

from .. import _core
from .._plane import Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network


class ProductFamily(Family[Product]):
    """Products, gates among them. They are of degree two in the data, so inputs are not scaled to norm one."""

    single_precision = False
    rounds_h = True

    def missing(self, network: Network, index: int, op: Product) -> str | None:
        node, nodes = network.program.nodes[index], network.program.nodes
        if any(nodes[read].positions != node.positions for read in node.inputs):
            return "a product of values with different positions"
        return None

    def homogeneous(self, op: Product) -> bool:
        return False

    def own_data(self, network: Network, index: int, op: Product) -> Iterator[tuple[_core.Own, int]]:
        if not network.linear_after[index]:
            for read in network.program.nodes[index].inputs:
                yield _core.Own.HALF, read

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Product) -> None:
        network, index = emitter.network, plane.node
        first, second = (network.own_at(_core.Own.HALF, read) for read in network.program.nodes[index].inputs)
        product = emitter.operation(
            "product",
            index,
            lambda: _core.Product(size=network.size(index), first_half_at=first, second_half_at=second),
        )
        for part in parts:
            for plane_read in part.planes:
                emitter.compute(plane_read)
        emitter.take_slot(plane)
        for part in parts:
            # The plane of the first value is copied, then multiplied by that of the second.
            one, other = part.reads
            emitter.emit(_core.Kind.FILL, emitter.fill(index, 0.0), plane, part.offset)
            emitter.emit(_core.Kind.COMBINE, emitter.plain(index), plane, part.offset, one.plane, one.offset)
            emitter.emit(_core.Kind.MULTIPLY, product, plane, part.offset, other.plane, other.offset)
        for part in parts:
            for plane_read in part.planes:
                emitter.release(plane_read)
