"""Changes that need the graph of a forward pass: post-activation sums, functional pooling, layer scale."""

from __future__ import annotations

import operator
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ._adapt_layers import NO_MAXIMUM, Change
from ._registry import find, find_module

__all__ = ["rewrite_graph"]

_SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}
_PRODUCTS = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
_AVERAGES = {
    **{getattr(F, f"max_pool{n}d"): getattr(F, f"avg_pool{n}d") for n in (1, 2, 3)},
    **{getattr(torch, f"max_pool{n}d"): getattr(F, f"avg_pool{n}d") for n in (1, 2, 3)},
    **{getattr(F, f"adaptive_max_pool{n}d"): getattr(F, f"adaptive_avg_pool{n}d") for n in (1, 2, 3)},
}


class _Tracer(fx.Tracer):
    """Stops at modules that the registry knows, as well as at PyTorch's own."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return find_module(m) is not None or super().is_leaf_module(m, module_qualified_name)


def rewrite_graph(module: nn.Module) -> tuple[nn.Module, list[Change]]:
    """Return a module that runs the changed graph; the module itself if nothing changed or its forward cannot be read."""
    try:
        graph = _Tracer().trace(module)
    except Exception:  # user code runs under proxies and may raise anything; tracing reports it later
        return module, []
    traced = fx.GraphModule(module, graph, type(module).__name__)
    changes = [*_average_pools(traced), *_without_layer_scale(traced), *_pre_activation(traced)]
    if not changes:
        return module, []
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return traced.eval(), changes


def _average_pools(traced: fx.GraphModule) -> list[Change]:
    changes = []
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target not in _AVERAGES:
            continue
        names: tuple[str, ...] = ("input", "output_size", "return_indices")
        if "adaptive" in _name(node):
            given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
            keywords = {"output_size": given["output_size"]}
        else:
            names = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
            given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
            if given.get("dilation", 1) not in (1, (1, 1), (1, 1, 1), [1, 1]):
                continue
            keywords = {
                name: given[name] for name in ("kernel_size", "stride", "padding", "ceil_mode") if name in given
            }
            keywords["count_include_pad"] = False
        if given.get("return_indices"):
            continue
        average = _AVERAGES[node.target]
        changes.append(Change(_path(node), _name(node), average.__name__, NO_MAXIMUM))
        node.args, node.kwargs, node.target = (given["input"],), keywords, average
    return changes


def _without_layer_scale(traced: fx.GraphModule) -> list[Change]:
    """Remove products with a trained factor per channel."""
    changes = []
    for node in list(traced.graph.nodes):
        if not _is(node, _PRODUCTS):
            continue
        factors = [arg for arg in node.args if isinstance(arg, fx.Node) and _per_channel(traced, arg)]
        values = [arg for arg in node.args if isinstance(arg, fx.Node) and arg not in factors]
        if len(factors) == 1 and len(values) == 1:
            changes.append(
                Change(
                    str(factors[0].target),
                    "layer scale",
                    "nothing",
                    "a trained factor per channel multiplies random values; the layer before it has a trained weight already",
                )
            )
            node.replace_all_uses_with(values[0])
            traced.graph.erase_node(node)
    return changes


def _per_channel(traced: fx.GraphModule, node: fx.Node) -> bool:
    if node.op != "get_attr":
        return False
    owner, _, name = str(node.target).rpartition(".")
    value = getattr(traced.get_submodule(owner), name)
    return isinstance(value, nn.Parameter) and value.numel() > 1 and value.numel() == max(value.shape)


def _pre_activation(traced: fx.GraphModule) -> list[Change]:
    """Rewire activated sums to add values without activation: the shortcut carries the earlier sum, not its activation."""
    changes = []
    for node in list(traced.graph.nodes):
        if not _is(node, _SUMS) or not _activated(traced, node):
            continue
        taken_out = []
        arguments: list[Any] = list(node.args)
        for index, operand in enumerate(node.args[:2]):
            if isinstance(operand, fx.Node):
                arguments[index], names = _before_activation(traced, operand, node)
                taken_out += names
        if taken_out:
            if node.target in (operator.iadd, "add_"):  # in place, it would overwrite the activation's input
                node.op, node.target = "call_function", torch.add
            node.args = tuple(arguments)
            changes.append(
                Change(
                    _path(node),
                    f"sum of activated values ({', '.join(dict.fromkeys(taken_out))})",
                    "pre-activation residual",
                    "an activation of a sum needs Gaussian terms, and an activated shortcut is none; the branches still read "
                    "the activation",
                )
            )
    return changes


def _before_activation(traced: fx.GraphModule, operand: fx.Node, before: fx.Node) -> tuple[fx.Node, list[str]]:
    """Return an operand without its last activation, and that activation's name."""
    chain = []
    node = operand
    while _is_transparent(traced, node):
        chain.append(node)
        node = node.all_input_nodes[0]
    if not _is_activation(traced, node) or not _has_layer_before(traced, node.all_input_nodes[0]):
        return operand, []
    _out_of_place(traced, node)
    value = node.all_input_nodes[0]
    with traced.graph.inserting_before(before):
        for link in reversed(chain):
            source = link.all_input_nodes[0]
            copies = {source: value}
            value = traced.graph.node_copy(link, lambda n, copies=copies: copies.get(n, n))  # type: ignore[misc]
    return value, [_kind(traced, node)]


