"""A module's forward as a graph: traced with proxies that know their shapes or, if that fails, exported with an example."""

from __future__ import annotations

import copy
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, fx, nn

from ntkit._src.layers import Elementwise, SelfAttention
from ntkit.errors import Problem, UnsupportedLayerError

from ._nodes import ancestors, path_of
from ._proxies import ShapeTracer, lengths_of_proxies

ONE_BATCH = "ntkit_one_batch"
"""Entry of a graph's ``meta``: whether it may hold only for some sizes of the batch."""


class Untraceable(Exception):
    """Raised for a forward that cannot be read as a graph; ``final``: not in another way either."""

    final = False


def symbolic_graph(module: nn.Module, example: Tensor) -> fx.GraphModule:
    """Trace with proxies, for any number of inputs of the example's shape."""
    try:
        tracer = ShapeTracer(example)
        with lengths_of_proxies(module):
            graph = fx.GraphModule(module, tracer.trace(module))
    except Exception as error:  # user code runs under proxies and may raise anything
        raise Untraceable(f"{type(error).__name__}: {error}") from error
    if tracer.failure:  # the exporter's exception would be caught as well
        caught = Untraceable(f"{tracer.failure}, and the forward catches the exception")
        caught.final = True
        raise caught
    graph.meta[ONE_BATCH] = tracer.branches_on_batch
    return graph


def export_graph(module: nn.Module, example: Tensor) -> fx.GraphModule:
    """Trace by running the code itself with an example, by ``torch.export``."""
    dynamic: tuple[Any, ...] = ({0: torch.export.Dim.DYNAMIC},)
    error: Exception | None = None
    for shapes in (dynamic, None):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(module, (example,), dynamic_shapes=shapes)
                graph = program.module(check_guards=False)
        except Exception as raised:  # user code and the exporter may raise anything
            error = raised
        else:
            for node in graph.graph.nodes:
                value = node.meta.get("val")
                if isinstance(value, Tensor):
                    sizes = [int(size) if isinstance(size, int) else len(example) for size in value.shape]
                    node.meta["ntkit_shape"] = tuple(sizes)
            graph.meta[ONE_BATCH] = True
            return _with_own_layers(graph, module)
    raise Untraceable(f"{type(error).__name__}: {error}") from error


def _with_own_layers(graph: fx.GraphModule, module: nn.Module) -> fx.GraphModule:
    """Restore calls of this library's layers in place of the operations that the exporter saw inside them."""
    for path, layer in module.named_modules():
        if not isinstance(layer, (Elementwise, SelfAttention)):
            continue
        groups: dict[str, list[fx.Node]] = {}
        for node in graph.graph.nodes:
            for key, entry in (node.meta.get("nn_module_stack") or {}).items():
                if (entry[0] if isinstance(entry, tuple) else entry) == path:
                    groups.setdefault(key, []).append(node)  # one key per call
        for nodes in groups.values():
            inside = set(nodes)
            read = {n for node in nodes for n in node.all_input_nodes if n not in inside and n.op != "get_attr"}
            given = [node for node in nodes if any(user not in inside for user in node.users)]
            if len(read) != 1 or len(given) != 1:
                continue
            graph.add_submodule(path, layer)
            with graph.graph.inserting_after(given[0]):
                call = graph.graph.call_module(path, (read.pop(),))
            call.meta = dict(given[0].meta)
            given[0].replace_all_uses_with(call)
            for node in reversed(nodes):
                if not node.users:
                    graph.graph.erase_node(node)
    return graph


class _Prefix(nn.Module):
    """What is computed from the data before the first layer with weights."""

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor) -> Tensor:
        """Return the data that the layer reads, node by node, since generated code would print itself when it fails."""
        value: Tensor = fx.Interpreter(self.graph).run(x)
        return value


class Computing(nn.Module):
    """A function of what a prefix computes; None: of the input."""

    def __init__(self, prefix: nn.Module | None, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.prefix, self.function = prefix, function

    def forward(self, x: Tensor) -> Tensor:
        """Return the function's value."""
        return self.function(x if self.prefix is None else self.prefix(x))


def checked_prefix(graph: fx.GraphModule, node: fx.Node, example: Tensor, what: str) -> nn.Module | None:
    """Return what computes a node from the input, in float64; None for the input. It must not draw numbers or mix the batch."""
    if node.op == "placeholder":
        return None
    needed, cut = ancestors([node]), fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for current in graph.graph.nodes:
        if current in needed or current.op == "placeholder":
            copies[current] = cut.node_copy(current, lambda n: copies[n])
    cut.output(copies[node])
    prefix = copy.deepcopy(_Prefix(fx.GraphModule(graph, cut))).eval()
    whole = prefix(example.clone())
    if not torch.equal(whole.nan_to_num(), prefix(example.clone()).nan_to_num()):
        reason = "what comes before the first layer draws random numbers, or changes with every call"
        raise UnsupportedLayerError((Problem(path_of(node), what, reason, "add noise to the data beforehand"),))
    try:
        alone = torch.cat([prefix(row.clone()) for row in example.split(1)])
    except RuntimeError as error:
        raise Untraceable("what comes before the first layer works for one size of the batch only") from error
    if not torch.allclose(whole, alone, rtol=1e-4, atol=1e-5, equal_nan=True):
        reason = "what comes before the first layer mixes the inputs of a batch, so there is no kernel of two inputs"
        remedy = "standardise the data beforehand, with statistics of the training set"
        raise UnsupportedLayerError((Problem(path_of(node), what, reason, remedy),))
    return prefix.double()
