"""Builds a program node by node and tracks what later operations may do with each node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ntkit._src import program as ops
from ntkit.errors import InputError

from ._sharing import share
from ._values import BATCH, CHANNEL, Block, ChannelSources, Data, Field, Info, Weight

Held = Callable[[Callable[[Weight], Tensor]], ops.Weights]
"""Computes a node's weight and bias in a finite network, in the layout of its finite form, from the values of parameters."""

WeightGains = Callable[[str, int, bool, bool, bool, tuple[float, float] | None], ops.Gains]
"""Returns a layer's gains from its name, fan-in, whether it has a bias, whether weight and bias are trained, PyTorch's gains."""

EMPIRICAL = (
    "take the mean kernel of finite networks, ntkit.monte_carlo(module, n_samples), or of one, ntkit.empirical(module)"
)
"""What to use if the limit has no closed form."""


class WrongShape(InputError):
    """Raised for inputs of a shape that the module does not take."""


class Refused(Exception):
    """Raised for an operation without a closed form; the analysis continues with ``then``, so that it finds every problem."""

    def __init__(self, reason: str, instead: str, then: Any = None) -> None:
        super().__init__(reason)
        self.reason, self.instead, self.then = reason, instead, then


class Builder:
    """The program under construction; ``prefix_of`` turns the graph node of data into a callable of the input, or None."""

    def __init__(
        self,
        gains: WeightGains,
        prefix_of: Callable[[object], Any],
        batch: int,
        samples: ops.LogitSamples | None = None,
        training: frozenset[str] = frozenset(),
    ) -> None:
        self.path = ""
        self.training = training  # paths of the submodules that were in training mode
        self.samples, self.batch = samples, batch  # samples None: softmax attention is refused
        self.nodes: list[ops.Node] = []
        self.info: list[Info] = []
        self.held: dict[int, Held] = {}
        self.parts: dict[int, tuple[int, int]] = {}  # nodes that stand for a range of their input's channels
        self.random: list[
            tuple[Weight, float]
        ] = []  # parameters of layers with fresh weights, with standard deviations
        self.layers: dict[str, bool] = {}  # for each such layer, whether it has a bias
        self.asked: list[tuple[ops.Gains, tuple[Any, ...]]] = []  # the gains of each, and what the rule was asked
        self._gains, self._prefix_of = gains, prefix_of
        self._prefixes: dict[object, int] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self._weights: dict[int, str] = {}
        self.calls: dict[int, int] = {}  # for each node of a layer that may be called again the first of its nodes
        self._calls: dict[object, int] = {}  # ... by its parameters
        self._again: set[int] = set()  # ... if there are others
        self._callable: dict[int, tuple[Weight | None, Tensor, ops.Gains]] = {}  # bias, column order, gains by weight
        self._channel_sources = ChannelSources()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add(
        self, op: ops.Op, inputs: Sequence[int], positions: Sequence[int], *, why_not: str = "", centred: bool = True,
        sources: frozenset[int] | None = None, affine: str = "", held: Held | None = None, distinct: object = None,
        call: object = None,
    ) -> int:  # fmt: skip
        """Add a node, once unless it has parameters or ``distinct`` differs; sources: its inputs' or, with weights, itself.

        Layers with an equal ``call`` have the same parameters.
        """
        fresh = isinstance(op, (ops.Dense, ops.Conv, ops.Table, ops.Lookup))
        norm_trained = isinstance(op, (ops.Normalize, ops.FixedNorm)) and (op.weight_trained or op.bias_trained)
        alone = (
            fresh or norm_trained or isinstance(op, ops.Attention) or (isinstance(op, ops.Sum) and op.cross is not None)
        )
        key = (op, tuple(inputs), distinct, call)
        alone = alone and call is None
        if not alone and key in self._known:
            return self._known[key]
        index = len(self.nodes)
        if call is not None:
            self.calls[index] = self._calls.setdefault(call, index)
            self._again |= {self.calls[index]} - {index}
        if fresh:
            first = self.calls.get(index, index)
            sources = frozenset({index}) if first == index else self.info[first].sources
        elif sources is None:
            sources = frozenset[int]().union(*(self.info[read].sources for read in inputs))
        trained = norm_trained or any(self.nodes[read].trained for read in inputs)
        if isinstance(op, (ops.Dense, ops.Conv)):
            trained |= op.gains.trained
        elif isinstance(op, ops.Table):
            trained |= op.tangent is not None
        elif isinstance(op, ops.Lookup):
            trained |= op.trained
        self.nodes.append(ops.Node(op, tuple(inputs), tuple(positions), self.path, centred, trained))
        self.info.append(Info(why_not, sources, affine))
        if held is not None:
            self.held[index] = held
        if not alone:
            self._known[key] = index
        return index

    def combine(
        self, op: ops.Op, reads: Sequence[int], positions: Sequence[int], *, why_not: str = "", affine: str | None = None,
        sources: frozenset[int] | None = None, distinct: object = None,
    ) -> int:  # fmt: skip
        """Add a node that is linear in its inputs: if all of them are Gaussian or centred, so is the result."""
        infos = [self.info[read] for read in reads]
        why_not = next((info.why_not for info in infos if info.why_not), why_not)
        if affine is None:
            affine = infos[0].affine if len(infos) == 1 else "part" if any(info.affine for info in infos) else ""
        centred = all(self.nodes[read].centred for read in reads)
        return self.add(
            op, reads, positions, why_not=why_not, centred=centred, sources=sources, affine=affine, distinct=distinct
        )

    def linear_map(self, op: ops.Op, read: int, positions: Sequence[int]) -> int:
        """Add a node that maps positions linearly, which may average over trained affine weights."""
        affine = self.info[read].affine
        kept = op.selects or (affine == "whole" and not isinstance(op, ops.Contract))
        return self.combine(op, (read,), positions, affine="part" if affine and not kept else affine)

    def joint(self, first: int, second: int) -> bool:
        """Return whether two nodes depend on each other through a layer called more than once; the program tells how."""
        common = self.info[first].sources & self.info[second].sources
        return any(common & self.info[first].sources for first in self._again)

    def own_source(self) -> frozenset[int]:
        """Return the source label of the node added next."""
        return frozenset({len(self.nodes)})

    def part(self, node: int, start: int, stop: int, width: int) -> int:
        """Add a node for a range of a node's ``width`` channels; in the limit it is an independent copy of the node."""
        sources = self._channel_sources.part(self.info, node, start, stop, width)
        positions = self.nodes[node].positions
        index = self.combine(ops.Sum((1.0,)), (node,), positions, sources=sources, distinct=(start, stop))
        self.parts[index] = (start, stop)
        return index

    def channels(self, field: Field, start: int, stop: int) -> Field:
        """Return a range of a field's channels, which are not merged with positions."""
        blocks, first = [], 0
        for block in field.blocks:
            low, high = max(start - first, 0), min(stop - first, block.width)
            if low < high:
                whole = high - low == block.width
                blocks.append(Block(block.node if whole else self.part(block.node, low, high, block.width), high - low))
            first += block.width
        return replace(field, blocks=tuple(blocks), channels=stop - start)

    def claim(self, what: str, *weights: Weight | None) -> None:
        """Refuse parameters that another layer uses too: the limit assumes independent parameters."""
        for weight in weights:
            if weight is None:
                continue
            memory = weight.parameter.data_ptr()
            if memory in self._weights:
                raise Refused(
                    f"its {what} are also those of {self._weights[memory]!r} (tied, or read in two ways), so "
                    "its values are not independent of that layer's",
                    "give each its own parameters; nn.Linear and convolutions may be called again as a whole",
                )
            self._weights[memory] = weight.layer

    def layer_gains(
        self, weight: Weight, bias: Weight | None, fan_in: int, torch_gains: tuple[float, float] | None = None,
        columns: Tensor | None = None,
    ) -> ops.Gains:  # fmt: skip
        """Return a layer's gains (``torch_gains``: PyTorch's, if not those of linear layers); refuse weights used elsewhere.

        A layer with ``columns``, the order in which it reads its weight's columns, may be called again in the same order.
        """
        bias_trained = bias is not None and bias.trained
        question = weight.layer, fan_in, bias is not None, weight.trained, bias_trained, torch_gains
        gains = self._gains(*question)
        known = self._callable.get(weight.parameter.data_ptr())
        if columns is not None and known is not None:
            same_bias = bias is known[0] is None or (bias and known[0] and bias.parameter is known[0].parameter)
            if same_bias and torch.equal(columns, known[1]) and gains == known[2]:
                self.layers[weight.layer] = bias is not None
                return known[2]
        self.claim("weights", weight, bias)
        if columns is not None:
            self._callable[weight.parameter.data_ptr()] = bias, columns, gains
        self.layers[weight.layer] = bias is not None
        self.asked.append((gains, question))
        self.random.append((weight, float(torch.as_tensor(gains.w_std).detach()) / fan_in**0.5))
        if bias is not None:
            self.random.append((bias, float(torch.as_tensor(gains.b_std).detach())))
        return gains

    # -- fields --------------------------------------------------------------------------------------------------------

    def prefix(self, data: Data) -> int:
        """Return the index of the prefix that computes some data."""
        return self._prefixes.setdefault(data.node, len(self._prefixes))

    def field(self, node: int, shape: Sequence[int], channel: int) -> Field:
        """Return a node as a tensor of a shape: the batch first, channels in one dimension, a position axis in each other."""
        axes = iter(range(len(shape)))
        dims = [(BATCH,) if i == 0 else (CHANNEL,) if i == channel else (next(axes),) for i in range(len(shape))]
        width = shape[channel]
        return Field((Block(node, width),), self.nodes[node].positions, tuple(dims), width, self.batch)

    def data_field(self, data: Data, channel: int) -> Field:
        """Read raw data as a field whose channels are dimension ``channel``."""
        shape = tuple(data.value.shape)
        node = self.add(
            ops.Input(self.prefix(data), channel, shape[channel]),
            (),
            _positions(shape, channel),
            why_not="raw data enters it, which is not Gaussian",
            centred=False,
            sources=frozenset({-1}),  # all functions of the data depend on each other
        )
        return self.field(node, shape, channel)

    def each_block(
        self, field: Field, function: Callable[[Block], int], positions: Sequence[int] | None = None
    ) -> Field:
        """Apply an operation to every block: ``function`` returns the node that replaces a block's node."""
        blocks = tuple(replace(block, node=function(block)) for block in field.blocks)
        return replace(field, blocks=blocks, positions=field.positions if positions is None else tuple(positions))

    def map_axes(self, field: Field, op: ops.Op, positions: Sequence[int]) -> Field:
        """Apply a linear operation along shared axes to every block; ``positions`` are their lengths afterwards."""
        return self.each_block(
            field,
            lambda block: self.linear_map(op, block.node, (*positions, *self._merged(block))),
            positions,
        )

    def _merged(self, block: Block) -> tuple[int, ...]:
        return tuple(self.nodes[block.node].positions[axis] for axis in block.merged)

    def join(self, field: Field, axes: Sequence[int] = (), name: str = "flatten") -> int:
        """Return the node of all channels together, with the positions along ``axes`` (and merged ones) turned into channels."""
        nodes, weights = [], []
        for block in field.blocks:
            merged = tuple(sorted((*axes, *block.merged)))
            sizes = self.nodes[block.node].positions
            node = block.node
            if merged:
                rest = [size for axis, size in enumerate(sizes) if axis not in merged]
                node = self.linear_map(ops.Contract(merged, name), node, rest)
            nodes.append(node)
            weights.append(block.width * math.prod(self._merged(block)))
        if len(nodes) == 1:
            return nodes[0]
        shares = tuple(weight / sum(weights) for weight in weights)
        return self.combine(ops.Concat(shares), nodes, self.nodes[nodes[0]].positions)

    def arrange(self, field: Field, axes: Sequence[int | None], sizes: Sequence[int], dims: Any) -> Field:
        """Return the field with its shared axes in another order, and new ones where ``axes`` has None."""
        if tuple(axes) == tuple(range(len(field.positions))):
            return field.with_dims(dims)

        def apply(block: Block) -> int:
            lengths = (*sizes, *self._merged(block))
            op = ops.Arrange((*axes, *block.merged), lengths, len(self.nodes[block.node].positions))
            return self.linear_map(op, block.node, lengths)

        arranged = self.each_block(field, apply, sizes)
        blocks = tuple(
            replace(block, merged=tuple(range(len(sizes), len(sizes) + len(block.merged)))) for block in arranged.blocks
        )
        return replace(arranged, blocks=blocks).with_dims(dims)

    def axis_of(self, field: Field, dim: int) -> tuple[Field, int]:
        """Return the position axis of a tensor dimension; add an axis of length one if it enumerates nothing."""
        axis = field.axis(dim)
        if axis is not None:
            return field, axis
        if field.core(dim):
            raise Refused(
                f"dimension {dim} of its input is not one position axis but holds "
                + ("the channels" if CHANNEL in field.dims[dim] else "several merged axes"),
                "keep channels and positions in the dimensions that the layer expects",
            )
        new = len(field.positions)
        dims = list(field.dims)
        dims[dim] = (new,)
        return self.arrange(field, (*range(new), None), (*field.positions, 1), dims), new

    def constant(self, value: float, positions: Sequence[int]) -> int:
        """Add a constant field."""
        why_not = "a constant is added to it, which shifts every channel equally"
        return self.add(ops.Constant(value), (), positions, why_not=why_not, centred=value == 0, sources=frozenset())

    def stand_in(self, shape: Sequence[int], channel: int) -> Field:
        """Return a Gaussian field of a given shape in place of a refused one; it is never part of a program."""
        positions = _positions(shape, channel)
        source = self.constant(float(len(self.nodes)), positions)
        return self.field(self.add(ops.Dense(ops.Gains(1.0, 0.0, 0.0, 0.0)), (source,), positions), shape, channel)

    def program(self, field: Field, positions: bool = False) -> ops.Program:
        """Finish with a field as the output, averaged over its remaining positions unless ``positions`` are kept."""
        groups = _output_axes(field)
        name = "mean over positions" if groups and not positions else "flatten"
        groups = groups if positions else ()
        kept_axes = sorted(axis for group in groups for axis in group)
        output = self.join(field, [axis for axis in range(len(field.positions)) if axis not in kept_axes], name)
        kept = self._needed(output)
        nodes = [self.nodes[index] for index in kept]
        prefixes = tuple(self._prefix_of(node) for node in self._prefixes)
        layout = tuple(tuple(kept_axes.index(axis) for axis in group) for group in groups)
        renumbered = (replace(node, inputs=tuple(kept[read] for read in node.inputs)) for node in nodes)
        program = ops.Program(tuple(renumbered), prefixes, layout)
        infos = [self.info[index] for index in kept]
        calls = [self.calls.get(index) for index in kept]
        cuts = [self.parts.get(index) for index in kept]
        affine = [info.affine for info in infos]
        return share(program, [info.sources for info in infos], calls, cuts, affine, EMPIRICAL)

    def owners(self, field: Field) -> ops.Owners:
        """Return the paths of the parameters that the nodes of the program with a field as its output apply."""
        if self._again:
            why = "the layer is called more than once, and its calls have no covariances between inputs of two sizes"
            raise ops.Unpaired(self.nodes[min(self._again)], why)
        output = self.join(
            field, range(len(field.positions)), "mean over positions" if _output_axes(field) else "flatten"
        )
        found: dict[int, tuple[str, ...]] = {}
        for index, number in self._needed(output).items():
            paths: list[str] = []

            def read(weight: Weight, paths: list[str] = paths) -> Tensor:
                paths.append(weight.path)
                return weight.parameter.detach()

            if index in self.held:
                self.held[index](read)
                found[number] = tuple(paths)
        return found

    def _needed(self, output: int) -> dict[int, int]:
        """Return new numbers, in order, for the nodes that a node is computed from and itself."""
        needed, stack = set(), [output]
        while stack:
            index = stack.pop()
            if index not in needed:
                needed.add(index)
                stack.extend(self.nodes[index].inputs)
        return {index: number for number, index in enumerate(sorted(needed))}


def _positions(shape: Sequence[int], channel: int) -> tuple[int, ...]:
    return tuple(size for dim, size in enumerate(shape) if dim not in (0, channel))


def _output_axes(field: Field) -> tuple[tuple[int, ...], ...]:
    """Return, for each output dimension but batch and channels (with what was flattened into them), its position axes."""
    groups = []
    for dim in field.dims:
        axes = tuple(atom for atom in dim if atom >= 0)
        if BATCH in dim or (CHANNEL in dim and (field.channels > 1 or not axes)):
            continue  # a channel dimension of length one may be squeezed away
        groups.append(axes)
    return tuple(groups)


def tensor_number(value: object) -> float | None:
    """Return the common value of all entries of a constant, or None if they differ."""
    if isinstance(value, Weight):
        value = None if value.trained else value.parameter
    if isinstance(value, Tensor):
        if value.numel() == 0 or value.is_complex():
            return None
        first = value.detach().flatten()[0]
        return float(first) if value.numel() == 1 or bool((value == first).all()) else None
    return float(value) if isinstance(value, (bool, int, float, torch.SymInt)) else None