def _has_layer_before(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a value comes from some layer: without one, removing the activation would leave raw data."""
    seen, stack = set(), [node]
    while stack:
        current = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        if current.op == "call_module" and any(True for _ in traced.get_submodule(str(current.target)).parameters()):
            return True
        stack.extend(current.all_input_nodes)
    return False


def _activated(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a sum reaches an activation through nothing that would make it Gaussian."""
    seen, stack = set(), list(node.users)
    while stack:
        user = stack.pop()
        if user in seen:
            continue
        seen.add(user)
        if _is_activation(traced, user):
            return True
        if _is_transparent(traced, user) or _is(user, _SUMS) or _family(traced, user) == "normalisation":
            stack.extend(user.users)
    return False


def _is(node: fx.Node, targets: set[Any]) -> bool:
    return node.op in ("call_function", "call_method") and node.target in targets


def _family(traced: fx.GraphModule, node: fx.Node) -> str:
    """Return a node's family in the table of supported layers; empty if it has none."""
    if node.op == "call_module":
        known = find_module(traced.get_submodule(str(node.target)))
        return known.matcher.family if known is not None else ""
    matcher = find(node.target) if node.op in ("call_function", "call_method") else None
    return matcher.family if matcher is not None else ""


def _is_activation(traced: fx.GraphModule, node: fx.Node) -> bool:
    return _family(traced, node).startswith("activation")


def _is_transparent(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a node keeps Gaussian values Gaussian and has no weights, so that an activation below can be removed."""
    return _family(traced, node) in ("pooling", "no operation")


def _out_of_place(traced: fx.GraphModule, node: fx.Node) -> None:
    """Prevent an activation from overwriting what the shortcut now reads."""
    if node.op == "call_module":
        layer: Any = traced.get_submodule(str(node.target))
        if getattr(layer, "inplace", False):
            layer.inplace = False
    elif isinstance(node.target, str):
        node.target = node.target.rstrip("_")
    elif _name(node).endswith("_"):
        node.target = getattr(torch, _name(node).rstrip("_"))
    elif node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}


def _name(node: fx.Node) -> str:
    return str(getattr(node.target, "__name__", node.target))


def _kind(traced: fx.GraphModule, node: fx.Node) -> str:
    return type(traced.get_submodule(str(node.target))).__name__ if node.op == "call_module" else _name(node)


def _path(node: fx.Node) -> str:
    stack = node.meta.get("nn_module_stack") or {}
    inner = [str(entry[0] if isinstance(entry, tuple) else entry) for entry in stack.values()]
    return (inner[-1] if inner else "") or "forward"
