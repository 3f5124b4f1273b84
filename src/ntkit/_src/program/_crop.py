"""A program for a window of its output: every node is computed only where that window reads it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from ._activation import Pointwise
from ._affine import Conv, Dense
from ._combine import Concat, Constant, Product, Sum
from ._input import Input
from ._maps import ConstantMap
from ._normalize import Normalize
from ._op import Op
from ._positions import Arrange, Contract, PositionMap, Reindex
from ._prior import GivenPrior, StationaryPrior
from ._program import Node, Program

__all__ = ["cropped"]

Window = tuple[range, ...]
"""Positions of a node, one range per axis."""


class _Whole(Exception):
    """Raised for an operation that cannot be computed in a window alone."""


@dataclass(frozen=True)
class _Cut:
    """An operation restricted to a window of its output, and the windows of its inputs that it reads."""

    op: Op
    reads: tuple[Window, ...]


def cropped(program: Program, window: Sequence[range]) -> Program:
    """Return a program whose output is that of ``program`` in a window, one range for each axis of the last node.

    Circular convolutions, normalisations over positions, split axes and matrices computed from each input read everything: a
    program that contains them is computed in full, and the window is taken from its output.
    """
    try:
        return _cropped(program, tuple(window))
    except _Whole:
        nodes = list(program.nodes)
        nodes += _selections(nodes[-1], len(nodes) - 1, _all(nodes[-1].positions), tuple(window))
        return replace(program, nodes=tuple(nodes))


def _cropped(program: Program, window: Window) -> Program:
    nodes = program.nodes
    windows: list[Window | None] = [None] * len(nodes)
    windows[program.output] = window
    cuts: list[_Cut | None] = [None] * len(nodes)
    for index in reversed(range(len(nodes))):
        own = windows[index]
        if own is None:
            continue
        cut = cuts[index] = _cut(nodes[index], [nodes[read].positions for read in nodes[index].inputs], own)
        for read, needed in zip(nodes[index].inputs, cut.reads, strict=True):
            windows[read] = needed if windows[read] is None else _hull(windows[read], needed)
    prefixes = list(program.prefixes)
    made: list[Node] = []
    place: dict[int, int] = {}
    for index, node in enumerate(nodes):
        known_cut, own = cuts[index], windows[index]
        if known_cut is None or own is None:
            continue
        inputs = []
        for read, needed in zip(node.inputs, known_cut.reads, strict=True):
            known = windows[read]
            assert known is not None
            made += _selections(made[place[read]], place[read], known, needed, len(made))
            inputs.append(place[read] if known == needed else len(made) - 1)
        op = known_cut.op
        if isinstance(op, Input):
            prefixes.append(partial(_sliced, prefixes[op.prefix], op.channel, own))
            op = replace(op, prefix=len(prefixes) - 1)
        made.append(replace(node, op=op, inputs=tuple(inputs), positions=_lengths(own)))
        place[index] = len(made) - 1
    return replace(program, nodes=tuple(made), prefixes=tuple(prefixes))


def _cut(node: Node, inputs: Sequence[tuple[int, ...]], window: Window) -> _Cut:
    whole = window == _all(node.positions)
    match node.op:
        case Dense() | Pointwise() | Sum() | Product() | Concat() as op:
            return _Cut(op, (window,) * len(inputs))
        case Input() | Constant() as op:
            return _Cut(op, ())
        case StationaryPrior() as op:
            return _Cut(replace(op, positions=_lengths(window)), ())
        case GivenPrior() as op:
            slices = tuple(slice(part.start, part.stop) for part in window)
            return _Cut(replace(op, covariance=op.covariance[slices + slices]), ())
        case Conv() as op if not op.circular:
            return _cut_conv(op, inputs[0], window)
        case PositionMap() as op:
            return _cut_map(op, inputs[0], window)
        case Contract() as op:
            rest = iter(window)
            read = tuple(range(size) if axis in op.axes else next(rest) for axis, size in enumerate(inputs[0]))
            return _Cut(op, (read,))
        case Arrange() as op:
            kept = dict(zip(op.axes, window, strict=True))
            read = tuple(kept.get(axis, range(size)) for axis, size in enumerate(inputs[0]))
            return _Cut(replace(op, sizes=_lengths(window)), (read,))
        case Normalize() as op if not (op.axes or op.affine_axes):
            return _Cut(op, (window,) * len(inputs))
        case op if whole:
            return _Cut(op, tuple(_all(positions) for positions in inputs))
    raise _Whole


def _cut_conv(op: Conv, positions: tuple[int, ...], window: Window) -> _Cut:
    read, padding = list(window), list(op.padding)
    for index, axis in enumerate(op.axes):
        size, part = positions[axis], window[axis]
        start = part.start * op.stride[index] - padding[index][0]
        stop = (part.stop - 1) * op.stride[index] - padding[index][0] + op.dilation[index] * (op.kernel[index] - 1) + 1
        padding[index] = (max(0, -start), max(0, stop - size))
        read[axis] = range(max(0, start), min(size, stop))
        if not read[axis]:
            raise _Whole  # every window lies in the padding
    return _Cut(replace(op, padding=tuple(padding)), (tuple(read),))


def _cut_map(op: PositionMap, positions: tuple[int, ...], window: Window) -> _Cut:
    part = window[op.axis]
    rows = op.matrix(positions[op.axis])[part.start : part.stop]
    used = rows.any(0).nonzero().flatten().tolist() or [0]
    columns = range(used[0], used[-1] + 1)
    made: PositionMap
    if isinstance(op, Reindex):
        index = tuple(p - columns.start if p >= 0 else -1 for p in op.index[part.start : part.stop])
        made = replace(op, index=index)
    else:
        made = ConstantMap.of(op.axis, rows[:, columns.start : columns.stop], op.label())
    return _Cut(made, ((*window[: op.axis], columns, *window[op.axis + 1 :]),))


def _selections(node: Node, index: int, known: Window, needed: Window, at: int | None = None) -> list[Node]:
    """Return nodes that select a window of a node computed in a larger window; the first gets index ``at``."""
    made: list[Node] = []
    place = index + 1 if at is None else at
    for axis, (have, want) in enumerate(zip(known, needed, strict=True)):
        if have != want:
            chosen = tuple(p - have.start for p in want)
            positions = (*node.positions[:axis], len(want), *node.positions[axis + 1 :])
            node = replace(node, op=Reindex(axis, chosen, "window"), inputs=(index,), positions=positions)
            index = place + len(made)
            made.append(node)
    return made


def _sliced(prefix: Callable[[Tensor], Tensor] | None, channel: int, window: Window, x: Tensor) -> Tensor:
    """Run what comes before the first layer, and take a window of the positions of its output."""
    value = x if prefix is None else prefix(x)
    dims = [dim for dim in range(1, value.ndim) if dim != channel]
    for dim, part in zip(dims, window, strict=True):
        value = torch.narrow(value, dim, part.start, len(part))
    return value


def _all(positions: Sequence[int]) -> Window:
    return tuple(range(size) for size in positions)


def _lengths(window: Window) -> tuple[int, ...]:
    return tuple(len(part) for part in window)


def _hull(first: Window | None, second: Window) -> Window:
    assert first is not None
    return tuple(range(min(a.start, b.start), max(a.stop, b.stop)) for a, b in zip(first, second, strict=True))
