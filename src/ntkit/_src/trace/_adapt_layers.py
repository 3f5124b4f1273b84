"""Layers without a limit and their replacements."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

__all__ = ["NO_MAXIMUM", "Change", "Norm", "replace_layers"]

Norm = Literal["none", "layer", "group"]
NO_MAXIMUM = "the maximum of correlated Gaussians has no closed-form covariance; the average over the same window has"

_MAX_POOLS: dict[type[nn.Module], type[nn.Module]] = {
    nn.MaxPool1d: nn.AvgPool1d,
    nn.MaxPool2d: nn.AvgPool2d,
    nn.MaxPool3d: nn.AvgPool3d,
}
_ADAPTIVE_MAX_POOLS: dict[type[nn.Module], type[nn.Module]] = {
    nn.AdaptiveMaxPool1d: nn.AdaptiveAvgPool1d,
    nn.AdaptiveMaxPool2d: nn.AdaptiveAvgPool2d,
    nn.AdaptiveMaxPool3d: nn.AdaptiveAvgPool3d,
}
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


def replace_layers(module: nn.Module, norm: Norm) -> tuple[nn.Module, list[Change]]:
    """Replace submodules in place, including the module itself; a layer in several places is replaced in all of them."""
    found: dict[nn.Module, nn.Module] = {}
    changes = []
    for path, layer in module.named_modules():
        replacement = _replacement(layer, norm)
        if replacement is not None:
            found[layer], reason = replacement
            after = "nothing" if isinstance(found[layer], nn.Identity) else type(found[layer]).__name__
            changes.append(Change(path or "the module", type(layer).__name__, after, reason))
    for parent in list(module.modules()):
        for name, child in list(parent.named_children()):
            if child in found:
                setattr(parent, name, found[child])
    return found.get(module, module), changes


def _replacement(layer: nn.Module, norm: Norm) -> tuple[nn.Module, str] | None:
    average = _MAX_POOLS.get(type(layer))
    if average is not None:
        return _average_pool(layer, average)
    adaptive = _ADAPTIVE_MAX_POOLS.get(type(layer))
    if adaptive is not None:
        return None if layer.return_indices else (adaptive(layer.output_size), NO_MAXIMUM)
    if isinstance(layer, nn.modules.batchnorm._BatchNorm):
        return _norm(layer, norm)
    if isinstance(layer, nn.modules.dropout._DropoutNd) and layer.p > 0:
        return nn.Identity(), "dropout is off in evaluation, and random in training"
    if type(layer).__name__ in _STOCHASTIC_DEPTH:
        return nn.Identity(), "stochastic depth is off in evaluation, and random in training"
    return None


def _average_pool(layer: Any, average: type[nn.Module]) -> tuple[nn.Module, str] | None:
    dilation = layer.dilation if isinstance(layer.dilation, tuple) else (layer.dilation,)
    if layer.return_indices or any(step != 1 for step in dilation):
        return None  # an average has no indices and no dilation: the refusal names the layer
    # A maximum never picks the padding, so the average excludes it.
    pool = average(layer.kernel_size, layer.stride, layer.padding, layer.ceil_mode, count_include_pad=False)
    return pool, NO_MAXIMUM


def _norm(layer: nn.modules.batchnorm._BatchNorm, norm: Norm) -> tuple[nn.Module, str]:
    reason = "its statistics couple each input with the rest of the batch"
    if norm == "none":
        return nn.Identity(), reason
    channels = layer.num_features
    groups = 1
    if norm == "group":  # one channel per group would be instance norm, which has no limit
        groups = max(g for g in range(1, min(32, max(channels // 2, 1)) + 1) if channels % g == 0)
    # Without a trained weight and bias: a trained weight on one term of a residual sum has no rule.
    return nn.GroupNorm(
        groups, channels, eps=layer.eps, affine=False
    ), f"{reason}; those over channels and positions do not"
