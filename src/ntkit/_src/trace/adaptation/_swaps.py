"""The graph of a forward pass as it was, run with other values for the nodes that were changed."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from torch import Tensor, fx, nn

from ..matchers._registry import find_module

__all__ = ["AdaptTracer", "Swaps", "WithChanges"]

# The value that a changed node must have, by its name: a function of the run of the graph before the change.
Swaps = dict[str, Callable[["WithChanges"], Any]]


class AdaptTracer(fx.Tracer):
    """Stops at modules that the registry knows, as well as at PyTorch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return find_module(m) is not None or super().is_leaf_module(m, module_qualified_name)


class WithChanges(fx.Interpreter):
    """Runs the graph of a module as it was, with other values for the changed nodes and no operation in place.

    Parameters
    ----------
    module
        The module before the change.
    swaps
        The values of the changed nodes, by name.
    """

    def __init__(self, module: nn.Module, swaps: Mapping[str, Callable[[WithChanges], Any]]) -> None:
        graph = AdaptTracer().trace(module)
        super().__init__(fx.GraphModule(module, graph), garbage_collect_values=False)
        self.swaps = swaps
        self.nodes = {node.name: node for node in graph.nodes}

    def run_node(self, n: fx.Node) -> Any:
        """Return the value of a node."""
        swap = self.swaps.get(n.name)
        return super().run_node(n) if swap is None else swap(self)

    def fetch_args_kwargs_from_env(self, n: fx.Node) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return a node's arguments; copies, so that none is overwritten."""
        copied = fx.node.map_aggregate(
            super().fetch_args_kwargs_from_env(n), lambda a: a.clone() if isinstance(a, Tensor) else a
        )
        return copied

    def values(self, arguments: Any) -> Any:
        """Return arguments of a node of the changed graph with the values that they have here."""
        return fx.node.map_arg(arguments, lambda n: self.env[self.nodes[n.name]])

    def again(self, name: str, value: Tensor) -> Any:
        """Return what a node with one input gives for another value of it."""
        node = self.nodes[name]
        source = node.all_input_nodes[0]
        kept, self.env[source] = self.env[source], value
        result = super().run_node(node)
        self.env[source] = kept
        return result
