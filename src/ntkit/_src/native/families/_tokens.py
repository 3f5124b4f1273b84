"""Tokens: learned vectors that all inputs share, integers looked up, fields joined along the positions, axes merged."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import partial
from math import prod
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ntkit._src.program import Join, Lookup, Merge, Op, Table

from .. import _core
from .._plane import Offset, Part, Plane
from ._family import Family
from ._reindex import strides

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


@dataclass(frozen=True, eq=False)
class Added(Op):
    """A value whose covariance gets numbers that all pairs of inputs share."""

    covariance: Tensor = field(repr=False)  # (P, P), float64


def _numbers(matrix: Tensor | None) -> list[float]:
    return [] if matrix is None else matrix.detach().to("cpu", torch.float64).flatten().tolist()


class TableFamily(Family[Table]):
    """Learned vectors: K[p, p'] and Theta[p, p'] are numbers."""

    single_precision = False

    def local(self, network: PlannedNetwork, index: int, op: Table) -> bool:
        return True

    def homogeneous(self, op: Table) -> bool:
        return False

    def may_be_negative(self, op: Table, before: bool) -> bool:
        return True

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Table) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "table",
            index,
            lambda: _core.Table(
                size=network.size(index), covariance=_numbers(op.covariance), tangent=_numbers(op.tangent)
            ),
        )
        emitter.take_slot(plane)
        for part in parts:
            emitter.emit(_core.Kind.FILL, emitter.fill(index, 0.0), plane, part.offset)
            emitter.emit(_core.Kind.TABLE, operation, plane, part.offset)


class AddedFamily(Family[Added]):
    """K' = K + C. Where C is negative, as that of subtracted means, H is a difference."""

    single_precision = False
    rounds_h = True

    def local(self, network: PlannedNetwork, index: int, op: Added) -> bool:
        return True

    def homogeneous(self, op: Added) -> bool:
        return False

    def may_be_negative(self, op: Added, before: bool) -> bool:
        return True

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Added) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "table", index, lambda: _core.Table(size=network.size(index), covariance=_numbers(op.covariance))
        )
        emitter.accumulate(_core.Kind.COMBINE, emitter.plain(index), plane, parts, wide=False)
        for part in parts:
            emitter.emit(_core.Kind.TABLE, operation, plane, part.offset)


class LookupFamily(Family[Lookup]):
    """An embedding of integers: K = 1 where both are the same row."""

    single_precision = False

    def local(self, network: PlannedNetwork, index: int, op: Lookup) -> bool:
        return True

    def homogeneous(self, op: Lookup) -> bool:
        return False

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Lookup) -> None:
        network, index = emitter.network, plane.node
        padding = -1.0 if op.padding is None else float(op.padding)
        operation = emitter.operation(
            "lookup",
            index,
            lambda: _core.Lookup(size=network.size(index), data=network.inputs.index(index), padding=padding),
        )
        emitter.unary(_core.Kind.LOOKUP, operation, plane, parts)


class JoinFamily(Family[Join]):
    """Independent fields joined along an axis: K is zero between two of them, before the products of their means are added."""

    def cache_entries(self, network: PlannedNetwork, index: int, op: Join) -> Iterator[tuple[_core.Cached, int]]:
        if not network.linear_after[index]:
            yield _core.Cached.HALF, index

    def local(self, network: PlannedNetwork, index: int, op: Join) -> bool:
        return len(network.program.nodes[index].positions) == 1

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Join) -> None:
        network, index = emitter.network, plane.node
        half_at = network.cache_at(_core.Cached.HALF, index)
        between = emitter.operation(
            "independent", index, lambda: _core.Convert(size=network.size(index), half_at=half_at)
        )
        emitter.take_slot(plane)
        for part in parts:
            emitter.emit(_core.Kind.INDEPENDENT, between, plane, part.offset)
            for read, source, which in part.reads:
                if read is not None:
                    emitter.compute(read)
                    kind = _core.Kind.PLACE if plane.step else _core.Kind.SELECT
                    part_of = partial(_part, network, index, op, which)
                    operation = emitter.operation("part", index, part_of, float(which))
                    emitter.emit(kind, operation, plane, part.offset, read, source)
                    emitter.release(read)


def _part(network: PlannedNetwork, index: int, op: Join, which: int) -> _core.Select:
    read = network.program.nodes[index].inputs[which]
    start, size = sum(op.sizes[:which]), op.sizes[which]
    return _core.Select(
        in_size=network.size(read),
        out_size=network.size(index),
        in_stride=strides(network.size(read)),
        axis=network.first_axis(index) + op.axis,
        index=[q - start if 0 <= q - start < size else -1 for q in range(sum(op.sizes))],
    )


class MergeFamily(Family[Merge]):
    """Adjacent axes merged: positions keep their order, and so their places in memory."""

    def local(self, network: PlannedNetwork, index: int, op: Merge) -> bool:
        return True

    def sources(self, op: Merge, offset: Offset, positions: tuple[int, ...]) -> Iterator[Offset]:
        sizes = positions[op.axis : op.axis + op.count]
        for apart in _splits(offset[op.axis], sizes):
            yield (*offset[: op.axis], *apart, *offset[op.axis + 1 :])

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Merge) -> None:
        network, index = emitter.network, plane.node
        before = network.program.nodes[index].inputs[0]
        operation = emitter.operation(
            "relabel", index, lambda: _core.Select(in_size=network.size(before), out_size=network.size(index))
        )
        emitter.take_slot(plane)
        for part in parts:
            for read, source, _ in part.reads:
                if read is not None:
                    emitter.compute(read)
                    emitter.emit(_core.Kind.RELABEL, operation, plane, part.offset, read, source)
                    emitter.release(read)


def _splits(d: int, sizes: tuple[int, ...]) -> Iterator[Offset]:
    """Yield the offsets along some axes that are ``d`` positions apart once these are merged."""
    if len(sizes) == 1:
        if abs(d) < sizes[0]:
            yield (d,)
        return
    step = prod(sizes[1:])
    for first in (d // step, d // step + 1):
        if abs(first) < sizes[0]:
            for rest in _splits(d - first * step, sizes[1:]):
                yield (first, *rest)
