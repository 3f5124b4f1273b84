"""In-place operations: accepted if nothing reads the old value afterwards, refused otherwise."""

from __future__ import annotations

import operator

from torch import fx, nn

from ._builder import Refused

__all__ = ["overwritten", "writes"]

_INPLACE = {operator.iadd, operator.isub, operator.imul, operator.itruediv, operator.ipow}
_VIEWS = {
    "view", "reshape", "flatten", "permute", "transpose", "movedim", "squeeze", "unsqueeze", "unflatten", "contiguous",
    "getitem", "select", "slice",
}  # fmt: skip


def overwritten(node: fx.Node, module: nn.Module | None) -> None:
    """Refuse an operation that overwrites a value that is read again later.

    The graph records values, not memory: after ``y = F.relu(x, inplace=True)`` a later ``x`` is the overwritten value,
    which tracing does not show.
    """
    if node.target is operator.setitem:
        raise Refused("it assigns to a part of a random value", "compute the parts and join them instead")
    if not writes(node, module) or not node.args or not isinstance(node.args[0], fx.Node):
        return
    order = {other: index for index, other in enumerate(node.graph.nodes)}
    root = _root(node.args[0])
    aliases = [other for other in order if _root(other) is root]
    later = [user for alias in aliases for user in alias.users if order[user] > order[node]]
    if later:
        raise Refused(
            f"it overwrites its input in place, which {later[0].name!r} reads afterwards",
            "use the operation that returns a new tensor (inplace=False)",
        )


def writes(node: fx.Node, module: nn.Module | None) -> bool:
    """Return whether an operation overwrites its input."""
    name = getattr(node.target, "__name__", str(node.target)).partition(".")[0]  # aten operators have an overload
    return (
        node.target is operator.setitem
        or bool(getattr(module, "inplace", False))
        or bool(node.kwargs.get("inplace", False))
        or (node.op == "call_function" and node.target in _INPLACE)
        or (node.op in ("call_function", "call_method") and name.endswith("_") and not name.endswith("__"))
    )


def _root(node: fx.Node) -> fx.Node:
    name = getattr(node.target, "__name__", str(node.target))
    while name in _VIEWS and node.args and isinstance(node.args[0], fx.Node):
        node = node.args[0]
        name = getattr(node.target, "__name__", str(node.target))
    return node
