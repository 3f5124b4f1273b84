"""Slices and zero padding: positions read in order, which a layer of kernel one computes."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import TYPE_CHECKING

from ntkit.program import Reindex

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network

__all__ = ["ReindexFamily", "start_and_step"]


class ReindexFamily(Family[Reindex]):
    """x'[q] = x[start + step q], zero outside."""

    def missing(self, network: Network, index: int, op: Reindex) -> str | None:
        return "positions in another order" if start_and_step(op, _length(network, index, op)) is None else None

    def own_data(self, network: Network, index: int, op: Reindex) -> Iterator[tuple[_core.Own, int]]:
        if not network.linear_after[index]:
            yield _core.Own.HALF, network.program.nodes[index].inputs[0]

    def sources(self, op: Reindex, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        scaled = list(offset)
        scaled[op.axis] *= _known(op, positions[op.axis])[1]
        yield tuple(scaled)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Reindex) -> None:
        operation = emitter.operation("layer", plane.node, lambda: _operation(emitter.network, plane.node, op))
        emitter.unary(_core.Kind.LAYER, operation, plane, parts)


def _operation(network: Network, index: int, op: Reindex) -> _core.Layer:
    before = network.program.nodes[index].inputs[0]
    stride, padding = [1] * 3, [0] * 3
    at = network.first_axis(before) + op.axis
    start, stride[at] = _known(op, _length(network, index, op))
    padding[at] = -start
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


def _known(op: Reindex, size: int) -> tuple[int, int]:
    found = start_and_step(op, size)
    assert found is not None  # others are refused before anything is planned
    return found


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
