"""What a program's tables fix before any data: means of channels, and covariances that all pairs of inputs share.

A learned vector (a class token, a table of positions) has a mean over its channels, and sums, concatenations and normalisations need
it: K between two fields is the product of their means, and a normalisation subtracts m m'. As long as no activation makes means of the
data, these are numbers, which an operation :class:`Added` adds to K. Maps whose rows are long become :class:`WholeMap`.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

import torch
from torch import Tensor

from ntkit._src.program import (
    AdaptiveAvgPool,
    Arrange,
    ConstantMap,
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

from .families import Added, WholeMap, has_long_rows


class UnknownMeans(Exception):
    """Raised if an operation needs means of channels that depend on the data."""


def with_constants(program: Program) -> Program:
    """Insert the numbers that are added to covariances; most programs need none and are returned as they are."""
    nodes: list[Node] = []
    new: list[int] = []  # where each node went
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
                    centred = replace(program.nodes[node.inputs[0]], op=Added(-torch.outer(mean, mean)), inputs=inputs[:1])
                    nodes.append(centred)
                    inputs = (len(nodes) - 1,) * 2
            else:
                added = _between(op, known, node.positions)
        if isinstance(op, Sum) and op.cross is not None:
            cross = op.cross.detach().to("cpu", torch.float64)
            added, op = cross if added is None else added + cross, replace(op, cross=None)
        if isinstance(op, (ConstantMap, AdaptiveAvgPool)) and len(node.positions) == 1:
            size = program.nodes[node.inputs[0]].positions[0]
            op = WholeMap(op.axis, op.matrix(size)) if has_long_rows(op, size) else op
        new.append(add(replace(node, op=op, inputs=inputs), added))
    same = len(nodes) == len(program.nodes) and all(a.op is b.op for a, b in zip(nodes, program.nodes, strict=True))
    return program if same else Program(tuple(nodes), program.prefixes, program.layout)


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
