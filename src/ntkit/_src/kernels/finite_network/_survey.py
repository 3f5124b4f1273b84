"""What all methods need: how a module computes its outputs, the memory of one row, and the sums to which they add their parts."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.graph import Node, saved_tensors_hooks

from ntkit._src.common import check_gram_memory, mirror_upper, parameter_source
from ntkit._src.trace import GainRule
from ntkit.errors import InputError

from ._layers import Call, Layer, Sizes, captured, structured_layers
from ._network import Inputs, Network


@dataclass(frozen=True)
class Scaled:
    """A trained parameter that a layer uses times a scale."""

    name: str  # the parameter's name in the module
    scale: float  # the factor: 1, or that of the NTK parametrisation


@dataclass(frozen=True)
class Structured:
    """A layer whose kernel follows from its input and its output gradient."""

    layer: Layer
    copies: int  # rows that the layer sees for each input: positions may be folded into the batch
    weight: Scaled | None  # weight, bias: its trained parameters
    bias: Scaled | None
    sizes: Sizes  # the sizes of its only call

    @property
    def gradient_entries(self) -> int:
        """Entries of the gradient at its output, for one input and one output of the network."""
        return self.sizes.positions * self.sizes.groups * self.sizes.fan_out

    @property
    def patch_entries(self) -> int:
        """Entries of the patches that its weight is applied to, for one input."""
        return self.sizes.positions * self.sizes.groups * self.sizes.fan_in


@dataclass(frozen=True)
class Survey:
    """What a method needs to know about a network before it computes."""

    network: Network
    outputs: int  # number c of outputs whose kernel is requested
    like: Tensor  # a tensor of the outputs' dtype and device
    row_bytes: int  # bytes that the graph of one input holds
    byte_budget: int  # bytes that a method may hold at a time, not counting the result and one unit of its work
    layers: tuple[Structured, ...]  # the layers that the structured method supports
    rest: tuple[str, ...]  # the names of all other trained parameters that the outputs depend on

    @property
    def names(self) -> list[str]:
        """The names of all trained parameters that the outputs depend on."""
        parts = [part for layer in self.layers for part in (layer.weight, layer.bias)]
        return [part.name for part in parts if part is not None] + list(self.rest)


def survey(network: Network, x: Inputs, byte_budget: int) -> Survey:
    """Run the network forward and backward on up to three rows and observe what it does."""
    # A layer is structured if its weight is used once, by its only call; if nothing overwrites its input; and if the outputs
    # for each input depend only on that input's rows of the layer's output. Checking this takes three rows: a module that
    # moves the batch to another axis can look right on one.
    look = _look(network, x[:3], differentiate=False)
    names = {id(parameter): name for name, parameter in network.trained.items()}
    found = []
    for call in look.calls:
        if not look.serves(call):
            continue
        weight, bias = (_part(call.layer, name, names, look.uses) for name in ("weight", "bias"))
        if weight or bias:
            found.append(
                Structured(call.layer, len(call.features) // look.rows, weight, bias, Sizes.of(call, look.rows))
            )
    structured = {part.name for layer in found for part in (layer.weight, layer.bias) if part is not None}
    rest = [name for name, p in network.trained.items() if look.uses[id(p)] and name not in structured]
    return Survey(
        network, look.values.shape[1], look.values.detach(), look.row_bytes, byte_budget, tuple(found), tuple(rest)
    )


def survey_features(network: Network, x: Inputs, byte_budget: int, gains: GainRule | None = None) -> Survey:
    """Survey only the last layer, scaled as if it were standard normal: by its own gains, those of the rule, or 1 and 0."""
    look = _look(network, x[:3], differentiate=True)
    reached = [call for call in look.calls if call.edge.node in look.nodes]
    if not reached or not look.serves(reached[-1]):
        raise InputError(
            "the nngp kernel of a module reads the input of its last nn.Linear or nn.Conv layer, which must be called once, "
            f"with the batch first. {type(network.module).__name__} has none. Wrap it in a module that ends in nn.Linear."
        )
    call = reached[-1]
    sizes = Sizes.of(call, look.rows)
    w, b = (_own_scale(call.layer, name) for name in ("weight", "bias"))
    if w is None and gains is not None:
        path = next(path for path, layer in network.module.named_modules() if layer is call.layer)
        own = gains(path, sizes.fan_in, call.layer.bias is not None, True, True)
        w, b = float(own.w_std) / sizes.fan_in**0.5, float(own.b_std)
    layer = Structured(
        call.layer,
        len(call.features) // look.rows,
        Scaled("weight", sizes.fan_in**-0.5 if w is None else w),
        Scaled("bias", b) if b else None,
        sizes,
    )
    return Survey(network, look.values.shape[1], look.values.detach(), look.row_bytes, byte_budget, (layer,), ())


@dataclass(frozen=True)
class Look:
    """Observations from one run on a few rows."""

    values: Tensor  # the outputs, shape (rows, c), with their graph
    calls: list[Call]  # the calls of every linear and convolutional layer
    local: list[bool]  # for each call, whether row i of the outputs depends only on the i-th part of the call's output
    uses: Counter[int]  # how often the outputs use each leaf, by id
    nodes: set[Node]  # the nodes of the graph
    row_bytes: int  # bytes that the graph of one row holds

    @property
    def rows(self) -> int:
        """The number of rows run."""
        return len(self.values)

    def serves(self, call: Call) -> bool:
        """Whether a call's input and output gradient determine the derivative with respect to its layer's parameters."""
        return (
            self.local[self.calls.index(call)]
            and sum(other.layer is call.layer for other in self.calls) == 1
            and call.edge.node in self.nodes
            and call.features._version == call.version
        )


def _look(network: Network, x: Inputs, differentiate: bool) -> Look:
    saved: dict[int, int] = {}
    own = {tensor.untyped_storage().data_ptr() for tensor in (*network.module.parameters(), *network.module.buffers())}

    def pack(tensor: Tensor) -> Tensor:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in own:
            saved[storage.data_ptr()] = storage.nbytes()
        return tensor

    layers = [layer for layer in structured_layers(network.module).values() if _plain_call(layer)]
    with torch.enable_grad():
        with captured(layers, differentiate) as calls, saved_tensors_hooks(pack, lambda tensor: tensor):
            values = network(x)
        if not values.requires_grad:
            raise InputError(
                "the module's output must be differentiable in its trained parameters. It does not depend on them, or goes "
                "through an operation without derivatives (argmax, rounding, detach). Return the values before it."
            )
        local = _locality(calls, values)
    return Look(values, calls, local, *_walk(values), sum(saved.values()) // len(x))


def _plain_call(layer: nn.Module) -> bool:
    """Whether calling a layer runs its class's forward and nothing else: no hooks, no overridden forward."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks, layer._backward_hooks, layer._backward_pre_hooks)
    return not any(hooks) and "forward" not in vars(layer)


