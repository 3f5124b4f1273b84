"""Builds a program node by node and tracks what later operations may do with each node."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from ntkit._src.program import (
    Arrange,
    Concat,
    Constant,
    Contract,
    Conv,
    Dense,
    Gains,
    Input,
    LogitSamples,
    Lookup,
    Node,
    Normalize,
    Op,
    Program,
    Sum,
    Table,
    Weights,
)
from ntkit.errors import InputError

from ._channel_sources import ChannelSources
from ._info import Info
from ._values import BATCH, CHANNEL, Block, Data, Field, Weight

__all__ = ["EMPIRICAL", "Builder", "Info", "Refused", "WeightGains", "WrongShape"]

Held = Callable[[Callable[[Weight], Tensor]], Weights]
"""Computes a node's weight and bias in a finite network, in the layout of its finite form, from the values of parameters."""

WeightGains = Callable[[str, int, bool, bool, bool, tuple[float, float] | None], Gains]
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
    """The program under construction.

    Parameters
    ----------
    gains
        Returns the gains of each layer.
    prefix_of
        Turns the graph node of a :class:`Data` value into a callable of the input, or None for the input itself.
    batch
        Batch size of the traced example.
    samples
        How softmax attention draws its logits; None refuses it.

    Attributes
    ----------
    nodes, info
        The nodes, and what is known about each.
    held
        The parameters of each node in a finite network, if it has any.
    parts
        For a node that stands for a range of its input's channels (which in the limit behave like all of them): the range.
    random
        The parameters of layers with fresh weights, each with its standard deviation.
    layers
        For each such layer, whether it has a bias.
    """

    def __init__(
        self,
        gains: WeightGains,
        prefix_of: Callable[[object], Any],
        batch: int,
        samples: LogitSamples | None = None,
    ) -> None:
        self.path = ""
        self.samples = samples
        self.batch = batch
        self.nodes: list[Node] = []
        self.info: list[Info] = []
        self.held: dict[int, Held] = {}
        self.parts: dict[int, tuple[int, int]] = {}
        self.random: list[tuple[Weight, float]] = []
        self.layers: dict[str, bool] = {}
        self._gains = gains
        self._prefix_of = prefix_of
        self._prefixes: dict[object, int] = {}
        self._known: dict[tuple[object, ...], int] = {}
        self._weights: dict[int, str] = {}
        self._channel_sources = ChannelSources()

    # -- nodes ---------------------------------------------------------------------------------------------------------

    def add(
        self,
        op: Op,
        inputs: Sequence[int],
        positions: Sequence[int],
        *,
        gaussian: bool,
        why_not: str = "",
        centred: bool,
        sources: frozenset[int] | None = None,
        affine: str = "",
        distinct: object = None,
    ) -> int:
        """Add a node; ``sources`` defaults to those of the inputs.

        The same operation on the same nodes is added once, unless ``distinct`` differs.
        """
        key = (op, tuple(inputs), distinct)
        fresh = isinstance(op, (Dense, Conv))
        if not fresh and key in self._known:
            return self._known[key]
        index = len(self.nodes)
        if sources is None:
            sources = frozenset[int]().union(*(self.info[read].sources for read in inputs))
        trained = any(self.nodes[read].trained for read in inputs)
        if isinstance(op, (Dense, Conv)):
            trained |= op.gains.trained
            sources = frozenset({index})
        if isinstance(op, Normalize):
            trained |= op.weight_trained or op.bias_trained
        if isinstance(op, Table):
            trained |= op.tangent is not None
        if isinstance(op, Lookup):
            trained |= op.trained
        self.nodes.append(Node(op, tuple(inputs), tuple(positions), self.path, centred, trained))
        self.info.append(Info(gaussian, why_not, sources, affine))
        if not fresh:
            self._known[key] = index
        return index

    def linear_map(self, op: Op, read: int, positions: Sequence[int]) -> int:
        """Add a node that maps positions linearly: Gaussian or centred values stay so."""
        info, node = self.info[read], self.nodes[read]
        kept = op.selects() or (info.affine == "whole" and not isinstance(op, Contract))
        return self.add(
            op,
            (read,),
            positions,
            gaussian=info.gaussian,
            why_not=info.why_not,
            centred=node.centred,
            affine="part" if info.affine and not kept else info.affine,
        )

    def own_source(self) -> frozenset[int]:
        """Return the source label of the node added next."""
        return frozenset({len(self.nodes)})

    def part(self, node: int, start: int, stop: int, width: int) -> int:
        """Add a node for a range of a node's ``width`` channels; in the limit it is an independent copy of the node."""
        sources = self._channel_sources.part(self.info, node, start, stop, width)
        info, own = self.info[node], self.nodes[node]
        index = self.add(
            Sum((1.0,)),
            (node,),
            own.positions,
            gaussian=info.gaussian,
            why_not=info.why_not,
            centred=own.centred,
            sources=sources,
            affine=info.affine,
            distinct=(start, stop),
        )
        self.parts[index] = (start, stop)
        return index

    def claim(self, what: str, *weights: Weight | None) -> None:
        """Refuse parameters that another layer uses too: the limit assumes independent parameters."""
        for weight in weights:
            if weight is None:
                continue
            memory = weight.parameter.data_ptr()
            if memory in self._weights:
                raise Refused(
                    f"its {what} are also those of {self._weights[memory]!r} (a layer called twice or tied parameters), so "
                    "its values are not independent of that layer's",
                    "give each call its own layer",
                )
            self._weights[memory] = weight.layer

    def layer_gains(
        self, weight: Weight, bias: Weight | None, fan_in: int, torch_gains: tuple[float, float] | None = None
    ) -> Gains:
        """Return a layer's gains, and refuse weights that another layer uses too.

        ``torch_gains`` are those of PyTorch's own initialisation if it differs from that of linear layers.
        """
        self.claim("weights", weight, bias)
        self.layers[weight.layer] = bias is not None
        gains = self._gains(
            weight.layer, fan_in, bias is not None, weight.trained, bias is not None and bias.trained, torch_gains
        )
        self.random.append((weight, float(torch.as_tensor(gains.w_std).detach()) / fan_in**0.5))
        if bias is not None:
            self.random.append((bias, float(torch.as_tensor(gains.b_std).detach())))
        return gains

    # -- fields --------------------------------------------------------------------------------------------------------

    def prefix(self, data: Data) -> int:
        """Return the index of the prefix that computes some data."""
        return self._prefixes.setdefault(data.node, len(self._prefixes))

    def data_field(self, data: Data, channel: int, dims: Any = None) -> Field:
        """Read raw data as a field whose channels are dimension ``channel``."""
        value: Tensor = data.value
        shape = tuple(value.shape)
        positions = tuple(size for dim, size in enumerate(shape) if dim not in (0, channel))
        node = self.add(
            Input(self.prefix(data), channel, shape[channel]),
            (),
            positions,
            gaussian=False,
            why_not="raw data enters it, which is not Gaussian",
            centred=False,
            sources=frozenset({-1}),  # all functions of the data depend on each other
        )
        if dims is None:
            axes = iter(range(len(positions)))
            dims = [(BATCH,) if i == 0 else (CHANNEL,) if i == channel else (next(axes),) for i in range(len(shape))]
        return Field((Block(node, shape[channel]),), positions, tuple(dims), shape[channel], self.batch)

    def each_block(
        self, field: Field, function: Callable[[Block], int], positions: Sequence[int] | None = None
    ) -> Field:
        """Apply an operation to every block: ``function`` returns the node that replaces a block's node."""
        blocks = tuple(replace(block, node=function(block)) for block in field.blocks)
        return replace(field, blocks=blocks, positions=field.positions if positions is None else tuple(positions))

    def block_positions(self, field: Field, block: Block, positions: Sequence[int] | None = None) -> tuple[int, ...]:
        """Return the lengths of a block's axes: the shared ones, then its merged ones."""
        own = self.nodes[block.node].positions
        return tuple(field.positions if positions is None else positions) + tuple(own[axis] for axis in block.merged)

    def join(self, field: Field, axes: Sequence[int] = (), name: str = "flatten") -> int:
        """Return the node of all channels together, with the positions along ``axes`` (and merged ones) turned into channels."""
        nodes, weights = [], []
        for block in field.blocks:
            merged = tuple(sorted((*axes, *block.merged)))
            sizes = self.nodes[block.node].positions
            node = block.node
            if merged:
                rest = [size for axis, size in enumerate(sizes) if axis not in merged]
                node = self.linear_map(Contract(merged, name), node, rest)
            nodes.append(node)
            weights.append(block.width * math.prod(sizes[axis] for axis in block.merged))
        if len(nodes) == 1:
            return nodes[0]
        why = next((self.info[node].why_not for node in nodes if not self.info[node].gaussian), "")
        return self.add(
            Concat(tuple(weight / sum(weights) for weight in weights)),
            nodes,
            self.nodes[nodes[0]].positions,
            gaussian=not why,
            why_not=why,
            centred=all(self.nodes[node].centred for node in nodes),
        )

    def arrange(self, field: Field, axes: Sequence[int | None], sizes: Sequence[int], dims: Any) -> Field:
        """Return the field with its shared axes in another order, and new ones where ``axes`` has None."""
        if tuple(axes) == tuple(range(len(field.positions))):
            return field.with_dims(dims)

        def apply(block: Block) -> int:
            op = Arrange(
                (*axes, *block.merged),
                self.block_positions(field, block, sizes),
                len(self.nodes[block.node].positions),
            )
            return self.linear_map(op, block.node, op.sizes)

        arranged = self.each_block(field, apply, sizes)
        blocks = tuple(
            replace(block, merged=tuple(range(len(sizes), len(sizes) + len(block.merged)))) for block in arranged.blocks
        )
        return replace(arranged, blocks=blocks, dims=tuple(tuple(dim) for dim in dims))

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
        field = self.arrange(field, (*range(new), None), (*field.positions, 1), dims)
        return field, new

    def constant(self, value: float, positions: Sequence[int]) -> int:
        """Add a constant field."""
        return self.add(
            Constant(value),
            (),
            positions,
            gaussian=False,
            why_not="a constant is added to it, which shifts every channel equally",
            centred=value == 0,
            sources=frozenset(),
        )

    def stand_in(self, shape: Sequence[int], channel: int) -> Field:
        """Return a Gaussian field of a given shape in place of a refused one; it is never part of a program."""
        positions = tuple(size for dim, size in enumerate(shape) if dim not in (0, channel))
        source = self.constant(float(len(self.nodes)), positions)
        node = self.add(Dense(Gains(1.0, 0.0, 0.0, 0.0)), (source,), positions, gaussian=True, centred=True)
        axes = iter(range(len(positions)))
        dims = [(BATCH,) if i == 0 else (CHANNEL,) if i == channel else (next(axes),) for i in range(len(shape))]
        return Field((Block(node, shape[channel]),), positions, tuple(dims), shape[channel], self.batch)

    def program(self, field: Field, positions: bool = False) -> Program:
        """Finish with a field as the output, averaged over its remaining positions unless ``positions`` are kept."""
        groups = _output_axes(field)
        name = "mean over positions" if groups and not positions else "flatten"
        groups = groups if positions else ()
        kept_axes = sorted(axis for group in groups for axis in group)
        output = self.join(field, [axis for axis in range(len(field.positions)) if axis not in kept_axes], name)
        kept: dict[int, int] = {}
        nodes: list[Node] = []
        needed = _ancestors(self.nodes, output)
        for index, node in enumerate(self.nodes):
            if index in needed:
                kept[index] = len(nodes)
                nodes.append(replace(node, inputs=tuple(kept[read] for read in node.inputs)))
        prefixes = tuple(self._prefix_of(node) for node in self._prefixes)
        layout = tuple(tuple(kept_axes.index(axis) for axis in group) for group in groups)
        return Program(tuple(nodes), prefixes, layout)


def _output_axes(field: Field) -> tuple[tuple[int, ...], ...]:
    """Return, for each dimension of an output except the batch and the channels, the position axes it enumerates.

    Positions that were flattened into the channels are part of them; a channel dimension of length one may be squeezed away.
    """
    groups = []
    for dim in field.dims:
        axes = tuple(atom for atom in dim if atom >= 0)
        if BATCH in dim or (CHANNEL in dim and (field.channels > 1 or not axes)):
            continue
        groups.append(axes)
    return tuple(groups)


def _ancestors(nodes: Sequence[Node], output: int) -> set[int]:
    found: set[int] = set()
    stack = [output]
    while stack:
        index = stack.pop()
        if index not in found:
            found.add(index)
            stack.extend(nodes[index].inputs)
    return found


def tensor_number(value: object) -> float | None:
    """Return the common value of all entries of a constant, or None if they differ."""
    if isinstance(value, Weight):
        value = None if value.trained else value.parameter
    if isinstance(value, Tensor):
        if value.numel() == 0 or value.is_complex():
            return None
        first = value.detach().flatten()[0]
        return float(first) if value.numel() == 1 or bool((value == first).all()) else None
    if isinstance(value, (bool, int, float, torch.SymInt)):
        return float(value)
    return None
