"""A part of a network in which layers are called more than once: the covariances between its values, pair by pair."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product
from typing import Literal

from ._activation import Pointwise
from ._affine import Conv, Dense
from ._combine import Concat, Join, Sum
from ._input import Input
from ._positions import Arrange, Contract, Merge, PositionMap, Split
from ._program import Keep, Keeps, Node, Op

Pair = tuple[int, int]
Sides = Literal["neither", "left", "right", "both"]

_MOVES = (Join, PositionMap, Split, Arrange, Merge)


class NoSharedRule(Exception):
    """Raised for two values, by their nodes, whose covariance has no closed form."""

    def __init__(self, pair: Pair) -> None:
        super().__init__(pair)
        self.pair = pair


@dataclass(frozen=True, eq=False)
class Shared(Op):
    r"""Operations among which some have the same weights, so that their values depend on each other.

    For any two of its values u_i and u_j, K_ij[p, p'] = E[u_i(x)[p] u_j(x')[p']], and Theta_ij likewise, follow from those of
    the values that they are computed from: two calls of one layer have K_ij = w^2 K_ab + b^2, where a and b are their inputs, two
    calls of different layers are independent, and activations of both are E[phi(u_a) phi(u_b)]. The limit is that of tensor
    programs (Yang 2019, 2020): pre-activations of all calls are jointly Gaussian.
    """

    nodes: tuple[Node, ...]  # its inputs, then its operations, which read earlier ones; the last is its output
    given: int  # how many inputs
    sources: tuple[frozenset[int], ...]  # of each node; values that have none in common are independent
    calls: tuple[int | None, ...]  # for a layer with weights a number that all its calls have
    cuts: tuple[Pair | None, ...]  # for a range of another node's channels that range

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return tuple((Keep.ALL,) * len(node.positions) for node in self.nodes[: self.given])

    def needs_own(self, ranks: tuple[int, ...]) -> tuple[Keeps | None, ...]:
        return tuple((Keep.ALL,) * rank for rank in ranks)

    def reads_means(self, uncentred: int) -> bool:
        return uncentred > 0

    def label(self) -> str:
        calls = [call for call in self.calls if call is not None]
        return f"shared weights: {len(calls)} calls of {len(set(calls))} layers"

    def dependent(self, i: int, j: int) -> bool:
        """Return whether two values may depend on each other."""
        return bool(self.sources[i] & self.sources[j])

    def terms(self, i: int, j: int) -> tuple[Pair, ...]:
        """Return the pairs of values whose covariances give K_ij: none if they are independent, given or data."""
        return self.sided_terms(i, j)[1]

    def sided_terms(self, i: int, j: int) -> tuple[Sides, tuple[Pair, ...]]:
        """Return the terms, and whether u_i, u_j or both are written by what they are computed from."""
        if (i, j) not in self._known:
            self._known[i, j] = self._sided_terms(i, j)
        return self._known[i, j]

    @cached_property
    def _known(self) -> dict[Pair, tuple[Sides, tuple[Pair, ...]]]:
        return {}

    def _sided_terms(self, i: int, j: int) -> tuple[Sides, tuple[Pair, ...]]:
        if not self.dependent(i, j) or (i == j and i < self.given):
            return "neither", ()
        first, second = self._linear(i), self._linear(j)
        if first is not None and second is not None and self._sums(i) and self._sums(j):
            return "both", tuple(product(first, second))
        if first is not None and (i >= j or second is None):
            return "left", tuple((read, j) for read in first)
        if second is not None:
            return "right", tuple((i, read) for read in second)
        if min(i, j) >= self.given and self._alike(i, j):
            return "both", tuple(zip(self.nodes[i].inputs, self.nodes[j].inputs, strict=True))
        raise NoSharedRule((i, j))

    def _linear(self, i: int) -> tuple[int, ...] | None:
        """Return what a sum or a linear map of positions reads, which acts on one side of a covariance at a time; else None."""
        node = self.nodes[i]
        if self._sums(i):
            assert isinstance(node.op, Sum)
            return tuple(read for read, c in zip(node.inputs, node.op.coefficients, strict=True) if c != 0)
        return node.inputs if i >= self.given and isinstance(node.op, _MOVES) else None

    def _sums(self, i: int) -> bool:
        op = self.nodes[i].op
        return i >= self.given and isinstance(op, Sum) and op.cross is None and self.cuts[i] is None

    def _alike(self, i: int, j: int) -> bool:
        """Return whether two nodes apply the same function, or the same random layer, to each channel."""
        match self.nodes[i].op, self.nodes[j].op:
            case Dense(), Dense():
                return self.calls[i] == self.calls[j]
            case Conv() as first, Conv() as second:
                same = (first.axes, first.kernel) == (second.axes, second.kernel)
                return same and self.calls[i] == self.calls[j]
            case Pointwise() as first, Pointwise() as second:
                return first.phi == second.phi
            case Input() as first, Input() as second:
                return first.channels == second.channels
            case Concat() as first, Concat() as second:
                return first.fractions == second.fractions
            case Contract() as first, Contract() as second:
                sizes = (self.nodes[self.nodes[index].inputs[0]].positions for index in (i, j))
                return first.axes == second.axes and len(set(sizes)) == 1
            case Sum(), Sum():
                return self.cuts[i] == self.cuts[j] is not None
        return False

    @cached_property
    def between(self) -> tuple[Pair, ...]:
        """The pairs of values whose covariance between two inputs is computed, in order."""
        return self._schedule(own=False)

    @cached_property
    def alone(self) -> tuple[Pair, ...]:
        """The pairs whose covariance of one input with itself is computed: also the variances that activations read."""
        return self._schedule(own=True)

    def _schedule(self, own: bool) -> tuple[Pair, ...]:
        last = len(self.nodes) - 1
        found: set[Pair] = set()
        stack = [(last, last)]
        averaged: set[int] = set()  # nodes whose means are read
        while stack:
            pair = stack.pop()
            if pair in found:
                continue
            found.add(pair)
            stack += self.terms(*pair)
            if not own:
                continue
            if self.dependent(*pair):
                stack += [(read, read) for index in pair for read in self._argument(index)]
            elif self.uncentred(*pair):
                means = list(pair)
                while means:
                    index = means.pop()
                    if index not in averaged and index >= self.given and not self.nodes[index].centred:
                        averaged.add(index)
                        stack += [(read, read) for read in self._argument(index)]
                        means += () if self._argument(index) else self.nodes[index].inputs
        return tuple(sorted(found, key=lambda pair: (max(pair), min(pair), pair)))

    def uncentred(self, i: int, j: int) -> bool:
        """Return whether both of two values have channels with means."""
        return not (self.nodes[i].centred or self.nodes[j].centred)

    def _argument(self, i: int) -> Sequence[int]:
        """Return the node that an activation reads; nothing for other operations."""
        node = self.nodes[i]
        return node.inputs if i >= self.given and isinstance(node.op, Pointwise) else ()