def _walk(values: Tensor) -> tuple[Counter[int], set[Node]]:
    """Count how often each leaf is used in the graph of some values, and collect the graph's nodes."""
    uses: Counter[int] = Counter()
    start = values.grad_fn
    assert start is not None
    nodes: set[Node] = {start}
    waiting = [start]
    while waiting:
        for node, _ in waiting.pop().next_functions:
            if node is None:
                continue
            variable: Any = getattr(node, "variable", None)  # only leaf nodes have one
            if variable is not None:
                uses[id(variable)] += 1
            if node not in nodes:
                nodes.add(node)
                waiting.append(node)
    return uses, nodes


def _locality(calls: list[Call], values: Tensor) -> list[bool]:
    n = len(values)
    local = [
        len(call.features) % n == 0
        and call.output_shape[:1] == call.features.shape[:1]
        and call.features.ndim >= (2 if isinstance(call.layer, nn.Linear) else 2 + len(call.layer.kernel_size))
        for call in calls
    ]
    if n == 1 or not calls:
        return local
    generator = torch.Generator().manual_seed(0)
    weights = 1 + torch.rand(values.shape[1], generator=generator, dtype=torch.float64).to(values)
    for row in range(n):
        gradients = torch.autograd.grad(
            values[row], [call.edge for call in calls], weights, retain_graph=True, allow_unused=True
        )
        for index, gradient in enumerate(gradients):
            if local[index] and gradient is not None:
                parts = gradient.reshape(n, -1)
                local[index] = not bool((parts[:row] != 0).any() or (parts[row + 1 :] != 0).any())
    return local


