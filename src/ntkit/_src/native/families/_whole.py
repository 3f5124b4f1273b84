"""Operations that mix positions freely: they read every K[p, p'] of a value at once, and its planes are copied out after."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from math import prod
from typing import TYPE_CHECKING

from torch import Tensor

from ntkit._src.program import DataMap, PositionMap

from .. import _core
from .._plane import Part, Plane
from ._family import Family, OpT
from ._normalize import MOST_RATIO

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


def gather(emitter: Emitter, plane: Plane, part: Part) -> None:
    """Copy the planes of a value to their places in its whole covariance."""
    emitter.take_slot(plane, tokens(emitter, plane.node) ** 2)
    operation = _ends(emitter, plane.node)
    for read in part.reads:
        if read.plane is not None:
            emitter.compute(read.plane)
            emitter.emit(_core.Kind.GATHER, operation, plane, plane.offset, read.plane, read.offset)
            emitter.release(read.plane)


def scatter(emitter: Emitter, plane: Plane, parts: list[Part]) -> None:
    """Copy a plane out of the whole covariance that an operation has computed."""
    emitter.unary(_core.Kind.SCATTER, _ends(emitter, plane.node), plane, parts)


def _ends(emitter: Emitter, index: int) -> int:
    network = emitter.network
    half_at = network.cache_at(_core.Cached.HALF, index)
    return emitter.operation("ends", index, lambda: _core.Convert(size=network.size(index), half_at=half_at))


def tokens(emitter: Emitter, index: int) -> int:
    """Return the number of positions of a node."""
    return prod(emitter.nodes[index].positions)


def map_both_sides(
    emitter: Emitter, operation: int, read: Plane, plane: Plane, rows: int, columns: int, step: str = "half"
) -> None:
    """Emit A(x) K A(x')^T of a whole covariance, ``plane`` of ``read``; A is (``rows``, ``columns``)."""
    half = plane._replace(step=step)
    emitter.take_slot(half, rows * columns)
    emitter.emit(_core.Kind.LEFT, operation, half, (), read, ())
    emitter.take_slot(plane, rows * rows)
    emitter.emit(_core.Kind.RIGHT, operation, plane, (), half, ())
    emitter.leave_slot(half)


class WholeFamily(Family[OpT]):
    """An operation that reads whole covariances. Its H is the difference of variances and K."""

    whole = True
    reads_h = True
    single_precision = False
    rounds_h = True

    def cache_entries(self, network: PlannedNetwork, index: int, op: OpT) -> Iterator[tuple[_core.Cached, int]]:
        for read in self.inputs(network.program.nodes[index]):
            yield _core.Cached.HALF, read
        if not network.linear_after[index]:
            yield _core.Cached.HALF, index

    def covered(self, op: OpT) -> str:
        return f"standard deviations of any two inputs within a factor of {MOST_RATIO:,.0f}"

    def may_be_negative(self, op: OpT, before: bool) -> bool:
        return True


class _MatrixFamily(WholeFamily[OpT]):
    """K' = A(x) K A(x')^T."""

    def matrix(self, network: PlannedNetwork, index: int, op: OpT) -> _core.Matrix:
        """Return the operation that multiplies by A."""
        raise NotImplementedError

    def emit_whole(self, emitter: Emitter, plane: Plane, op: OpT) -> None:
        network, index = emitter.network, plane.node
        read = emitter.demand.whole(network.program.nodes[index].inputs[-1])
        emitter.compute(read)
        operation = emitter.operation("matrix", index, lambda: self.matrix(network, index, op))
        map_both_sides(emitter, operation, read, plane, tokens(emitter, index), tokens(emitter, read.node))
        emitter.release(read)


class DataMapFamily(_MatrixFamily[DataMap]):
    """A matrix along the positions that each input brings."""

    def missing(self, network: PlannedNetwork, index: int, op: DataMap) -> str | None:
        several = len(network.program.nodes[index].positions) > 1
        return "a matrix of each input along one of several axes" if several else None

    def matrix(self, network: PlannedNetwork, index: int, op: DataMap) -> _core.Matrix:
        columns = network.length_before(index, op.axis)
        return _core.Matrix(rows=op.size, columns=columns, data=network.inputs.index(index), transposed=op.transposed)


@dataclass(frozen=True, eq=False)
class WholeMap(PositionMap):
    """A map along the only axis whose rows are long."""

    numbers: Tensor = field(repr=False)  # A, shape (positions after, before), float64

    def matrix(self, size: int) -> Tensor:
        return self.numbers


class WholeMapFamily(_MatrixFamily[WholeMap]):
    """The same matrix along the positions of every input."""

    def matrix(self, network: PlannedNetwork, index: int, op: WholeMap) -> _core.Matrix:
        rows, columns = op.numbers.shape
        return _core.Matrix(rows=rows, columns=columns, numbers=op.numbers.flatten().tolist())
