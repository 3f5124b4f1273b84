"""A network as a list of operations, and what must be kept of each covariance."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from torch import Tensor

from ._op import Keep, Keeps, Op


@dataclass(frozen=True)
class Node:
    """One operation applied to earlier nodes."""

    op: Op
    inputs: tuple[int, ...]  # indices of the nodes it reads
    positions: tuple[int, ...]  # lengths of the position axes of its value; empty for vectors
    path: str  # where in the module it comes from
    centred: bool  # every channel of its value has mean zero
    trained: bool  # a trained parameter comes before it or in it, so that its tangent kernel is not zero


@dataclass(frozen=True, eq=False)
class Program:
    """The operations of a network in order of execution; a program equals only itself."""

    # Each reads only nodes before it; the last is the output, without position axes unless its positions are kept.
    nodes: tuple[Node, ...]
    prefixes: tuple[Callable[[Tensor], Tensor] | None, ...]  # what runs on the data; None: nothing
    # For each output dimension except batch and channels, the position axes of the last node that it enumerates, slowest first.
    layout: tuple[tuple[int, ...], ...] = ()

    @property
    def output(self) -> int:
        """Index of the node that holds the network's output."""
        return len(self.nodes) - 1

    @cached_property
    def cross_keeps(self) -> tuple[Keeps | None, ...]:
        """What is kept of K(x, x') between two inputs, for each node."""
        return self.requirements({self.output: (Keep.ALL,) * len(self.nodes[self.output].positions)})

    @cached_property
    def self_keeps(self) -> tuple[Keeps | None, ...]:
        """What is kept of K(x, x) of one input, for each node: what activations, normalisations and attention read."""
        return self.requirements(self.own_demands)

    @cached_property
    def own_demands(self) -> dict[int, Keeps]:
        """What some operation reads of K(x, x) of one input, by node."""
        demands: dict[int, Keeps] = {}
        for node in self.nodes:
            needed = node.op.needs_own(tuple(len(self.nodes[read].positions) for read in node.inputs))
            for read, keeps in zip(node.inputs, needed, strict=True):
                if keeps is not None:
                    demands[read] = _join(demands.get(read), keeps) or keeps
        return demands

    @cached_property
    def diag_keeps(self) -> tuple[Keeps | None, ...]:
        """What is kept of K(x, x) of one input if the output's own variance is requested too."""
        return tuple(_join(a, b) for a, b in zip(self.self_keeps, self.cross_keeps, strict=True))

    @cached_property
    def full_keeps(self) -> tuple[Keeps | None, ...]:
        """Everything kept everywhere: the oracle for the cheaper representations."""
        return tuple((Keep.ALL,) * len(node.positions) for node in self.nodes)

    def requirements(self, demands: Mapping[int, Keeps]) -> tuple[Keeps | None, ...]:
        """Infer, from the demanded nodes back, the least that must be kept of every node; None: nothing at all."""
        keeps: list[Keeps | None] = [demands.get(index) for index in range(len(self.nodes))]
        for index in reversed(range(len(self.nodes))):
            kept = keeps[index]
            if kept is None:
                continue
            node = self.nodes[index]
            for read, needed in zip(node.inputs, node.op.needs(kept), strict=True):
                keeps[read] = _join(keeps[read], needed)
        return tuple(keeps)

    @cached_property
    def means_needed(self) -> bool:
        """Whether some operation reads the means of channels that are not centred."""
        return any(
            node.op.reads_means(sum(not self.nodes[read].centred for read in node.inputs)) for node in self.nodes
        )


def entries(positions: tuple[int, ...], keeps: Keeps | None) -> int:
    """Count the entries kept for one pair of inputs: the product over the axes of P or P^2."""
    if keeps is None:
        return 0
    return math.prod(size**keep for size, keep in zip(positions, keeps, strict=True))


def _join(first: Keeps | None, second: Keeps | None) -> Keeps | None:
    if first is None or second is None:
        return first if second is None else second
    return tuple(max(a, b) for a, b in zip(first, second, strict=True))
