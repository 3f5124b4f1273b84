"""Layers called more than once: K and Theta between the values of all calls, from pair to pair of values."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial, reduce
from itertools import islice
from typing import Any, NamedTuple

import torch
from torch import Tensor

from ntkit._src.program import (
    Concat,
    Contract,
    Conv,
    Dense,
    Gains,
    Input,
    Join,
    Keep,
    Keeps,
    Node,
    Pointwise,
    Program,
    Reindex,
    Shared,
    Sum,
)

from ._affine import fresh_weights
from ._axes import merged, unmerged
from ._covariance import Covariance, Ends, Moments
from ._input import data_covariance
from ._rule import RULES, Inputs, Rule, Step
from .expectations import dual, dual_with_difference


class _Pair(NamedTuple):
    """K, Theta and H between two values, broadcastable to (pairs..., *P_i, *P_j); None: zero, and for H unknown."""

    nngp: Tensor | None = None
    ntk: Tensor | None = None
    h: Tensor | None = None


class SharedRule(Rule[Shared], ops=(Shared,)):
    r"""K_ij = w^2 K_ab + b^2 and Theta_ij = (rate of w) K_ab + (rate of b) + w^2 Theta_ab for two calls of one layer on a and b.

    Different layers give independent values. Linear maps of positions and sums act on either side, activations of dependent
    values give E[phi(u_a) phi(u_b)] and Theta_ab E[phi'(u_a) phi'(u_b)] (Yang 2020, "Tensor Programs II").
    """

    reads_h = True
    keeps_h = True

    def covariance(self, step: Step[Shared], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        reads = step.node.inputs
        given = [x.settled().at_one(ends.variances(read, x.keeps)) for x, read in zip(inputs, reads, strict=True)]
        if ends.pair_dims == 1:
            k = _Walk(step.op, given, ends, [_Alone(step, ends.first)]).run(step.op.alone, ntk=True)
        else:
            sides = [_walked(step, side) for side in (ends.first, ends.second)[: 1 + (ends.first is not ends.second)]]
            k = _Walk(step.op, given, ends, sides).run(step.op.between, ntk=True)
        positions = step.node.positions
        n, size = (len(ends.first.like), len(ends.second.like))[: ends.pair_dims], math.prod(positions)

        def interleaved(value: Tensor | None) -> Tensor | None:
            if value is None:
                return None
            whole = value.expand(*n, *positions, *positions)
            return unmerged(whole.reshape(*n, size, size), positions, same=False) if positions else whole

        nngp = interleaved(ends.first.like.new_zeros(()) if k.nngp is None else k.nngp)
        assert nngp is not None
        return Covariance(nngp, interleaved(k.ntk), (Keep.ALL,) * len(keeps), h=interleaved(k.h)).restrict(keeps)

    def mean(self, step: Step[Shared], known: Moments) -> Tensor | None:
        return _walked(step, known).mean(len(step.op.nodes) - 1)

    def read(self, program: Program, node: Node, x: Tensor, dtype: torch.dtype) -> dict[tuple[int, int], Tensor]:
        assert isinstance(node.op, Shared)
        found: dict[tuple[int, int], Tensor] = {}
        for inner in node.op.nodes[node.op.given :]:
            found |= RULES[type(inner.op)].read(program, inner, x, dtype)
        return found

    def reads_variance(self, op: Shared) -> bool:
        return True

    def scales(self, op: Shared, inputs: bool) -> bool:
        return False

    def workspace(self, op: Shared, positions: tuple[int, ...], keeps: Keeps) -> int:
        sizes = [math.prod(node.positions) for node in op.nodes]
        uses, live, peak = _uses(op, op.between), 0, 0
        for i, j in op.between:
            live += sizes[i] * sizes[j]
            peak = max(peak, live)
            live -= sum(sizes[a] * sizes[b] for a, b in _released(uses, op.terms(i, j)))
        return 8 * peak


class _Alone:
    """The variances and means of the inner values of one batch, by inner node."""

    def __init__(self, step: Step[Shared], side: Moments) -> None:
        self.op, self.side, reads = step.op, side, step.node.inputs
        self.known = Moments(side.data, mean={i: side.mean[read] for i, read in enumerate(reads) if read in side.mean})

    @property
    def variance(self) -> dict[int, Tensor]:
        """K_ii[p, p], each (n, *P_i)."""
        return self.known.variance

    def mean(self, i: int) -> Tensor | None:
        """Return the mean of a value's channels, (n, *P_i); None if it is zero."""
        node = self.op.nodes[i]
        if i not in self.known.mean and i >= self.op.given and not node.centred:
            for read in node.inputs:
                self.mean(read)
            sources = tuple(self._step(read) for read in node.inputs)
            value = RULES[type(node.op)].mean(self._step(i, sources), self.known)
            if value is not None:
                self.known.mean[i] = value.expand(len(self.side.like), *node.positions)
        return self.known.mean.get(i)

    def _step(self, i: int, sources: tuple[Step[Any], ...] = ()) -> Step[Any]:
        node = self.op.nodes[i]
        return Step(i, node, node.op, RULES[type(node.op)], sources)


