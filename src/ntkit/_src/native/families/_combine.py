"""Flatten, residual sums, concatenations and constants."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING

from ntkit._src.program import Concat, Constant, Contract, Sum

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network


class ContractFamily(Family[Contract]):
    """Flatten: the mean over equal positions along some axes, K' = mean of K[p, p]."""

    def sources(self, op: Contract, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        rest = iter(offset)
        yield tuple(0 if axis in op.axes else next(rest) for axis in range(len(positions)))

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Contract) -> None:
        operation = emitter.operation("reduce", plane.node, lambda: _reduction(emitter.network, plane.node, op))
        emitter.accumulate(_core.Kind.REDUCE, operation, plane, parts, wide=True)


def _reduction(network: Network, index: int, op: Contract) -> _core.Reduce:
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

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Sum) -> None:
        factors = [c * c for c in op.coefficients]
        emitter.accumulate(_core.Kind.COMBINE, emitter.plain(plane.node), plane, parts, wide=False, factors=factors)


class ConcatFamily(Family[Concat]):
    """Concatenated channels: K' = sum f_i K_i with f_i the share of the width."""

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Concat) -> None:
        factors = list(op.fractions)
        emitter.accumulate(_core.Kind.COMBINE, emitter.plain(plane.node), plane, parts, wide=False, factors=factors)


class ConstantFamily(Family[Constant]):
    """K = c^2 everywhere."""

    def homogeneous(self, op: Constant) -> bool:
        return False

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Constant) -> None:
        emitter.take_slot(plane)
        operation = emitter.fill(plane.node, op.value**2)
        for part in parts:
            emitter.emit(_core.Kind.FILL, operation, plane, part.offset)
