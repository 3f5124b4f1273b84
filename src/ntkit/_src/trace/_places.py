"""Places in a traced graph: what the output depends on, and the path of an operation in the module."""

from __future__ import annotations

from torch import fx

from ntkit.errors import Problem

from ._builder import EMPIRICAL
from ._inplace import writes

__all__ = ["ROOT", "live_nodes", "path_of", "taken_apart"]

ROOT = "forward"
"""The path of operations in the module's own forward."""


def live_nodes(graph: fx.GraphModule) -> set[fx.Node]:
    """Find the nodes that the output depends on, including those that overwrite something."""
    live: set[fx.Node] = set()
    stack = [
        node
        for node in graph.graph.nodes
        if node.op in ("output", "placeholder")
        or writes(node, graph.get_submodule(str(node.target)) if node.op == "call_module" else None)
    ]
    while stack:
        node = stack.pop()
        if node not in live:
            live.add(node)
            stack.extend(node.all_input_nodes)
    return live


def taken_apart(node: fx.Node) -> Problem | None:
    """Explain what to do about PyTorch's attention when the exporter left only the operations inside it."""
    for key, entry in (node.meta.get("nn_module_stack") or {}).items():
        path, kind = entry if isinstance(entry, tuple) else (key, entry)
        if node.op != "call_module" and "MultiheadAttention" in str(getattr(kind, "__name__", kind)):
            return Problem(
                str(path),
                "MultiheadAttention",
                "only torch.export could read the forward around it, and it decomposes nn.MultiheadAttention into "
                "operations that have no rule by themselves",
                "use ntkit.layers.SelfAttention, which stays whole; or write the forward without what torch.fx cannot trace "
                f"(branches on values, Python functions of tensors); or {EMPIRICAL}",
            )
    return None


def path_of(node: fx.Node) -> str:
    """Return the path of the module in whose forward an operation is."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack")
    inner = [str(entry[0] if isinstance(entry, tuple) else entry) for entry in (stack or {}).values()]
    return (inner[-1] if inner else "") or ROOT
