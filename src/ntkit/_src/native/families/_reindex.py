"""Positions read from elsewhere: x'[q] = x[s(q)], so K'[q, q + d] is an entry of the plane s(q + d) - s(q).

Slices and zero padding read positions in order, which a layer of kernel one computes. All others (nearest neighbours, flips, axes
in another order, dropped, added or split) copy entries of one or several planes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ntkit._src.program import Arrange, Reindex, Split

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


class ReindexFamily(Family[Reindex]):
    """x'[q] = x[index[q]], zero where the index is negative."""

    def cache_entries(self, network: PlannedNetwork, index: int, op: Reindex) -> Iterator[tuple[_core.Cached, int]]:
        in_order = start_and_step(op, network.length_before(index, op.axis)) is not None
        if not network.linear_after[index] and (in_order or min(op.index) < 0):
            yield _core.Cached.HALF, network.program.nodes[index].inputs[0]

    def sources(self, op: Reindex, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        found = start_and_step(op, positions[op.axis])
        d = offset[op.axis]
        for e in _apart(op.index, d) if found is None else (d * found[1],):
            yield (*offset[: op.axis], e, *offset[op.axis + 1 :])

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Reindex) -> None:
        network, index = emitter.network, plane.node
        found = start_and_step(op, network.length_before(index, op.axis))
        if found is None:
            operation = emitter.operation("select", index, lambda: _selection(network, index, op))
            select_planes(emitter, plane, parts, operation, zeros=min(op.index) < 0)
        else:
            operation = emitter.operation("layer", index, lambda: _layer(network, index, op, *found))
            emitter.unary(_core.Kind.LAYER, operation, plane, parts)


@lru_cache(maxsize=1 << 14)
def _apart(index: tuple[int, ...], d: int) -> tuple[int, ...]:
    """Give how far apart, along the axis, the positions are that q and q + d read, zeros left out."""
    pairs = zip(index[max(0, -d) :], index[max(0, d) :], strict=False)
    return tuple(sorted({second - first for first, second in pairs if first >= 0 and second >= 0}))


def _selection(network: PlannedNetwork, index: int, op: Reindex) -> _core.Select:
    before = network.program.nodes[index].inputs[0]
    return _core.Select(
        in_size=network.size(before),
        out_size=network.size(index),
        in_stride=strides(network.size(before)),
        axis=network.first_axis(before) + op.axis,
        index=op.index,
        half_in_at=network.cache_at(_core.Cached.HALF, before),
    )


def _layer(network: PlannedNetwork, index: int, op: Reindex, start: int, step: int) -> _core.Layer:
    before = network.program.nodes[index].inputs[0]
    stride, padding = [1] * 3, [0] * 3
    at = network.first_axis(before) + op.axis
    stride[at], padding[at] = step, -start
    return _core.Layer(
        in_size=network.size(before),
        out_size=network.size(index),
        stride=stride,
        padding=padding,
        half_in_at=network.cache_at(_core.Cached.HALF, before),
        half_out_at=network.cache_at(_core.Cached.HALF, index),
    )


def start_and_step(op: Reindex, size: int) -> tuple[int, int] | None:
    """Return start and step if positions are read in order, x'[q] = x[start + step q], zero outside; None otherwise."""
    inside = [(q, p) for q, p in enumerate(op.index) if p >= 0]
    if not inside:
        return None
    step = inside[1][1] - inside[0][1] if len(inside) > 1 else 1
    if step < 1 or any(q2 - q1 != 1 or p2 - p1 != step for (q1, p1), (q2, p2) in pairwise(inside)):
        return None
    start = inside[0][1] - step * inside[0][0]
    # Zeros at either end must lie outside the input, or the layer would read values instead.
    (first, source), (last, end) = inside[0], inside[-1]
    if (first > 0 and source - step >= 0) or (last + 1 < len(op.index) and end + step < size):
        return None
    return start, step


class ArrangeFamily(Family[Arrange]):
    """Axes permuted, those of length one dropped, and new ones along which the value is constant."""

    def sources(self, op: Arrange, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        found = [0] * len(positions)
        for axis, d in zip(op.axes, offset, strict=True):
            if axis is not None:
                found[axis] = d
        yield tuple(found)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Arrange) -> None:
        def make() -> _core.Select:
            steps, first = _steps(emitter.network, plane.node)
            return _arranged(
                emitter.network, plane.node, [0 if axis is None else steps[first + axis] for axis in op.axes]
            )

        select_planes(emitter, plane, parts, emitter.operation("select", plane.node, make), zeros=False)


class SplitFamily(Family[Split]):
    """One axis seen as several, the last varying fastest: p = a B + b."""

    def sources(self, op: Split, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        joined = 0
        for d, size in zip(offset[op.axis :], op.sizes, strict=False):
            joined = joined * size + d
        yield (*offset[: op.axis], joined, *offset[op.axis + len(op.sizes) :])

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Split) -> None:
        def make() -> _core.Select:
            steps, first = _steps(emitter.network, plane.node)
            split = []
            step = steps[first + op.axis]
            for size in reversed(op.sizes):
                split.append(step)
                step *= size
            before, after = steps[first : first + op.axis], steps[first + op.axis + 1 :]
            return _arranged(emitter.network, plane.node, [*before, *reversed(split), *after])

        select_planes(emitter, plane, parts, emitter.operation("select", plane.node, make), zeros=False)


def _steps(network: PlannedNetwork, index: int) -> tuple[list[int], int]:
    """Give how far apart neighbours of the input of a node are stored, along the core's axes, and which is its first."""
    before = network.program.nodes[index].inputs[0]
    return strides(network.size(before)), network.first_axis(before)


def _arranged(network: PlannedNetwork, index: int, in_stride: list[int]) -> _core.Select:
    return _core.Select(
        in_size=network.size(network.program.nodes[index].inputs[0]),
        out_size=network.size(index),
        in_stride=[0] * network.first_axis(index) + in_stride,
    )


def select_planes(emitter: Emitter, plane: Plane, parts: list[Part], operation: int, zeros: bool) -> None:
    """Emit the copies of the planes that are read; first what no plane gives. ``zeros``: some positions are zero."""
    emitter.take_slot(plane)
    for part in parts:
        if zeros or not part.reads or len(part.planes) < len(part.reads):
            emitter.emit(_core.Kind.SELECT, operation, plane, part.offset)
        for read, source, _ in part.reads:
            if read is not None:
                emitter.compute(read)
                emitter.emit(_core.Kind.SELECT, operation, plane, part.offset, read, source)
                emitter.release(read)


def strides(size: list[int]) -> list[int]:
    """Give how far apart neighbours along each axis are stored, in positions."""
    return [size[1] * size[2], size[2], 1]
