"""A network as a list of operations, and what each declares: what it reads of its inputs' covariance, and its finite form.

A value of the network is a random field over positions (pixels, tokens; none for vectors) whose channels are
exchangeable, so in the limit its distribution is described by a covariance K[p, p'] between the positions of two inputs.
Each op says, position axis by position axis, how much of its inputs' covariance it reads (:class:`Keep`), and what it
computes in a network of finite width, of which its covariance rule (``ntkit.rules``) is the limit.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import IntEnum
from functools import cached_property
from typing import ClassVar

from torch import Tensor


class Keep(IntEnum):
    """What is kept of a covariance along one position axis: only K[p, p], or every K[p, p']; the value counts indices."""

    SAME = 1
    ALL = 2


Keeps = tuple[Keep, ...]
"""One :class:`Keep` per position axis; None in place of all of them means that nothing is kept."""

Values = tuple[Tensor, ...]
"""Values of nodes in a finite network, shape (n, *positions, channels); a length of one broadcasts."""

Weights = tuple[Tensor | None, ...]
"""Parameters of an operation in a finite network: its weight and its bias; None where it has none."""


@dataclass(frozen=True)
class Op:
    """Base of the operations."""

    selects: ClassVar[bool] = False
    """Whether every position of the output is a position of the input, or zero."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        """Return what must be kept of each input to compute ``keeps`` of the output; None: the input is not read."""
        return (keeps,)

    def needs_own(self, ranks: tuple[int, ...]) -> tuple[Keeps | None, ...]:
        """Return what the rule reads of K(x, x) of each input, given how many position axes each input has."""
        return (None,) * len(ranks)

    def reads_means(self, uncentred: int) -> bool:
        """Return whether the rule reads the channels' means of its inputs, ``uncentred`` of which are not centred."""
        return False

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Return the value in a finite network, shape (n, *positions, channels), from those of the inputs."""
        raise NotImplementedError

    def alike(self, other: Op) -> bool:
        """Return whether ``other`` is this operation in the program of inputs of another size."""
        return self == other

    def label(self) -> str:
        """Name the operation in tables."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Source(Op):
    """Base of the operations without inputs."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ()


@dataclass(frozen=True)
class Node:
    """One operation applied to earlier nodes."""

    op: Op
    inputs: tuple[int, ...]  # indices of the nodes it reads
    positions: tuple[int, ...]  # lengths of the position axes of its value; empty for vectors
    path: str  # where in the module it comes from
    centred: bool  # every channel of its value has mean zero
    trained: bool  # a trained parameter comes before it or in it, so that its tangent kernel is not zero


class Structure:
    """What programs have in common that differ in the values of gains alone: neither in which are zero, nor which are tensors."""


@dataclass(frozen=True, eq=False)
class Program:
    """The operations of a network in order of execution; a program equals only itself."""

    # Each reads only nodes before it; the last is the output, without position axes unless its positions are kept.
    nodes: tuple[Node, ...]
    prefixes: tuple[Callable[[Tensor], Tensor] | None, ...]  # what runs on the data; None: nothing
    # For each output dimension except batch and channels, the position axes of the last node that it enumerates, slowest first.
    layout: tuple[tuple[int, ...], ...] = ()

    @cached_property
    def structure(self) -> Structure:
        """What it has in common with programs made by :meth:`with_ops`."""
        return Structure()

    def with_ops(self, ops: Mapping[int, Op]) -> Program:
        """Return the program of the same structure with other operations at some nodes, of the same kinds with other gains."""
        _ = self.structure  # computed now, so that both have the same
        other = copy.copy(self)  # with what is known of the structure: nothing else that is cached depends on gains
        nodes = (replace(node, op=ops[index]) if index in ops else node for index, node in enumerate(self.nodes))
        object.__setattr__(other, "nodes", tuple(nodes))
        vars(other).pop("tensor_gains", None)
        return other

    @cached_property
    def tensor_gains(self) -> tuple[Tensor, ...]:
        """The gains that are tensors, with respect to which kernels may be differentiated."""
        gains = (vars(own).values() for node in self.nodes if (own := getattr(node.op, "gains", None)) is not None)
        return tuple(gain for own in gains for gain in own if isinstance(gain, Tensor))

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
                    demands[read] = joined_keeps(demands.get(read), keeps) or keeps
        return demands

    @cached_property
    def diag_keeps(self) -> tuple[Keeps | None, ...]:
        """What is kept of K(x, x) of one input if the output's own variance is requested too."""
        return tuple(joined_keeps(a, b) for a, b in zip(self.self_keeps, self.cross_keeps, strict=True))

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
                keeps[read] = joined_keeps(keeps[read], needed)
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


def joined_keeps(first: Keeps | None, second: Keeps | None) -> Keeps | None:
    """Return what must be kept for two readers."""
    if first is None or second is None:
        return first if second is None else second
    return tuple(max(a, b) for a, b in zip(first, second, strict=True))
