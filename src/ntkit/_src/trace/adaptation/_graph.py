"""Changes that need the graph of a forward pass: post-activation sums, functional pooling, layer scale."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.nn import functional as F

from .._nodes import ancestors, attribute, path_of, target_name
from ..matchers._registry import find, find_module
from ._layers import NO_MAXIMUM, Change
from ._proof import AdaptTracer, Swaps, WithChanges

_SUMS = {operator.add, operator.iadd, torch.add, "add", "add_"}
_PRODUCTS = {operator.mul, operator.imul, torch.mul, "mul", "mul_"}
_AVERAGES = {
    getattr(place, f"{kind}max_pool{n}d"): getattr(F, f"{kind}avg_pool{n}d")
    for place, kind in ((F, ""), (torch, ""), (F, "adaptive_"))
    for n in (1, 2, 3)
}
_POOL_ARGUMENTS = ("input", "kernel_size", "stride", "padding", "dilation", "ceil_mode", "return_indices")
_SHAPES = {"reshape", "view", "unsqueeze", "flatten", "expand", torch.reshape, torch.unsqueeze}

_PRE_ACTIVATION = (
    "an activation of a sum needs Gaussian terms, which an activated shortcut is not; the branches read the activation"
)


@dataclass(frozen=True)
class Rewritten:
    """A module whose graph was changed; the module given if nothing changed or its forward cannot be read."""

    module: nn.Module
    changes: tuple[Change, ...]  # in the order of the forward pass
    swaps: Swaps  # what each changed node computes, by its name in the graph before the change


def rewrite_graph(module: nn.Module) -> Rewritten:
    """Change the graph of a module's forward pass; the module's own layers may lose their ``inplace``."""
    try:
        graph = AdaptTracer().trace(module)
    except Exception:  # user code runs under proxies and may raise anything; tracing reports it later
        return Rewritten(module, (), {})
    traced = fx.GraphModule(module, graph, type(module).__name__)
    swaps: Swaps = {}
    changes = (
        *_average_pools(traced, swaps), *_without_layer_scale(traced, swaps), *_pre_activation(traced, swaps)
    )  # fmt: skip
    if not changes:
        return Rewritten(module, (), {})
    traced.graph.eliminate_dead_code()
    traced.recompile()
    return Rewritten(traced.eval(), changes, swaps)


def _average_pools(traced: fx.GraphModule, swaps: Swaps) -> list[Change]:
    changes = []
    for node in list(traced.graph.nodes):
        if node.op != "call_function" or node.target not in _AVERAGES:
            continue
        adaptive = "adaptive" in target_name(traced, node)
        names = ("input", "output_size", "return_indices") if adaptive else _POOL_ARGUMENTS
        given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
        if given.get("return_indices") or given.get("dilation", 1) not in (1, (1, 1), (1, 1, 1), [1, 1]):
            continue
        kept = ("output_size", "kernel_size", "stride", "padding", "ceil_mode")
        keywords = {name: given[name] for name in kept if name in given}
        if not adaptive:
            keywords["count_include_pad"] = False
        average = _AVERAGES[node.target]
        changes.append(Change(path_of(node), target_name(traced, node), average.__name__, NO_MAXIMUM))
        node.args, node.kwargs, node.target = (given["input"],), keywords, average
        swaps[node.name] = partial(_pooled, average, given["input"], keywords)
    return changes


def _pooled(average: Callable[..., Tensor], value: Any, keywords: dict[str, Any], run: WithChanges) -> Tensor:
    return average(run.values(value), **run.values(keywords))


def _without_layer_scale(traced: fx.GraphModule, swaps: Swaps) -> list[Change]:
    """Remove products with a trained factor per channel."""
    changes = []
    for node in list(traced.graph.nodes):
        if not _is(node, _PRODUCTS):
            continue
        factors = [arg for arg in node.args if isinstance(arg, fx.Node) and _per_channel(traced, arg) is not None]
        values = [arg for arg in node.args if isinstance(arg, fx.Node) and arg not in factors]
        if len(factors) == 1 and len(values) == 1 and _has_layer_before(traced, values[0]):
            reason = "a trained factor per channel multiplies random values; the layer before it has a trained weight already"
            changes.append(Change(str(_per_channel(traced, factors[0])), "layer scale", "nothing", reason))
            # A copy, as the product was a tensor of its own, which may be overwritten.
            node.op, node.target, node.args, node.kwargs = "call_function", torch.clone, (values[0],), {}
            swaps[node.name] = partial(WithChanges.values, arguments=values[0])
    return changes


def _per_channel(traced: fx.GraphModule, node: fx.Node) -> str | None:
    """Return the path of the parameter that a node is, possibly in another shape, if it has one entry per channel."""
    while _reshapes(node) and isinstance(node.args[0], fx.Node):
        node = node.args[0]
    if node.op != "get_attr":
        return None
    value = attribute(traced, str(node.target))
    scale = isinstance(value, nn.Parameter) and value.numel() > 1 and value.numel() == max(value.shape)
    return str(node.target) if scale else None


def _reshapes(node: fx.Node) -> bool:
    """Return whether a node only changes the shape of its first argument."""
    if not _is(node, {operator.getitem}):
        return _is(node, _SHAPES)
    index = node.args[1] if isinstance(node.args[1], tuple) else (node.args[1],)
    return all(part is None or part is Ellipsis or part == slice(None) for part in index)


def _pre_activation(traced: fx.GraphModule, swaps: Swaps) -> list[Change]:
    """Rewire activated sums to add values without activation: the shortcut carries the earlier sum, not its activation."""
    changes = []
    for node in list(traced.graph.nodes):
        if not _is(node, _SUMS) or not _activated(traced, node):
            continue
        taken_out = []
        arguments: list[Any] = list(node.args)
        operands = list(node.args)
        for index, operand in enumerate(node.args[:2]):
            if isinstance(operand, fx.Node):
                found = _activation_of(traced, operand)
                if found is not None:
                    arguments[index] = _before_activation(traced, *found, node)
                    operands[index] = partial(_raw, found[0].all_input_nodes[0], [link.name for link in found[1]])
                    taken_out.append(target_name(traced, found[0]))
        if taken_out:
            if node.target in (operator.iadd, "add_"):  # in place, it would overwrite the activation's input
                node.op, node.target = "call_function", torch.add
            swaps[node.name] = partial(_summed, tuple(operands), dict(node.kwargs))
            node.args = tuple(arguments)
            before = f"sum of activated values ({', '.join(dict.fromkeys(taken_out))})"
            changes.append(Change(path_of(node), before, "pre-activation residual", _PRE_ACTIVATION))
    return changes


def _raw(value: fx.Node, chain: list[str], run: WithChanges) -> Any:
    raw = run.values(value)
    for link in reversed(chain):
        raw = run.again(link, raw)
    return raw


def _summed(operands: tuple[Any, ...], keywords: dict[str, Any], run: WithChanges) -> Tensor:
    terms = [operand(run) if callable(operand) else run.values(operand) for operand in operands]
    return torch.add(*terms, **run.values(keywords))


def _activation_of(traced: fx.GraphModule, operand: fx.Node) -> tuple[fx.Node, list[fx.Node]] | None:
    """Return the last activation of an operand, and what comes after it from the last on; None without activation."""
    chain = []
    node = operand
    while _is_transparent(traced, node):
        chain.append(node)
        node = node.all_input_nodes[0]
    if not _is_activation(traced, node) or not _has_layer_before(traced, node.all_input_nodes[0]):
        return None
    return node, chain


def _before_activation(traced: fx.GraphModule, node: fx.Node, chain: list[fx.Node], before: fx.Node) -> fx.Node:
    """Return an operand of a sum without its last activation."""
    _out_of_place(traced, node)
    value = node.all_input_nodes[0]
    with traced.graph.inserting_before(before):
        for link in reversed(chain):
            source = link.all_input_nodes[0]
            copies = {source: value}
            value = traced.graph.node_copy(link, lambda n, copies=copies: copies.get(n, n))  # type: ignore[misc]
    return value


def _has_layer_before(traced: fx.GraphModule, node: fx.Node) -> bool:
    """Return whether a value comes from some layer: without one, removing the activation would leave raw data."""
    calls = [str(n.target) for n in ancestors([node]) if n.op == "call_module"]
    return any(next(traced.get_submodule(path).parameters(), None) is not None for path in calls)


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
    elif target_name(traced, node).endswith("_"):
        node.target = getattr(torch, target_name(traced, node).rstrip("_"))
    elif node.kwargs.get("inplace"):
        node.kwargs = {**node.kwargs, "inplace": False}
