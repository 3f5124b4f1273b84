"""What a program's tables fix before any data: means of channels, and covariances that all pairs of inputs share.

A learned vector (a class token, a table of positions) has a mean over its channels, and sums, concatenations and normalisations
need it: K between two fields is the product of their means, and a normalisation subtracts m m'. As long as no activation makes
means of the data, these are numbers, which an operation :class:`Added` adds to K.

Maps whose rows are long become :class:`WholeMap`, and so do means over all positions after an operation that computes whole
covariances. A convolution of patches side by side before such an operation becomes a linear layer of patches.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from math import prod

import torch
from torch import Tensor

from ntkit._src.program import (
    AdaptiveAvgPool,
    Arrange,
    AvgPool,
    ConstantMap,
    Conv,
    Dense,
    Input,
    Join,
    Merge,
    Node,
    Normalize,
    Op,
    PositionMap,
    Program,
    Split,
    Sum,
    Table,
)

from .families import Added, WholeMap, family_of, has_long_rows

_MOST_POSITIONS = 4096  # of a mean over them as one matrix


class UnknownMeans(Exception):
    """Raised if an operation needs means of channels that depend on the data."""


def with_constants(program: Program) -> Program:
    """Insert the numbers that are added to covariances; most programs need none and are returned as they are."""
    nodes: list[Node] = []
    new: list[int] = []  # where each node went
    prefixes = list(program.prefixes)
    after: list[
        bool
    ] = []  # whether whole covariances are computed at the node or before it, with no layer of windows after them
    any_whole = any((family := family_of(node.op)) is not None and family.whole for node in program.nodes)
    means: list[Tensor | None] = []  # of the nodes of the program, shape (*positions); None: not known

    def add(node: Node, covariance: Tensor | None) -> int:
        nodes.append(node)
        if covariance is not None and bool(covariance.any()):
            nodes.append(replace(node, op=Added(covariance), inputs=(len(nodes) - 1,)))
        return len(nodes) - 1

    for node in program.nodes:
        before = [means[read] for read in node.inputs]
        inputs, op = tuple(new[read] for read in node.inputs), node.op
        means.append(_mean(node, before))
        added: Tensor | None = None
        uncentred = sum(not program.nodes[read].centred for read in node.inputs)
        if op.reads_means(uncentred):
            known = [mean for mean in before if mean is not None]
            if len(known) < len(before):
                raise UnknownMeans
            if isinstance(op, Normalize):
                mean = known[0].flatten()
                if node.inputs[0] == node.inputs[1] and bool(mean.any()):
                    centred = replace(
                        program.nodes[node.inputs[0]], op=Added(-torch.outer(mean, mean)), inputs=inputs[:1]
                    )
                    nodes.append(centred)
                    inputs = (len(nodes) - 1,) * 2
            else:
                added = _between(op, known, node.positions)
        if isinstance(op, Sum) and op.cross is not None:
            cross = op.cross.detach().to("cpu", torch.float64)
            added, op = cross if added is None else added + cross, replace(op, cross=None)
        family = family_of(op)
        after.append(
            (family is not None and family.whole) or (not isinstance(op, Conv) and any(after[r] for r in node.inputs))
        )
        if isinstance(op, (ConstantMap, AdaptiveAvgPool, AvgPool)):
            positions = program.nodes[node.inputs[0]].positions
            long = len(positions) == 1 and not isinstance(op, AvgPool) and has_long_rows(op, positions[0])
            pooled = not isinstance(op, ConstantMap) and op.size == 1 and after[-1]
            if long or (pooled and prod(positions) <= _MOST_POSITIONS):
                op = WholeMap(op.axis, _of_all(op, positions))
                after[-1] = True
        if any_whole and isinstance(op, Conv) and (patches := _patches(program, op, node.inputs[0])) is not None:
            data, prefix = patches
            prefixes.append(prefix)
            nodes.append(
                replace(
                    program.nodes[node.inputs[0]], op=replace(data, prefix=len(prefixes) - 1), positions=node.positions
                )
            )
            op, inputs = Dense(op.gains), (len(nodes) - 1,)
        new.append(add(replace(node, op=op, inputs=inputs), added))
    same = len(nodes) == len(program.nodes) and all(a.op is b.op for a, b in zip(nodes, program.nodes, strict=True))
    return program if same else _without_unread(Program(tuple(nodes), tuple(prefixes), program.layout))


def _of_all(op: PositionMap, positions: tuple[int, ...]) -> Tensor:
    """Return the matrix of a map along one axis as one of all positions, shape (positions after, positions before)."""
    before, after = (prod(part) for part in (positions[: op.axis], positions[op.axis + 1 :]))
    left, right = (torch.eye(size, dtype=torch.float64) for size in (before, after))
    return torch.kron(torch.kron(left, op.matrix(positions[op.axis])), right)


def _patches(program: Program, op: Conv, read: int) -> tuple[Input, Callable[[Tensor], Tensor]] | None:
    """Return the data whose channels are those of a patch, and what computes them, if windows lie side by side on the data."""
    node = program.nodes[read]
    data = node.op
    beside = op.kernel == op.stride and not any(map(any, op.padding)) and set(op.dilation) == {1}
    if (
        not isinstance(data, Input)
        or not beside
        or prod(op.kernel) == 1
        or op.axes != tuple(range(len(node.positions)))
    ):
        return None
    prefix = partial(_as_patches, program.prefixes[data.prefix], data.channel, op.kernel)
    return replace(data, channel=len(node.positions) + 1, channels=data.channels * prod(op.kernel)), prefix


def _as_patches(prefix: Callable[[Tensor], Tensor] | None, channel: int, kernel: tuple[int, ...], x: Tensor) -> Tensor:
    """Return the patches of the data, channels last."""
    value = (x if prefix is None else prefix(x)).movedim(channel, -1)
    for axis, size in enumerate(kernel):
        value = value.unfold(axis + 1, size, size)
    return value.flatten(len(kernel) + 1)


def _without_unread(program: Program) -> Program:
    """Leave out the data that nothing reads any more."""
    read = {index for node in program.nodes for index in node.inputs}
    kept = [index for index, node in enumerate(program.nodes) if index in read or not isinstance(node.op, Input)]
    if len(kept) == len(program.nodes) or program.output not in kept:
        return program
    new = {index: place for place, index in enumerate(kept)}
    nodes = [replace(program.nodes[i], inputs=tuple(new[read] for read in program.nodes[i].inputs)) for i in kept]
    return Program(tuple(nodes), program.prefixes, program.layout)


def _mean(node: Node, before: list[Tensor | None]) -> Tensor | None:
    """Return the mean of a node's channels; None if it depends on the data."""
    zero = torch.zeros(node.positions, dtype=torch.float64)
    if node.centred:
        return zero
    op = node.op
    if isinstance(op, Table):
        return zero if op.mean is None else op.mean.detach().to("cpu", torch.float64).reshape(node.positions)
    known = [mean for mean in before if mean is not None]
    if not known or len(known) < len(before):
        return None
    if isinstance(op, Sum):
        return sum((c * mean for c, mean in zip(op.coefficients, known, strict=True)), start=zero)
    if isinstance(op, Join):
        return torch.cat(known, op.axis)
    if isinstance(op, (PositionMap, Arrange, Split, Merge)):
        return op.finite((known[0][None, ..., None],), ())[0, ..., 0]
    return None


def _between(op: Op, means: list[Tensor], positions: tuple[int, ...]) -> Tensor:
    """Return the products of the means of different fields of a sum or a concatenation, shape (P, P)."""
    parts = []
    start = 0
    for which, mean in enumerate(means):
        if isinstance(op, Join):
            whole = torch.zeros(positions, dtype=torch.float64)
            whole.narrow(op.axis, start, op.sizes[which]).copy_(mean)
            start += op.sizes[which]
        else:
            assert isinstance(op, Sum)
            whole = op.coefficients[which] * mean
        parts.append(whole.reshape(prod(positions)))
    total = torch.stack(parts).sum(0)
    return torch.outer(total, total) - sum(torch.outer(part, part) for part in parts)
