"""Flatten, residual sums, concatenations, products and constants."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from ntkit._src.program import Concat, Constant, Contract, Product, Sum

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


class ContractFamily(Family[Contract]):
    """Flatten: the mean over equal positions along some axes, K' = mean of K[p, p]."""

    def sources(self, op: Contract, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        rest = iter(offset)
        yield tuple(0 if axis in op.axes else next(rest) for axis in range(len(positions)))

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Contract) -> None:
        operation = emitter.operation("reduce", plane.node, lambda: _reduction(emitter.network, plane.node, op))
        emitter.accumulate(_core.Kind.REDUCE, operation, plane, parts, wide=True)


def _reduction(network: PlannedNetwork, index: int, op: Contract) -> _core.Reduce:
    before = network.program.nodes[index].inputs[0]
    size, first = network.size(before), network.first_axis(before)
    step, out_stride = 1, [0] * _core.AXES
    for axis in reversed(range(first, _core.AXES)):
        if axis - first not in op.axes:
            out_stride[axis] = step
            step *= size[axis]
    factor = 1.0 / prod(size[first + axis] for axis in op.axes)
    return _core.Reduce(in_size=size, out_size=network.size(index), out_stride=out_stride, factor=factor)


class SumFamily(Family[Sum]):
    """Residual sums: K' = sum c_i^2 K_i of independent values."""

    def local(self, network: PlannedNetwork, index: int, op: Sum) -> bool:
        return True

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Sum) -> None:
        factors = [c * c for c in op.coefficients]
        emitter.accumulate(_core.Kind.COMBINE, emitter.plain(plane.node), plane, parts, wide=False, factors=factors)


class ConcatFamily(Family[Concat]):
    """Concatenated channels: K' = sum f_i K_i with f_i the share of the width."""

    def local(self, network: PlannedNetwork, index: int, op: Concat) -> bool:
        return True

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Concat) -> None:
        factors = list(op.fractions)
        emitter.accumulate(_core.Kind.COMBINE, emitter.plain(plane.node), plane, parts, wide=False, factors=factors)


class ConstantFamily(Family[Constant]):
    """K = c^2 everywhere."""

    def local(self, network: PlannedNetwork, index: int, op: Constant) -> bool:
        return True

    def homogeneous(self, op: Constant) -> bool:
        return False

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Constant) -> None:
        emitter.take_slot(plane)
        operation = emitter.fill(plane.node, op.value**2)
        for part in parts:
            emitter.emit(_core.Kind.FILL, operation, plane, part.offset)


class ProductFamily(Family[Product]):
    """Products of independent values, gates among them: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2.

    They are of degree two in the data, so inputs are not scaled to norm one.
    """

    single_precision = False
    rounds_h = True

    def missing(self, network: PlannedNetwork, index: int, op: Product) -> str | None:
        node, nodes = network.program.nodes[index], network.program.nodes
        if any(nodes[read].positions != node.positions for read in node.inputs):
            return "a product of values with different positions"
        return None

    def local(self, network: PlannedNetwork, index: int, op: Product) -> bool:
        return True

    def homogeneous(self, op: Product) -> bool:
        return False

    def cache_entries(self, network: PlannedNetwork, index: int, op: Product) -> Iterator[tuple[_core.Cached, int]]:
        if not network.linear_after[index]:
            for read in network.program.nodes[index].inputs:
                yield _core.Cached.HALF, read

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Product) -> None:
        network, index = emitter.network, plane.node
        first, second = (network.cache_at(_core.Cached.HALF, read) for read in network.program.nodes[index].inputs)
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
