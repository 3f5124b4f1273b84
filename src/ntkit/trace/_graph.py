"""A module's forward as a graph: symbolic tracing first, export with an example where that fails."""

from __future__ import annotations

import warnings
from typing import Any

import torch
from torch import Tensor, fx, nn

from ._registry import find_module

__all__ = ["Untraceable", "export_graph", "prefix_module", "symbolic_graph"]


class Untraceable(Exception):
    """A forward that cannot be read as a graph."""


class _Tracer(fx.Tracer):
    """Stops at modules that the registry knows, as well as at PyTorch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if "forward" in vars(m):
            return False  # a forward of this one module
        known = find_module(m)
        if known is not None and type(m).forward is known.kind.forward:
            return True  # a known layer, or a subclass that leaves its forward as it is
        return super().is_leaf_module(m, module_qualified_name)


def symbolic_graph(module: nn.Module, example: Tensor) -> fx.GraphModule:
    """Trace with proxies: no branch on shapes or values."""
    try:
        graph = _Tracer().trace(module)
    except Exception as error:  # user code runs under proxies and may raise anything
        raise Untraceable(f"{type(error).__name__}: {error}") from error
    return fx.GraphModule(module, graph)


def export_graph(module: nn.Module, example: Tensor) -> fx.GraphModule:
    """Trace with an example input, which settles branches on shapes."""
    dynamic: tuple[Any, ...] = ({0: torch.export.Dim.DYNAMIC},)
    error: Exception | None = None
    for shapes in (dynamic, None):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                program = torch.export.export(module, (example,), dynamic_shapes=shapes)
                return program.module(check_guards=False)
        except Exception as raised:  # user code and the exporter may raise anything
            error = raised
    raise Untraceable(f"{type(error).__name__}: {error}") from error


def prefix_module(graph: fx.GraphModule, node: fx.Node) -> fx.GraphModule | None:
    """Cut out what computes one node from the input; None where the node is the input."""
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
    return fx.GraphModule(graph, cut)
