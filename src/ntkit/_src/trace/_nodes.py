"""Nodes of a traced graph: what they call and where, what they overwrite, and what depends on the values of tensors."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from ntkit.errors import Problem

from ._builder import EMPIRICAL, Refused

ROOT = "forward"
"""The path of operations in the module's own forward."""
NUMBERS_OF_DATA = "it reads numbers out of the values of a tensor, which differ between inputs"
_INPLACE = {operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow}
_VIEWS = {
    "view", "reshape", "flatten", "permute", "transpose", "movedim", "squeeze", "unsqueeze", "unflatten", "contiguous",
    "getitem", "select", "slice",
}  # fmt: skip
_SHAPE_READERS = {
    "size", "sym_size", "numel", "sym_numel", "stride", "sym_stride", "dim", "ndimension", "getattr", "is_contiguous",
    "is_floating_point", "is_complex", "storage_offset", "sym_storage_offset", "get_device", "element_size", "type",
    "result_type",
}  # fmt: skip
_SHAPED_BY_VALUES = {"nonzero", "argwhere", "masked_select", "unique", "unique_consecutive", "bincount"}


def target_name(graph: nn.Module, node: fx.Node) -> str:
    """Name what a node calls: a module's class, a method, a function, or an operator without its overload."""
    if node.op == "call_module":
        return type(graph.get_submodule(str(node.target))).__name__
    return _called(node)


def _called(node: fx.Node) -> str:
    if isinstance(node.target, torch._ops.OpOverload):
        return str(node.target._schema.name.split("::")[1])
    return str(getattr(node.target, "__name__", node.target))


def path_of(node: fx.Node) -> str:
    """Return the path of the module in whose forward an operation is."""
    if node.op == "call_module":
        return str(node.target)
    stack = node.meta.get("nn_module_stack") or {}
    inner = [str(entry[0] if isinstance(entry, tuple) else entry) for entry in stack.values()]
    return (inner[-1] if inner else "") or ROOT


def attribute(root: nn.Module, path: str) -> Any:
    """Return an attribute of a submodule by its path."""
    owner, _, name = path.rpartition(".")
    return getattr(root.get_submodule(owner), name)


def call_node(root: nn.Module, node: fx.Node, args: Any, kwargs: Any) -> Any:
    """Run one node with given arguments."""
    if node.op == "get_attr":
        return attribute(root, str(node.target))
    if node.op == "call_module":
        return root.get_submodule(str(node.target))(*args, **kwargs)
    if node.op == "call_method":
        return getattr(args[0], str(node.target))(*args[1:], **kwargs)
    assert callable(node.target)
    return node.target(*args, **kwargs)


def ancestors(nodes: Iterable[fx.Node]) -> set[fx.Node]:
    """Return the nodes and everything that they are computed from."""
    found: set[fx.Node] = set()
    stack = list(nodes)
    while stack:
        node = stack.pop()
        if node not in found:
            found.add(node)
            stack.extend(node.all_input_nodes)
    return found


def live_nodes(graph: fx.GraphModule) -> set[fx.Node]:
    """Find the nodes that the output depends on, including those that overwrite something."""
    return ancestors(node for node in graph.graph.nodes if node.op in ("output", "placeholder") or _writes(graph, node))


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


def check_overwritten(graph: nn.Module, node: fx.Node) -> None:
    """Refuse an operation that overwrites a value that is read again later: the graph records values, not memory."""
    if node.target is operator.setitem:
        raise Refused("it assigns to a part of a random value", "compute the parts and join them instead")
    if not _writes(graph, node) or not node.args or not isinstance(node.args[0], fx.Node):
        return
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    root = _viewed(node.args[0])
    aliases = [other for other in order if _viewed(other) is root]
    later = [user for alias in aliases for user in alias.users if order[user] > order[node]]
    if later:
        raise Refused(
            f"it overwrites its input in place, which {later[0].name!r} reads afterwards",
            "use the operation that returns a new tensor (inplace=False)",
        )


def _writes(graph: nn.Module, node: fx.Node) -> bool:
    """Return whether an operation overwrites its input."""
    if node.op == "call_module":
        return bool(getattr(graph.get_submodule(str(node.target)), "inplace", False))
    if node.op not in ("call_function", "call_method"):
        return False
    name = _called(node)
    inplace = node.target is operator.setitem or node.target in _INPLACE or bool(node.kwargs.get("inplace", False))
    return inplace or (name.endswith("_") and not name.endswith("__"))


def _viewed(node: fx.Node) -> fx.Node:
    while _called(node) in _VIEWS and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    return node


def reads_shape(node: fx.Node) -> bool:
    """Return whether a node reads a tensor's shape or type, not its values."""
    return _called(node) in _SHAPE_READERS


def shape_from_values(node: fx.Node, arguments: Sequence[Any]) -> bool:
    """Return whether the shape of a node's result depends on values, as that of ``x[x > 0]`` does."""
    if _called(node) not in ("getitem", "index"):
        return _called(node) in _SHAPED_BY_VALUES
    index = arguments[1] if isinstance(arguments[1], (tuple, list)) else (arguments[1],)
    return any(isinstance(part, Tensor) and part.dtype == torch.bool for part in index)


def without_tensors(value: Any) -> bool:
    """Return whether a value is something other than tensors: a number, a list of numbers, an array of numpy."""
    leaves = pytree.tree_leaves(value)
    return value is not None and bool(leaves) and not any(isinstance(leaf, Tensor) for leaf in leaves)