def _walked(step: Step[Shared], side: Moments) -> _Alone:
    """Compute the variances that activations read of one batch."""
    ends, alone = Ends(side, side, pair_dims=1), _Alone(step, side)
    given = []
    for read, node in zip(step.node.inputs, step.op.nodes, strict=False):
        k = side.own[read] if node.positions else side.variance[read]
        given.append(Covariance(k, None, (Keep.ALL,) * len(node.positions)))
    _Walk(step.op, given, ends, [alone]).run(step.op.alone, ntk=False)
    return alone


def _uses(op: Shared, pairs: Sequence[tuple[int, int]]) -> Counter[tuple[int, int]]:
    return Counter(term for pair in pairs for term in op.terms(*pair))


def _released(uses: Counter[tuple[int, int]], terms: Sequence[tuple[int, int]]) -> list[tuple[int, int]]:
    """Count the uses of some pairs, and return those that no later pair needs."""
    uses.subtract(terms)
    return [term for term in dict.fromkeys(terms) if not uses[term]]


class _Walk:
    """One walk through the pairs of inner values, between two batches or for each input with itself."""

    def __init__(self, op: Shared, given: Sequence[Covariance], ends: Ends, sides: Sequence[_Alone]) -> None:
        self.op, self.given, self.ends = op, given, ends
        self.first, self.second = sides[0], sides[-1]
        self.pairs = (len(ends.first.like), len(ends.second.like))[: ends.pair_dims]

    def run(self, pairs: Sequence[tuple[int, int]], ntk: bool) -> _Pair:
        """Return K, Theta and H of the output; for each input with itself, fill the variances on the way."""
        values: dict[tuple[int, int], _Pair] = {}
        uses = _uses(self.op, pairs)
        for i, j in pairs:
            terms = self.op.terms(i, j)
            value = self._pair(i, j, {term: values[term] for term in terms})
            values[i, j] = value if ntk else value._replace(ntk=None)
            if i == j and self.ends.pair_dims == 1:
                self._record(i, value.nngp)
            for term in _released(uses, terms):
                del values[term]
        last = len(self.op.nodes) - 1
        return values[last, last]

    def _record(self, i: int, k: Tensor | None) -> None:
        (n,), positions = self.pairs, self.op.nodes[i].positions
        k = self.first.known.like.new_zeros(()) if k is None else k
        size = math.prod(positions)
        own = k.expand(n, *positions, *positions).reshape(n, size, size).diagonal(dim1=1, dim2=2)
        self.first.variance[i] = own.reshape(n, *positions)

    def _spread(self, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
        """Reshape values of x, (n1, *P_i), and of x', (n2, *P_j), so that they broadcast against a pair."""
        n1: tuple[int, ...] = (self.pairs[0],)
        n2: tuple[int, ...] = (self.pairs[-1],)
        if self.ends.pair_dims == 2:
            n1, n2 = (*n1, 1), (1, *n2)
        ranks = first.ndim - 1, second.ndim - 1
        return (
            first.reshape(*n1, *first.shape[1:], *(1,) * ranks[1]),
            second.reshape(*n2, *(1,) * ranks[0], *second.shape[1:]),
        )

    def _pair(self, i: int, j: int, terms: Mapping[tuple[int, int], _Pair]) -> _Pair:
        op, nodes = self.op, self.op.nodes
        if i == j < op.given:
            return self._outer(i)
        if not op.dependent(i, j):
            means = (self.first.mean(i), self.second.mean(j)) if op.uncentred(i, j) else (None, None)
            if means[0] is None or means[1] is None:
                return _Pair()
            first, second = self._spread(means[0], means[1])
            return _Pair(first * second)
        sides, reads = op.sided_terms(i, j)
        parts = [terms[read] for read in reads]
        if sides != "both":
            return self._moved(i if sides == "left" else j, sides == "left", reads, parts)
        match nodes[i].op, nodes[j].op:
            case Sum(), Sum():
                return self._sums(i, j, terms)
            case Dense() as layer, _:
                return _layer(layer.gains, parts[0], self.ends.first.like)
            case Conv() as layer, Conv() as other:
                mean = _Pair(*(None if k is None else self._windows(layer, other, reads[0], k) for k in parts[0][:2]))
                return _layer(layer.gains, mean, self.ends.first.like)
            case Pointwise() as activation, _:
                return self._activation(activation, reads[0], parts[0])
            case Concat() as concat, _:
                return _weighted(concat.fractions, parts)
            case Contract() as contract, _:
                return _Pair(*(None if k is None else self._contracted(contract, reads[0], k) for k in parts[0]))
        return self._data(i, j)

    def _outer(self, i: int) -> _Pair:
        x, positions = self.given[i], self.op.nodes[i].positions

        def apart(k: Tensor | None) -> Tensor | None:
            """Put the positions of x before those of x'."""
            if k is None or not positions:
                return k
            return merged(k, x.keeps).reshape(*k.shape[: self.ends.pair_dims], *positions, *positions)

        return _Pair(apart(x.nngp), apart(x.ntk), apart(x.h))

    def _data(self, i: int, j: int) -> _Pair:
        first, second = (self.op.nodes[index].op for index in (i, j))
        assert isinstance(first, Input)
        assert isinstance(second, Input)
        key = first.prefix, first.channel
        sides = (
            Moments({key: self.ends.first.data[key]}),
            Moments({key: self.ends.second.data[second.prefix, second.channel]}),
        )
        keeps = (Keep.ALL,) * len(self.op.nodes[i].positions)
        k = data_covariance((first, first), keeps, Ends(*sides, self.ends.pair_dims))
        sizes = self.op.nodes[i].positions, self.op.nodes[j].positions

        def apart(value: Tensor | None) -> Tensor | None:
            if value is None or not keeps:
                return value
            return merged(value, keeps).reshape(*value.shape[: self.ends.pair_dims], *sizes[0], *sizes[1])

        return _Pair(apart(k.nngp), None, apart(k.h))

    def _sums(self, i: int, j: int, terms: Mapping[tuple[int, int], _Pair]) -> _Pair:
        first, second = (self.op.nodes[index] for index in (i, j))
        coefficients: list[dict[int, float]] = []
        for node in (first, second):
            assert isinstance(node.op, Sum)
            own: dict[int, float] = {}
            for read, c in zip(node.inputs, node.op.coefficients, strict=True):
                own[read] = own.get(read, 0.0) + c
            coefficients.append(own)
        weights = [coefficients[0][a] * coefficients[1][b] for a, b in terms]
        total = _weighted(weights, list(terms.values()))
        if not any(c for own in coefficients for c in own.values()):  # both are zero
            return _Pair(h=self.ends.first.like.new_zeros(()))
        # Differences add up where each term of u_i depends on one of u_j alone, with the same coefficient.
        present = [(a, b) for (a, b), k in terms.items() if k.nngp is not None]
        apart = all(len({pair[side] for pair in present}) == len(own) for side, own in enumerate(coefficients))
        matched = len(present) == len(coefficients[0]) and all(
            coefficients[0][a] == coefficients[1][b] for a, b in present
        )
        if not (apart and matched):
            return total._replace(h=None)
        h = _weighted([coefficients[0][a] ** 2 for a, _ in present], [terms[pair] for pair in present]).h
        return total._replace(h=h)

    def _whole(self, k: Tensor, a: int, b: int) -> Tensor:
        """Expand a pair to its full shape, (pairs..., *P_a, *P_b)."""
        return k.expand(*self.pairs, *self.op.nodes[a].positions, *self.op.nodes[b].positions)

    def _activation(self, op: Pointwise, read: tuple[int, int], x: _Pair) -> _Pair:
        (a, b), phi = read, op.phi
        k = self._whole(self.ends.first.like.new_zeros(()) if x.nngp is None else x.nngp, a, b)
        q1, q2 = self._spread(self.first.variance[a], self.second.variance[b])
        tangent, h = x.ntk is not None and phi.differentiable, None
        if x.h is not None and phi.homogeneous:
            value, slope, h = dual_with_difference(phi, k, q1, q2, tangent, self._whole(x.h, a, b))
        else:
            value, slope = dual(phi, k, q1, q2, tangent, h=None if x.h is None else self._whole(x.h, a, b))
        return _Pair(value, None if slope is None or x.ntk is None else x.ntk * slope, h)

    def _one_side(self, k: Tensor, read: tuple[int, int], left: bool, function: Callable[[Tensor], Tensor]) -> Tensor:
        """Apply a map of (n, *positions, channels) to the positions of one side of a pair of full shape."""
        start, ranks = len(self.pairs), [len(self.op.nodes[index].positions) for index in read]
        own = list(range(start, start + ranks[0]))
        other = list(range(start + ranks[0], k.ndim))
        if not left:
            own, other = other, own
        rest = [k.shape[dim] for dim in other]
        moved = k.permute(*range(start), *own, *other).reshape(-1, *(k.shape[dim] for dim in own), math.prod(rest))
        value = function(moved)
        value = value.reshape(*self.pairs, *value.shape[1:-1], *rest)
        rank = value.ndim - start - len(rest)
        back = range(start), range(start + rank, value.ndim), range(start, start + rank)
        return value if left else value.permute(*(dim for dims in back for dim in dims))

    def _moved(self, index: int, left: bool, reads: Sequence[tuple[int, int]], parts: Sequence[_Pair]) -> _Pair:
        op = self.op.nodes[index].op
        if isinstance(op, Sum):
            weights = [c for c in op.coefficients if c != 0]
            return _weighted(weights, parts)._replace(h=None)

        def mapped(values: Sequence[Tensor | None]) -> Tensor | None:
            if all(value is None for value in values):
                return None
            zero = self.ends.first.like.new_zeros(())
            whole = [
                self._whole(zero if value is None else value, *read) for value, read in zip(values, reads, strict=True)
            ]
            if len(whole) == 1:
                return self._one_side(whole[0], reads[0], left, lambda x: op.finite((x,), (None, None)))
            assert isinstance(op, Join)
            dim = len(self.pairs) + op.axis + (0 if left else len(self.op.nodes[reads[0][0]].positions))
            return torch.cat(whole, dim)

        nngp, ntk, h = (mapped([part[field] for part in parts]) for field in range(3))
        keeps_h = (op.selects and not (isinstance(op, Reindex) and min(op.index) < 0)) or isinstance(op, Join)
        return _Pair(nngp, ntk, h if keeps_h and all(part.h is not None for part in parts) else None)

    def _windows(self, layer: Conv, other: Conv, read: tuple[int, int], k: Tensor) -> Tensor:
        """Return the mean over the window, which moves over both sides together."""
        k, size = self._whole(k, *read), math.prod(layer.kernel)
        total: Tensor | None = None
        for place in range(size):
            tap = self._one_side(k, read, True, partial(_tap, layer, place))
            tap = self._one_side(tap, read, False, partial(_tap, other, place))
            total = tap if total is None else total + tap
        assert total is not None
        return total / size

    def _contracted(self, op: Contract, read: tuple[int, int], k: Tensor) -> Tensor:
        k, start, rank = self._whole(k, *read), len(self.pairs), len(self.op.nodes[read[0]].positions)
        for axis in sorted(op.axes, reverse=True):
            k = k.diagonal(dim1=start + axis, dim2=start + rank + axis).mean(-1)
            rank -= 1
        return k


def _tap(op: Conv, place: int, x: Tensor) -> Tensor:
    """Return x as one place of the window sees it."""
    return next(islice(op.taps(x), place, None))


def _layer(gains: Gains, x: _Pair, like: Tensor) -> _Pair:
    mean = Covariance(like.new_zeros(()) if x.nngp is None else x.nngp, x.ntk, (), h=x.h)
    k = fresh_weights(gains, mean)
    return _Pair(k.nngp, k.ntk, k.h)


def _weighted(weights: Sequence[float], parts: Sequence[_Pair]) -> _Pair:
    """Add up multiples of K, of Theta and of H, which is unknown if one of them is."""

    def total(values: Sequence[Tensor | None]) -> Tensor | None:
        present = [w * value for w, value in zip(weights, values, strict=True) if value is not None]
        return reduce(Tensor.add, present) if present else None

    nngp, ntk, h = (total([part[field] for part in parts]) for field in range(3))
    return _Pair(nngp, ntk, h if all(part.h is not None for part in parts) else None)
