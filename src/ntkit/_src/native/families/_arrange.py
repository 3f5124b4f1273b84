"""Position axes in another order, dropped, added or split: the same entries, in planes with other axes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ntkit._src.program import Arrange, Split

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family
from ._select import select_planes, strides

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network


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
            return _operation(
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
            return _operation(emitter.network, plane.node, [*before, *reversed(split), *after])

        select_planes(emitter, plane, parts, emitter.operation("select", plane.node, make), zeros=False)


def _steps(network: Network, index: int) -> tuple[list[int], int]:
    """Give how far apart neighbours of the input of a node are stored, along the core's axes, and which is its first."""
    before = network.program.nodes[index].inputs[0]
    return strides(network.size(before)), network.first_axis(before)


def _operation(network: Network, index: int, in_stride: list[int]) -> _core.Select:
    return _core.Select(
        in_size=network.size(network.program.nodes[index].inputs[0]),
        out_size=network.size(index),
        in_stride=[0] * network.first_axis(index) + in_stride,
    )
