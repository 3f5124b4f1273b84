"""A module's forward as a graph: traced with proxies that know their shapes or, if that fails, exported with an example."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn

from ntkit._src.layers import Elementwise, SelfAttention

from ._proxies import ShapeTracer, lengths_of_proxies

__all__ = ["Prefix", "Untraceable", "export_graph", "prefix_module", "symbolic_graph"]


class Untraceable(Exception):
    """Raised for a forward that cannot be read as a graph."""


def symbolic_graph(module: nn.Module, example: Tensor) -> fx.GraphModule:
    """Trace with proxies, for any number of inputs of the example's shape."""
    try:
        with lengths_of_proxies(module):
            graph = ShapeTracer(example).trace(module)
        return fx.GraphModule(module, graph)
    except Exception as error:  # user code runs under proxies and may raise anything
        raise Untraceable(f"{type(error).__name__}: {error}") from error


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


class Prefix(nn.Module):
    """The computation on the data before the first layer with weights.

    Parameters
    ----------
    graph
        Graph of one input; run node by node, since generated code would print itself when it fails.
    """

    def __init__(self, graph: fx.GraphModule) -> None:
        super().__init__()
        self.graph = graph

    def forward(self, x: Tensor) -> Tensor:
        """Return the data that the layer reads."""
        value: Tensor = fx.Interpreter(self.graph).run(x)
        return value


def prefix_module(graph: fx.GraphModule, node: fx.Node) -> Prefix | None:
    """Extract the subgraph that computes one node from the input; None if the node is the input."""
    if node.op == "placeholder":
        return None
    needed: set[fx.Node] = set()
    stack = [node]
    while stack:
        current = stack.pop()
        if current not in needed:
            needed.add(current)
            stack.extend(current.all_input_nodes)
    cut = fx.Graph()
    copies: dict[fx.Node, fx.Node] = {}
    for current in graph.graph.nodes:
        if current in needed or current.op == "placeholder":
            copies[current] = cut.node_copy(current, lambda n: copies[n])
    cut.output(copies[node])
    return Prefix(fx.GraphModule(graph, cut))
