"""Derivatives of native kernels: vector-Jacobian products with respect to inputs and gains.

With G the derivatives by the kernel's entries, the core runs the tape of each pair forwards and backwards
(``core/pull_back.hpp``). That gives derivatives by what a pair reads of its first input: the data and the cached numbers. How
cached numbers depend on an input is not a matter of pairs: torch differentiates the reference engine's variances of each input.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from ntkit._src.program import AvgPool, Conv, Dense, Gains, Node, Normalize, Program
from ntkit._src.rules import pair_bytes, read_data, safe_sqrt, variance_keeps, variances

from . import _core
from ._emitter import Emitter, TapePlan
from ._network import PlannedNetwork
from ._plane import Plane
from ._products import SIDE, Tiles
from ._runner import Runner, read_numbers
from .families import Rescale, known_family

_KEPT_BYTES = 256 << 20  # of the planes of a block, which a thread keeps twice
_ROWS, _COLUMNS = 1024, 2048  # inputs at a time; vectors need whole tiles of matrix products
_DATA_BYTES = 128 << 20  # of the data and cached numbers of inputs held at a time
_GRAPH_BYTES = 256 << 20  # of the variances of the inputs differentiated at a time


class Wanted(NamedTuple):
    """Derivatives by the entries of both kernels, shape (n1, n2) each; None: zero."""

    ntk: Tensor | None
    nngp: Tensor | None

    def tile(self, rows: slice, columns: slice) -> Wanted:
        """Return those of some inputs, in double precision."""
        return Wanted(*(None if g is None else g[rows, columns].to(torch.float64).contiguous() for g in self))

    def swapped(self) -> Wanted:
        """Return those of the transposed kernels."""
        return Wanted(*(None if g is None else g.T for g in self))

    def symmetric(self) -> Wanted:
        """Return G + G^T: each entry of K(x, x) depends on an input from both sides."""
        return Wanted(*(None if g is None else g + g.T for g in self))


class _Unfused(PlannedNetwork):
    """A program whose activations are instructions of their own: their adjoints need the planes between."""

    @cached_property
    def fused(self) -> frozenset[int]:
        return frozenset()


@dataclass(frozen=True)
class _Side:
    """Derivatives by what the pairs read of some inputs."""

    numbers: Tensor  # by the numbers of the data, (n, data_size)
    cache: Tensor  # by cached numbers, (n, cache_size)
    cached: Tensor  # the cached numbers
    gains: Tensor  # by the numbers of each operation that is a layer: weight times its derivative, bias, and both rates


class _Plan(NamedTuple):
    """A tape to run backwards."""

    plan: TapePlan
    segments: tuple[int, ...]  # where each part of the tape ends that runs forwards and backwards by itself
    layers: dict[int, int]  # the node of each operation that is a layer

    def weight(self, operation: int) -> float:
        """Return the factor of a layer."""
        layer = self.plan.tape.operations[operation]
        assert isinstance(layer, _core.Layer)
        return layer.weight


class PullBack:
    """Vector-Jacobian products of the kernels of one program."""

    def __init__(self, program: Program) -> None:
        self.gains = tensor_gains(program)
        self._leaves = [gain.detach().clone().requires_grad_() for gain in self.gains]
        self.program = with_gains(program, dict(zip(map(id, self.gains), self._leaves, strict=True)))
        self._network = _Unfused(with_numbers(program))
        self._runner = Runner(self._network)
        self._plans: dict[bool, _Plan] = {}

    @cached_property
    def missing(self) -> str | None:
        """What the native engine lacks to differentiate the kernels; None if it lacks nothing."""
        if self._network.rewritten:
            return "the native engine has no derivatives of a network whose operations it rewrites (tokens, attention)"
        planned = self._plan(True)
        plan, segments, layers = planned
        kinds = {s.kind.name.lower() for s in plan.tape.instructions if not _core.has_adjoint(plan.tape, s)}
        if kinds:
            return f"the native engine has no derivatives of {', '.join(sorted(kinds))}"
        if plan.kept_bytes > _KEPT_BYTES:
            return f"derivatives on the native engine would keep {plan.kept_bytes >> 20} MB of planes"
        summed = plan.tape.instructions[: segments[-2]] if len(segments) > 1 else []
        if self.gains and any(s.kind == _core.Kind.LAYER and s.covariance_in for s in summed):
            return "derivatives by gains of a layer between two sums need all planes at once"
        if self.gains and any(planned.weight(layer) == 0 for layer in layers):
            return "derivatives by gains need weights with a variance"
        return None

    def is_current(self) -> bool:
        """Return whether the gains still have the values that it was planned for."""
        return all(bool(gain == leaf) for gain, leaf in zip(self.gains, self._leaves, strict=True))

    def __call__(
        self, x1: Tensor, x2: Tensor | None, wanted: Wanted, sides: tuple[bool, bool], by_gains: bool
    ) -> list[Tensor | None]:
        """Return the derivatives of the sum of G K by x1, by x2 and by each of ``gains``.

        ``sides`` says which of both inputs are wanted; with ``x2=None`` that of ``x1`` is through both arguments.
        """
        if x2 is None:
            found = self._by_rows(x1, x1, wanted.symmetric(), 0.5 if by_gains else None)
            return [found[0], None, *found[1:]]
        ones = self._by_rows(x1, x2, wanted, 1.0 if by_gains else None) if sides[0] or by_gains else None
        others = self._by_rows(x2, x1, wanted.swapped(), 0.0 if by_gains else None) if sides[1] or by_gains else None
        gains = [torch.zeros_like(leaf) for leaf in self._leaves]
        for side in (ones, others):
            gains = gains if side is None else [a + b for a, b in zip(gains, side[1:], strict=True)]
        return [None if ones is None else ones[0], None if others is None else others[0], *gains]

    def _by_rows(self, x: Tensor, other: Tensor, wanted: Wanted, share: float | None) -> list[Tensor]:
        """Return the derivatives by the rows' inputs and by the gains.

        Both sides of a pair give those by what layers do between two inputs, so they count by ``share``; None: without gains.
        """
        keeps = variance_keeps(self.program, frozenset(self._sources.values()))
        step = max(1, min(_ROWS, self._rows_held, _GRAPH_BYTES // (8 * pair_bytes(self.program, keeps, ntk=False))))
        result = torch.empty_like(x)
        gains = [torch.zeros_like(leaf) for leaf in self._leaves]
        for start in range(0, len(x), step):
            rows = slice(start, min(start + step, len(x)))
            side = self._pull(x[rows], other, rows, wanted, bool(share))
            found = self._through_inputs(x[rows], side, share, wanted.ntk is not None)
            assert found[0] is not None
            result[rows] = found[0]
            gains = [a if b is None else a + b for a, b in zip(gains, found[1:], strict=True)]
        return [result, *gains]

    @property
    def _rows_held(self) -> int:
        plan = self._runner.plan("cache", False)
        return max(16, _DATA_BYTES // (8 * max(plan.row_numbers, 1)))

    def _plan(self, ntk: bool) -> _Plan:
        if ntk not in self._plans:
            emitter = Emitter(self._network, ntk, alone=False, keeps=True)
            output = Plane(self._network.program.output, (), True)
            emitter.count([output])
            emitter.finish(output)
            plan = emitter.plan()
            self._plans[ntk] = _Plan(plan, (*emitter.segments, len(plan.tape.instructions)), emitter.layers())
        return self._plans[ntk]

    def _pull(self, x: Tensor, others: Tensor, rows: slice, wanted: Wanted, with_gains: bool) -> _Side:
        """Run the pairs of some rows backwards."""
        plan, segments, _ = self._plan(wanted.ntk is not None)
        tape, inputs = plan.tape, len(plan.inputs)
        vectors = plan.batch > 1
        tiles = Tiles(SIDE, SIDE, plan.data_sizes) if vectors else None
        first = self._runner._read(x, torch.float64, SIDE if vectors else 1)
        n = len(x)
        shapes = {"data": (n, plan.data_size), "cache": (n, plan.cache_size), "gains": (n, len(tape.operations), 4)}
        total = {name: torch.zeros(shape, dtype=torch.float64) for name, shape in shapes.items()}
        step = min(_COLUMNS, max(16, self._rows_held // SIDE * SIDE if vectors else self._rows_held))
        for start in range(0, len(others), step):
            columns = slice(start, min(start + step, len(others)))
            second = self._runner._read(others[columns], torch.float64, SIDE if vectors else 1)
            m = columns.stop - start
            products = np.empty((0, 0, 0, 0, 0))
            if tiles is not None:
                products = tiles.empty(n, m, np.float64)
                tiles.multiply(first.vectors, second.vectors, products, -n)
            part = {name: np.empty(shape) for name, shape in shapes.items()}
            pairs = np.empty((inputs, n, m) if vectors else (0, 0, 0))
            tile = wanted.tile(rows, columns)
            _core.pull_back(
                tape,
                segments=segments,
                data1=first.data,
                cache1=first.cache,
                data2=second.data,
                cache2=second.cache,
                products=products,
                nngp=None if tile.nngp is None else tile.nngp.numpy(),
                ntk=None if tile.ntk is None else tile.ntk.numpy(),
                to_data=part["data"],
                to_cache=part["cache"],
                to_products=pairs,
                to_gains=part["gains"] if with_gains else None,
                threads=torch.get_num_threads(),
            )
            if vectors:
                blocks = (
                    torch.from_numpy(p) @ torch.from_numpy(data[:m])
                    for p, data in zip(pairs, second.vectors, strict=True)
                )
                part["data"] = torch.cat(list(blocks), 1).numpy()
            if not with_gains:
                del part["gains"]
            for name, values in part.items():
                total[name] += torch.from_numpy(values)
        return _Side(total["data"], total["cache"], torch.from_numpy(first.cache), total["gains"].sum(0))

    def _through_inputs(self, x: Tensor, side: _Side, share: float | None, ntk: bool) -> tuple[Tensor | None, ...]:
        """Return the derivatives by x and by the gains, given those by what the pairs read."""
        network = self._network
        with torch.enable_grad():
            x = x.detach().requires_grad_()
            numbers = read_numbers(network.program, self._runner.plan("cache", False).inputs, x)
            scale = side.cached[:, 1 if network.rescales else 0, None]  # of the data
            pairs = [(numbers, (scale * side.numbers).to(numbers.dtype)), *self._cached_numbers(x, side)]
            if share:
                pairs += self._layer_numbers(share * side.gains, ntk)
            pairs = [(value, by) for value, by in pairs if value.requires_grad]
            return torch.autograd.grad(
                [value for value, _ in pairs], [x, *self._leaves], [by for _, by in pairs], allow_unused=True
            )

    def _layer_numbers(self, by: Tensor, ntk: bool) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield the numbers of layers that are functions of gains, and the derivatives by them."""
        plan = self._plan(ntk)
        for operation, index in plan.layers.items():
            op = self.program.nodes[self._traced[index]].op
            assert isinstance(op, (Dense, Conv))
            variance, rate = op.gains.w_std**2, op.gains.weight_rate
            weight = variance / (prod(op.kernel) if isinstance(op, Conv) else 1)
            numbers = weight, op.gains.b_std**2, rate / variance, op.gains.bias_rate
            logarithmic = 1.0 / plan.weight(operation)  # the core returns weight d / d weight
            for number, factor, value in zip(numbers, (logarithmic, 1.0, 1.0, 1.0), by[operation], strict=True):
                if isinstance(number, Tensor):
                    yield number, (factor * value).to(number).reshape(number.shape)

    @cached_property
    def _traced(self) -> list[int]:
        """For each node of the planned program the node that was traced."""
        traced: list[int] = []
        for node in self._network.program.nodes:
            before = sum(not isinstance(n.op, Rescale) for n in self._network.program.nodes[: len(traced)])
            traced.append(traced[node.inputs[0]] if isinstance(node.op, Rescale) else before)
        return traced

    @cached_property
    def _sources(self) -> dict[int, int]:
        """The nodes whose variances cached numbers are made of, planned and traced."""
        nodes, wanted = self._network.program.nodes, []
        for what, index in self._network.cache:
            if what in (_core.Cached.INSIDE, _core.Cached.MEAN):
                wanted += [nodes[index].inputs[0], index]
            else:
                wanted.append(self._source(what, index))
        return {index: self._traced[index] for index in wanted}

    def _source(self, what: _core.Cached, index: int) -> int:
        node = self._network.program.nodes[index]
        return node.inputs[-1] if known_family(node.op).made_before(what) else index

    def _cached_numbers(self, x: Tensor, side: _Side) -> Iterator[tuple[Tensor, Tensor]]:
        """Yield cached numbers as functions of the inputs, and the derivatives by them, shape (n, *positions) each."""
        network, nodes = self._network, self._network.program.nodes
        found = variances(self.program, read_data(self.program, x), frozenset(self._sources.values()))

        def unit(index: int) -> Tensor:
            return side.cached[:, network.unit_at(index)].reshape(-1, *(1,) * len(nodes[index].positions))

        def variance(index: int) -> Tensor:
            return found[self._traced[index]] * unit(index) ** 2

        for (what, index), start in network.cache.items():
            op = nodes[index].op
            size = network.cache_numbers(what, index)
            grad = side.cache[:, start : start + size]
            if what in (_core.Cached.INSIDE, _core.Cached.MEAN):
                assert isinstance(op, AvgPool)
                matrix = op.matrix(network.length_before(index, op.axis))
                mean = (variance(nodes[index].inputs[0]).movedim(op.axis + 1, -1) @ matrix.T).movedim(-1, op.axis + 1)
                totals = matrix.sum(1).reshape(-1, *(1,) * (mean.ndim - 2 - op.axis))
                value = mean if what == _core.Cached.MEAN else totals * mean - variance(index)
            else:
                source = self._source(what, index)
                q = variance(source)
                if what == _core.Cached.HALF:
                    value = q / 2
                elif what == _core.Cached.DEVIATION:
                    value = safe_sqrt(q)
                else:
                    assert what == _core.Cached.SCALE
                    assert isinstance(op, Normalize)
                    mean = q.mean([axis + 1 for axis in op.axes], keepdim=True) if op.axes else q
                    scale = (mean + op.eps * unit(source) ** 2).rsqrt().expand_as(q)
                    value = torch.stack([scale, safe_sqrt(q)], 1)
            yield value, grad.reshape(value.shape)


def tensor_gains(program: Program) -> list[Tensor]:
    """Return the gains of a program that are tensors, each once."""
    return list({id(gain): gain for gain in program.tensor_gains}.values())


def _gains(node: Node) -> Iterator[float | Tensor]:
    gains = getattr(node.op, "gains", None)
    return iter(vars(gains).values() if isinstance(gains, Gains) else ())


def with_numbers(program: Program) -> Program:
    """Return a program with the present values of its gains."""
    return with_gains(program, {id(gain): float(gain.detach()) for gain in tensor_gains(program)})


def with_gains(program: Program, new: Mapping[int, Tensor | float]) -> Program:
    """Return a program with others in the place of its gains that are tensors, which are named by their ids."""
    if not new:
        return program
    nodes = []
    for node in program.nodes:
        op: Any = node.op
        if any(isinstance(gain, Tensor) for gain in _gains(node)):
            gains = Gains(**{name: new.get(id(gain), gain) for name, gain in vars(op.gains).items()})
            op = replace(op, gains=gains)
        nodes.append(replace(node, op=op))
    return Program(tuple(nodes), program.prefixes, program.layout)
