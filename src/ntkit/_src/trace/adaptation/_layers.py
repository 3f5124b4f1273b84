"""Layers without a limit and their replacements."""

from __future__ import annotations

import copy
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, fx, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.nn.modules.pooling import _AdaptiveMaxPoolNd
from torch.nn.utils.parametrize import is_parametrized

from ntkit.errors import Problem

from .._builder import EMPIRICAL

Norm = Literal["none", "layer", "group"]
NO_MAXIMUM = "the maximum of correlated Gaussians has no closed-form covariance; the average over the same window has"

_MAX_POOLS: dict[type[nn.Module], type[nn.Module]] = {
    getattr(nn, f"{kind}MaxPool{n}d"): getattr(nn, f"{kind}AvgPool{n}d") for kind in ("", "Adaptive") for n in (1, 2, 3)
}
_BATCH_NORMS = (nn.BatchNorm1d, nn.BatchNorm2d, nn.BatchNorm3d, nn.SyncBatchNorm)
_DROPOUTS = (nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout)
# Stochastic depth is not in torch.nn: it is recognised by its names in torchvision and timm.
_STOCHASTIC_DEPTH = ("StochasticDepth", "DropPath")


@dataclass(frozen=True)
class Change:
    """One change that gave a module a limit.

    Attributes
    ----------
    path
        Path of the layer in the module.
    before, after
        The layer or operation, and its replacement.
    reason
        Why.
    """

    path: str
    before: str
    after: str
    reason: str

    def __str__(self) -> str:
        return f"{self.path}: {self.before} -> {self.after}: {self.reason}"


@dataclass(frozen=True)
class Swap:
    """What a replacement changes inside a layer: calls of one function of torch become calls of another module."""

    function: str  # such as ``"batch_norm"``; empty if the layer does nothing in evaluation mode
    instead: nn.Module  # takes the function's first argument


@dataclass(frozen=True)
class Replaced:
    """A module with replaced layers."""

    module: nn.Module  # changed in place; another one if it was replaced itself
    changes: tuple[Change, ...]  # in the order of the module's layers
    swaps: dict[str, Swap]  # what each change does inside the layer, by its path
    kept: dict[str, Problem]  # layers of the same families that had to stay, by path, with the reason


@dataclass(frozen=True)
class _Replacement:
    layer: nn.Module
    after: str
    reason: str
    swap: Swap


class LeftOut(nn.Identity):
    """A copy of the input in place of a layer left out: an in-place activation after it would overwrite what a shortcut reads."""

    def forward(self, input: Tensor) -> Tensor:  # the name of nn.Identity
        """Return a copy."""
        return input.clone()


def replace_layers(module: nn.Module, norm: Norm) -> Replaced:
    """Replace submodules in place, including the module itself; a layer in several places is replaced in all of them."""
    found: dict[nn.Module, nn.Module] = {}
    changes: list[Change] = []
    swaps: dict[str, Swap] = {}
    kept: dict[str, Problem] = {}
    for path, layer in reversed(list(module.named_modules())):  # a layer's own layers first
        for name, child in layer._modules.items():
            if child in found:
                setattr(layer, name, found[child])
        replacement = _replacement(layer, norm)
        if isinstance(replacement, str):
            kept[path] = Problem(
                path or "the module", type(layer).__name__, replacement,
                f"write it as the layer of torch.nn, followed by what it adds; or {EMPIRICAL}",
            )  # fmt: skip
        elif replacement is not None:
            found[layer], swaps[path] = replacement.layer, replacement.swap
            changes.append(Change(path or "the module", type(layer).__name__, replacement.after, replacement.reason))
    return Replaced(found.get(module, module), tuple(reversed(changes)), swaps, kept)


def _replacement(layer: nn.Module, norm: Norm) -> _Replacement | str | None:
    """Return a layer's replacement, the reason why it has none, or None if it needs none."""
    if isinstance(layer, _BatchNorm):
        return _lost(layer) or _without_batch_norm(layer, norm)
    for kind, average in _MAX_POOLS.items():
        if isinstance(layer, kind):
            pool = _average_pool(layer, average)
            if pool is None:
                return None  # an average has no indices and no dilation: the refusal names the layer
            own = "" if _own_forward(layer, (kind,)) else "its forward is not that of the layer of torch.nn"
            function = kind.__name__.replace("AdaptiveMaxPool", "adaptive_max_pool").replace("MaxPool", "max_pool")
            return _lost(layer) or own or _Replacement(pool, type(pool).__name__, NO_MAXIMUM, Swap(function, pool))
    dropout = isinstance(layer, _DropoutNd) and layer.p > 0 and _own_forward(layer, _DROPOUTS)
    if (dropout or type(layer).__name__ in _STOCHASTIC_DEPTH) and not _lost(layer):
        what = "dropout" if dropout else "stochastic depth"
        reason = f"{what} is off in evaluation, and random in training"
        return _Replacement(nn.Identity(), "nothing", reason, Swap("", nn.Identity()))
    return None


