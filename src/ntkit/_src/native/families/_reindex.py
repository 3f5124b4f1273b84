"""Positions read from elsewhere along one axis: slices, padding, nearest neighbours, flips.

Slices and zero padding read positions in order, which a layer of kernel one computes. All others copy entries of several planes.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import pairwise
from typing import TYPE_CHECKING

from ntkit._src.program import Reindex

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family
from ._select import select_planes, strides

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network


class ReindexFamily(Family[Reindex]):
    """x'[q] = x[index[q]], zero where the index is negative."""

    def own_data(self, network: Network, index: int, op: Reindex) -> Iterator[tuple[_core.Own, int]]:
        in_order = start_and_step(op, _length(network, index, op)) is not None
        if not network.linear_after[index] and (in_order or min(op.index) < 0):
            yield _core.Own.HALF, network.program.nodes[index].inputs[0]

    def sources(self, op: Reindex, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        found = start_and_step(op, positions[op.axis])
        d = offset[op.axis]
        for e in _apart(op.index, d) if found is None else (d * found[1],):
            yield (*offset[: op.axis], e, *offset[op.axis + 1 :])

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Reindex) -> None:
        network, index = emitter.network, plane.node
        found = start_and_step(op, _length(network, index, op))
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


def _selection(network: Network, index: int, op: Reindex) -> _core.Select:
    before = network.program.nodes[index].inputs[0]
    return _core.Select(
        in_size=network.size(before),
        out_size=network.size(index),
        in_stride=strides(network.size(before)),
        axis=network.first_axis(before) + op.axis,
        index=op.index,
        half_in_at=network.own_at(_core.Own.HALF, before),
    )


def _layer(network: Network, index: int, op: Reindex, start: int, step: int) -> _core.Layer:
    before = network.program.nodes[index].inputs[0]
    stride, padding = [1] * 3, [0] * 3
    at = network.first_axis(before) + op.axis
    stride[at], padding[at] = step, -start
    return _core.Layer(
        in_size=network.size(before),
        out_size=network.size(index),
        stride=stride,
        padding=padding,
        half_in_at=network.own_at(_core.Own.HALF, before),
        half_out_at=network.own_at(_core.Own.HALF, index),
    )


def _length(network: Network, index: int, op: Reindex) -> int:
    nodes = network.program.nodes
    return nodes[nodes[index].inputs[0]].positions[op.axis]


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
