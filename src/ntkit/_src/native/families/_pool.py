"""Average pooling along one axis: the plane d sums the planes s d + e, |e| < kernel, of its input."""

from __future__ import annotations

from collections.abc import Iterator
from math import prod
from typing import TYPE_CHECKING, NamedTuple

from ntkit._src.program import AvgPool

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork

FEW_TERMS = 4  # sums of more planes are taken in double precision


class PoolFamily(Family[AvgPool]):
    """Average pooling.

    A pooled plane of H is the sum over both windows minus the variation inside each, (A + A') / 2. The variance of a mean is
    N B - A, with B the mean of the variances and N the sum of the window's weights.
    """

    rounds_h = True

    def cache_entries(self, network: PlannedNetwork, index: int, op: AvgPool) -> Iterator[tuple[_core.Cached, int]]:
        if network.linear_after[index]:
            return
        yield _core.Cached.INSIDE, index
        if len(set(window_weights(op, network.length_before(index, op.axis))[1])) > 1:
            yield _core.Cached.MEAN, index

    def sources(self, op: AvgPool, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        for apart in range(1 - op.kernel, op.kernel):
            moved = list(offset)
            moved[op.axis] = op.stride * offset[op.axis] + apart
            yield tuple(moved)

    def reads_between(self, network: PlannedNetwork, index: int, variances: bool, source: Offset) -> bool:
        return variances and any(source) and not network.linear_after[index]

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: AvgPool) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation("pool", index, lambda: _operation(network, index, op))
        emit_windows(emitter, plane, parts, operation, op.kernel > FEW_TERMS, POOL_KINDS)


class WindowKinds(NamedTuple):
    """The instructions of sums over windows, see ``core/interpreter/pooling.hpp``.

    Attributes
    ----------
    add, end
        Add what one plane gives to the sums of two windows; make H of the sums.
    variance, variance_end
        B, the weighted sums of the variances; N B - A, the variances of the sums.
    """

    add: _core.Kind
    end: _core.Kind
    variance: _core.Kind
    variance_end: _core.Kind


POOL_KINDS = WindowKinds(_core.Kind.POOL, _core.Kind.POOL_END, _core.Kind.VARIANCE_POOL, _core.Kind.VARIANCE_POOL_END)


def emit_windows(
    emitter: Emitter, plane: Plane, parts: list[Part], operation: int, wide: bool, kinds: WindowKinds
) -> None:
    """Emit the sums over two windows, of K, of H or of the variances."""
    if emitter.demand.holds_variances(plane) and not emitter.network.linear_after[plane.node]:
        _emit_variance(emitter, plane, parts[0], operation, wide, kinds)
        return
    emitter.accumulate(kinds.add, operation, plane, parts, wide)
    if not plane.covariance:
        for part in parts:
            emitter.emit(kinds.end, operation, plane, part.offset)


def _emit_variance(emitter: Emitter, plane: Plane, part: Part, operation: int, wide: bool, kinds: WindowKinds) -> None:
    """Emit N B - A, and store A and B where they are wanted."""
    network, index = emitter.network, plane.node
    apart = [read for read in part.reads if any(read.offset)]
    same = next(read.plane for read in part.reads if not any(read.offset))
    assert same is not None
    inside = plane._replace(covariance=False, step="inside")
    emitter.accumulate(kinds.add, operation, inside, [Part(part.offset, apart)], wide)
    if (_core.Cached.INSIDE, index) in network.cache:
        emitter.store(_core.Cached.INSIDE, index, inside)
    emitter.compute(same)
    mean = plane._replace(step="mean")
    emitter.take_slot(mean)
    emitter.emit(kinds.variance, operation, mean, part.offset, same)
    if (_core.Cached.MEAN, index) in network.cache:
        emitter.store(_core.Cached.MEAN, index, mean)
    emitter.emit(kinds.variance_end, operation, plane, part.offset, mean, out=emitter.slot(inside))
    emitter.leave_slot(mean)
    emitter.release(same)
    emitter.rename(inside, plane)


def _operation(network: PlannedNetwork, index: int, op: AvgPool) -> _core.Pool:
    before = network.program.nodes[index].inputs[0]
    weights, totals = window_weights(op, network.length_before(index, op.axis))
    return _core.Pool(
        in_size=network.size(before),
        out_size=network.size(index),
        axis=network.first_axis(before) + op.axis,
        kernel=op.kernel,
        stride=op.stride,
        padding=op.padding,
        wide=op.kernel > FEW_TERMS,
        weights=weights,
        totals=totals,
        inside_at=network.cache_at(_core.Cached.INSIDE, index),
        mean_at=network.cache_at(_core.Cached.MEAN, index),
    )


def window_weights(op: AvgPool, size: int) -> tuple[list[float], list[float]]:
    """Return, for each window over an axis of length ``size``, the weight of its positions and the sum of these weights."""
    matrix = op.matrix(size)
    return matrix.amax(1).tolist(), [round(value, 15) for value in matrix.sum(1).tolist()]


def shared_pools(network: PlannedNetwork) -> dict[int, int]:
    """Return the pools without overlapping windows, whose neighbouring offsets share planes, and their axes."""
    return {
        index: op.axis
        for index, node in enumerate(network.program.nodes)
        if isinstance(op := node.op, AvgPool) and op.size > 1 and op.stride >= op.kernel
    }


def kept_positions(network: PlannedNetwork, pool: int) -> int:
    """Count the planes that a pool keeps from one offset along its axis to the next: all offsets along the axes before it."""
    nodes = network.program.nodes
    op, positions = nodes[pool].op, nodes[nodes[pool].inputs[0]].positions
    assert isinstance(op, AvgPool)
    offsets = prod(2 * size - 1 for size in positions[: op.axis])
    return max(2 * op.kernel - 1 - op.stride, 0) * offsets * prod(positions)