def _lost(layer: nn.Module) -> str:
    """Say what a replacement would lose: what was attached to the layer itself; empty if nothing."""
    hooks = (layer._forward_pre_hooks, layer._forward_hooks, layer._backward_pre_hooks, layer._backward_hooks)
    if any(hooks):
        return "it has hooks, which a replacement would lose"
    if is_parametrized(layer):
        return "its parameters are parametrised, which a replacement would lose"
    return "it has a forward of its own, set on the layer" if "forward" in vars(layer) else ""


def _own_forward(layer: nn.Module, kinds: tuple[type[nn.Module], ...]) -> bool:
    """Return whether a layer's forward is that of a class of torch.nn, not that of a subclass."""
    return any(type(layer).forward is kind.forward for kind in kinds)


def _average_pool(layer: Any, average: type[nn.Module]) -> nn.Module | None:
    if isinstance(layer, _AdaptiveMaxPoolNd):
        return None if layer.return_indices else average(layer.output_size)
    dilation = layer.dilation if isinstance(layer.dilation, tuple) else (layer.dilation,)
    if layer.return_indices or any(step != 1 for step in dilation):
        return None
    # A maximum never picks the padding, so the average excludes it.
    return average(layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, count_include_pad=False)


def _without_batch_norm(layer: _BatchNorm, norm: Norm) -> _Replacement | str:
    instead = _norm(layer, norm)
    after = "nothing" if isinstance(instead, LeftOut) else type(instead).__name__
    reason = "its statistics couple each input with the rest of the batch"
    if norm != "none":
        reason += "; those over channels and positions do not"
    if layer.affine:
        reason += "; its weight and bias go with it"
    swap = Swap("batch_norm", instead)
    if _own_forward(layer, _BATCH_NORMS):
        return _Replacement(instead, after, reason, swap)
    rest = _rest(layer, instead)
    if rest is None:
        return "a batch norm whose forward is its own and could not be read, so that nothing says what must stay of it"
    without = "without its norm" if norm == "none" else f"with {after}"
    return _Replacement(rest, f"{type(layer).__name__} {without}", reason, swap)


def _norm(layer: _BatchNorm, norm: Norm) -> nn.Module:
    if norm == "none":
        return LeftOut()
    channels = layer.num_features
    groups = 1
    if norm == "group":  # one channel per group would be instance norm, which has no limit
        groups = max(g for g in range(1, min(32, max(channels // 2, 1)) + 1) if channels % g == 0)
    # Without a trained weight and bias: a trained weight on one term of a residual sum has no rule.
    return nn.GroupNorm(groups, channels, eps=layer.eps, affine=False)


class _Inside(fx.Tracer):
    """Traces a layer's own forward, with calls of its layers as they are."""

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True


def _rest(layer: _BatchNorm, instead: nn.Module) -> nn.Module | None:
    """Return the forward of a subclass of batch norm (timm's ``BatchNormAct2d``) with another norm; None if it cannot be read."""
    owner = copy.deepcopy(layer)
    # A proxy does not know its number of dimensions.
    owner._check_input_dim = lambda input: None  # type: ignore[method-assign]
    try:
        graph = _Inside().trace(owner)
    except Exception:  # the layer's own code runs under proxies and may raise anything
        return None
    calls = [node for node in graph.nodes if getattr(node.target, "__name__", "") == "batch_norm"]
    if len(calls) != 1 or calls[0].op != "call_function":
        return None
    call = calls[0]
    value = call.args[0] if call.args else call.kwargs["input"]
    name = next(name for name in ("norm", "norm_", "norm__") if not hasattr(owner, name))
    owner.add_module(name, instead)
    with graph.inserting_before(call):
        call.replace_all_uses_with(graph.call_module(name, (value,)))
    graph.erase_node(call)
    for node in reversed(list(graph.nodes)):  # assertions on the input's shape, and the norm's parameters
        if node.target is torch._assert or (not node.users and node.op in ("call_function", "call_method", "get_attr")):
            graph.erase_node(node)
    return fx.GraphModule(owner, graph, type(layer).__name__).eval()
