"""Linear maps of the positions along one axis, x'[q] = sum_p A[q, p] x[p]: interpolation, fixed filters, uneven windows."""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from math import log2
from typing import TYPE_CHECKING, NamedTuple

from ntkit._src.program import ConstantMap, PositionMap

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family
from ._pool import FEW_TERMS, WindowKinds, emit_windows

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork

_KINDS = WindowKinds(_core.Kind.MAP, _core.Kind.MAP_END, _core.Kind.VARIANCE_MAP, _core.Kind.VARIANCE_MAP_END)
_MOST_TERMS = 32  # of a sum over both rows of A, for each of its columns and rows: beyond, matrix products are faster


class MapFamily(Family[PositionMap]):
    """Average pooling with other windows: the rows of A.

    The plane d sums the planes e of the input for which some A[q, p] A[q + d, p + e] is not zero. H is then a difference of sums:
    of two inputs that are near copies it loses digits that single precision does not have.
    """

    rounds_h = True
    single_precision = False

    def missing(self, network: PlannedNetwork, index: int, op: PositionMap) -> str | None:
        size = network.length_before(index, op.axis)
        if has_long_rows(op, size):
            shape = f"{len(rows_of(op, size).first)} x {size}"
            return f"{op.label()}: a matrix of {shape} positions with long rows along one of several axes"
        return None

    def may_be_negative(self, op: PositionMap, before: bool) -> bool:
        return before or (isinstance(op, ConstantMap) and rows_of(op, op.shape[1]).signed)

    def cache_entries(self, network: PlannedNetwork, index: int, op: PositionMap) -> Iterator[tuple[_core.Cached, int]]:
        if network.linear_after[index]:
            return
        yield _core.Cached.INSIDE, index
        if len(set(rows_of(op, network.length_before(index, op.axis)).totals)) > 1:
            yield _core.Cached.MEAN, index

    def sources(self, op: PositionMap, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        for apart in _apart(op, positions[op.axis], offset[op.axis]):
            yield (*offset[: op.axis], apart, *offset[op.axis + 1 :])

    def reads_between(self, network: PlannedNetwork, index: int, variances: bool, source: Offset) -> bool:
        return variances and any(source) and not network.linear_after[index]

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: PositionMap) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation("map", index, lambda: _operation(network, index, op))
        wide = rows_of(op, network.length_before(index, op.axis)).longest > FEW_TERMS
        emit_windows(emitter, plane, parts, operation, wide, _KINDS)


class Rows(NamedTuple):
    """The rows of A.

    Attributes
    ----------
    matrix
        A, row by row.
    columns
        How many positions there are before the map.
    first, last
        Of each row: the columns before ``first``, and those from ``last`` on, are zero.
    totals
        The sum of each row.
    signed
        Whether some numbers are negative.
    """

    matrix: list[float]
    columns: int
    first: list[int]
    last: list[int]
    totals: list[float]
    signed: bool

    @property
    def longest(self) -> int:
        """The most columns from the first to the last of a row."""
        return max(last - first for first, last in zip(self.first, self.last, strict=True))


@lru_cache(maxsize=64)
def rows_of(op: PositionMap, size: int) -> Rows:
    """Give the rows of the matrix of a map of ``size`` positions."""
    matrix = op.matrix(size)
    first, last, totals = [], [], []
    for row in matrix.tolist():
        used = [p for p, weight in enumerate(row) if weight]
        first.append(used[0] if used else 0)
        last.append(used[-1] + 1 if used else 0)
        # Sums that differ by rounding alone become equal.
        unit = 2.0 ** round(log2(sum(map(abs, row)))) if used else 1.0
        totals.append(round(sum(row) / unit, 15) * unit)
    return Rows(matrix.flatten().tolist(), size, first, last, totals, bool((matrix < 0).any()))


def has_long_rows(op: PositionMap, size: int) -> bool:
    """Return whether products with the matrix are faster than sums of planes."""
    rows = rows_of(op, size)
    return len(rows.first) * rows.longest > _MOST_TERMS * (len(rows.first) + rows.columns)


@lru_cache(maxsize=1 << 14)
def _apart(op: PositionMap, size: int, d: int) -> tuple[int, ...]:
    """Give how far apart, along the axis, the positions are that rows q and q + d read; none further than in ``size``."""
    rows = rows_of(op, size)
    found = {0} if d == 0 else set()  # the variances are read in any case
    for q in range(max(0, -d), len(rows.first) - max(0, d)):
        first, last = rows.first[q], rows.last[q]
        other_first, other_last = rows.first[q + d], rows.last[q + d]
        if first < last and other_first < other_last:
            found.update(range(other_first - last + 1, other_last - first))
    return tuple(sorted(found))


def _operation(network: PlannedNetwork, index: int, op: PositionMap) -> _core.Map:
    before = network.program.nodes[index].inputs[0]
    rows = rows_of(op, network.length_before(index, op.axis))
    return _core.Map(
        in_size=network.size(before),
        out_size=network.size(index),
        axis=network.first_axis(before) + op.axis,
        wide=rows.longest > FEW_TERMS,
        matrix=rows.matrix,
        first=rows.first,
        last=rows.last,
        totals=rows.totals,
        inside_at=network.cache_at(_core.Cached.INSIDE, index),
        mean_at=network.cache_at(_core.Cached.MEAN, index),
    )