def _part(layer: Layer, name: str, names: dict[int, str], uses: Counter[int]) -> Scaled | None:
    """Return a layer's weight or bias if it is trained and used once, either raw or times a number."""
    source = parameter_source(layer, name)
    if source is None or source.scale is None or uses[id(source.parameter)] != 1 or id(source.parameter) not in names:
        return None
    return Scaled(names[id(source.parameter)], source.scale)


def _own_scale(layer: Layer, name: str) -> float | None:
    """Return the factor by which the NTK parametrisation multiplies a layer's weight or bias; None without one."""
    source = parameter_source(layer, name)
    return None if source is None or source.scaling is None else source.scale


Block = tuple[slice, slice]  # rows, outputs


class Total:
    """A kernel as the sum of the contributions of single parameters to blocks of rows and outputs."""

    # Parameters with the same key are added up: ``values`` by key are (n1, c, n2, c) if the outputs are kept separate,
    # otherwise (n1, n2).

    def __init__(self, survey: Survey, n1: int, n2: int, keys: Mapping[str, str]) -> None:
        self._outputs, self._full, self.keys = survey.outputs, survey.network.full, keys
        size = (n1, self._outputs, n2, self._outputs) if self._full else (n1, n2)
        apart, like = self._outputs if self._full else 1, survey.like
        matrices = len(set(keys.values()))
        check_gram_memory(n1 * apart, n2 * apart, like.dtype, like.device, matrices=matrices)
        self.values = {key: like.new_zeros(size) for key in dict.fromkeys(keys.values())}

    def add(self, name: str, value: Tensor, first: Block, second: Block) -> None:
        """Add a parameter's kernel between two blocks: for each pair of outputs, or summed over outputs."""
        target = self.values[self.keys[name]]
        if self._full:
            target[first[0], first[1], second[0], second[1]] += value
        else:
            target[first[0], second[0]] += value / self._outputs

    def finish(self, symmetric: bool) -> dict[str, Tensor]:
        """Return the matrices; for a symmetric one, only the lower triangle needs to have been added."""
        matrices = {key: value.flatten(2).flatten(0, 1) if self._full else value for key, value in self.values.items()}
        if symmetric:
            return {key: mirror_upper(matrix.mT).mT for key, matrix in matrices.items()}
        return matrices


class Diagonal:
    """The diagonal of a kernel, summed likewise; ``value`` is (n, c) if the outputs are kept separate, otherwise (n,)."""

    def __init__(self, survey: Survey, n: int) -> None:
        self._outputs, self._full = survey.outputs, survey.network.full
        self.value = survey.like.new_zeros((n, self._outputs) if self._full else (n,))

    def add(self, norms: Tensor, rows: slice, outputs: slice) -> None:
        """Add squared norms (n, s) of the derivatives of a block's outputs."""
        if self._full:
            self.value[rows, outputs] += norms
        else:
            self.value[rows] += norms.sum(1) / self._outputs


def slices(n: int, step: int, stop: int | None = None) -> list[slice]:
    """Split range(n), or the part of it whose slices start before ``stop``, into slices."""
    return [slice(i, min(i + step, n)) for i in range(0, n if stop is None else stop, step)]
