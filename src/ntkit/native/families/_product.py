"""Products of independent values: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ntkit.program import Product

from .. import _core
from .._plane import Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network

__all__ = ["ProductFamily"]


class ProductFamily(Family[Product]):
    """Products, gates among them. They are of degree two in the data, so inputs are not scaled to norm one."""

    single_precision = False
    rounds_h = True

    def missing(self, network: Network, index: int, op: Product) -> str | None:
        node, nodes = network.program.nodes[index], network.program.nodes
        if any(nodes[read].positions != node.positions for read in node.inputs):
            return "a product of values with different positions"
        return None

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
            for read in part.planes:
                emitter.compute(read)
        emitter.take_slot(plane)
        for part in parts:
            # The plane of the first value is copied, then multiplied by that of the second.
            emitter.emit(_core.Kind.FILL, emitter.fill(index, 0.0), plane, part.offset)
            for read, kind, operation in zip(
                part.reads, (_core.Kind.COMBINE, _core.Kind.MULTIPLY), (emitter.plain(index), product), strict=True
            ):
                emitter.emit(kind, operation, plane, part.offset, read.plane, read.offset)
        for part in parts:
            for read in part.planes:
                emitter.release(read)
