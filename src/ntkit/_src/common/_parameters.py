"""How a layer's weight or bias comes from its parameter: the one place that reads parameters.

A tensor is used raw, or times a number in this library's NTK parametrisation (:class:`Scaled`), or something else computes
it: another parametrisation, a norm, a pruning mask. A tensor that something else computes is never treated as raw.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize
from torch.nn.utils.prune import BasePruningMethod
from torch.nn.utils.spectral_norm import SpectralNorm
from torch.nn.utils.weight_norm import WeightNorm

from ntkit.errors import InputError, InputTypeError

__all__ = [
    "ParameterSource",
    "Scaled",
    "check_module",
    "check_precision",
    "ntk_gains",
    "parameter_source",
    "read_weights_anew",
    "strip_ntk",
]


class Scaled(nn.Module):
    """The map from a raw parameter to the weight: times gain / sqrt(fan_in), w_std for a weight; b_std and 1 for a bias."""

    def __init__(self, gain: float, fan_in: int) -> None:
        super().__init__()
        self.gain = gain
        self.fan_in = fan_in
        self.divides = True

    @property
    def scale(self) -> float:
        """What the raw parameter is multiplied by."""
        return self.gain / math.sqrt(self.fan_in)

    def forward(self, raw: Tensor) -> Tensor:
        """Return the weight of a raw parameter."""
        return self.scale * raw

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Return the raw parameter of a weight; with gain zero any parameter gives zero, and the value stays as it is."""
        return weight / self.scale if self.scale and self.divides else weight

    # The gain is part of the function, so it is saved with the parameters: in float64, which a buffer would not keep.
    def get_extra_state(self) -> Tensor:
        """Return the gain, for ``state_dict``."""
        return torch.tensor(self.gain, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the gain from a ``state_dict``."""
        self.gain = float(state)

    def extra_repr(self) -> str:
        """Show the scale."""
        return f"gain={self.gain}, fan_in={self.fan_in}"


@dataclass(frozen=True)
class ParameterSource:
    """Where a layer's weight or bias comes from."""

    layer: nn.Module  # layer, name: the layer, and the name of its tensor
    name: str
    # The parameter that equals the tensor or of which it is a multiple; None if something else computes the
    # tensor.
    parameter: nn.Parameter | None
    scaling: Scaled | None = None  # the NTK parametrisation of the parameter; None if it is used raw
    # What else computes it, such as ``"a pruning mask (torch.nn.utils.prune)"``; empty if nothing does.
    computed_by: str = ""
    remedy: str = ""  # what to write so that it becomes a plain parameter again

    @property
    def value(self) -> Tensor:
        """The tensor that the forward pass uses."""
        value: Tensor = getattr(self.layer, self.name)
        return value

    @property
    def scale(self) -> float | None:
        """What the parameter is multiplied by; None if something else computes the tensor."""
        return None if self.parameter is None else 1.0 if self.scaling is None else self.scaling.scale


def parameter_source(layer: nn.Module, name: str) -> ParameterSource | None:
    """Return where the tensor ``name`` of a layer comes from; None if the layer has no such tensor."""
    own = layer._parameters.get(name)
    if own is not None:
        return ParameterSource(layer, name, own)
    if parametrize.is_parametrized(layer, name):
        return _parametrized(layer, name)
    if getattr(layer, name, None) is None:
        return None
    by, remedy = "code that sets it as a plain tensor", f"make layer.{name} an nn.Parameter"
    for hook in layer._forward_pre_hooks.values():
        if isinstance(hook, BasePruningMethod) and hook._tensor_name == name:
            by, remedy = "a pruning mask (torch.nn.utils.prune)", f"prune.remove(layer, {name!r})"
        elif isinstance(hook, (WeightNorm, SpectralNorm)) and hook.name == name:
            norm = "weight_norm" if isinstance(hook, WeightNorm) else "spectral_norm"
            by, remedy = f"torch.nn.utils.{norm}", f"remove_{norm}(layer, {name!r})"
    return ParameterSource(layer, name, None, computed_by=by, remedy=remedy)


def _parametrized(layer: nn.Module, name: str) -> ParameterSource:
    steps = _table(layer)[name]
    assert isinstance(steps, parametrize.ParametrizationList)
    scaling = steps[0]
    if len(steps) == 1 and isinstance(scaling, Scaled):
        original = steps.original
        assert isinstance(original, nn.Parameter)
        return ParameterSource(layer, name, original, scaling)
    kinds = ", ".join(type(step).__name__.lstrip("_") for step in steps)
    by = f"the parametrisation {kinds} (torch.nn.utils.parametrize)"
    remedy = f"torch.nn.utils.parametrize.remove_parametrizations(layer, {name!r})"
    return ParameterSource(layer, name, None, computed_by=by, remedy=remedy)


def _table(layer: nn.Module) -> nn.ModuleDict:
    """Return the parametrisations of a layer, by tensor."""
    assert isinstance(layer.parametrizations, nn.ModuleDict)
    return layer.parametrizations


def _scaled_tensors(module: nn.Module) -> Iterator[tuple[str, ParameterSource, Scaled]]:
    """Find every tensor in the NTK parametrisation: the layer's path, the source, and its scaling."""
    for path, layer in module.named_modules():
        for name in list(_table(layer)) if parametrize.is_parametrized(layer) else ():
            source = _parametrized(layer, name)
            if source.scaling is not None:
                yield path, source, source.scaling


def ntk_gains(module: nn.Module) -> dict[str, dict[str, float]]:
    """Return the gains of every layer in the NTK parametrisation by path, in the form of ``overrides``."""
    gains: dict[str, dict[str, float]] = {}
    for path, source, scaling in _scaled_tensors(module):
        gains.setdefault(path, {})["b_std" if "bias" in source.name else "w_std"] = scaling.gain
    return gains


def strip_ntk(module: nn.Module) -> nn.Module:
    """Remove the NTK parametrisation of a module in place, leaving plain weights that compute the same function."""
    # Collect all of them before removing the first: tied weights share their raw parameter.
    found = [(source, source.value.detach().clone()) for _, source, _ in _scaled_tensors(module)]
    for source, _ in found:
        _strip(source.layer, source.name, source)
    with torch.no_grad():
        for source, value in found:
            source.value.copy_(value)
    return module


def _strip(layer: nn.Module, name: str, source: ParameterSource) -> None:
    """Turn the raw parameter into a plain parameter of the layer again."""
    # This does not use ``remove_parametrizations``, which deletes the tensor's property from the layer's class; deep copies
    # share that class and would all break.
    table = _table(layer)
    if any(_parametrized(layer, other).scaling is None for other in table):
        parametrize.remove_parametrizations(layer, name)  # the user's own parametrisation stays
        return
    del table[name]
    if not len(table):
        del layer.parametrizations
        layer.__class__ = type(layer).__bases__[0]
    # setattr would fail: the class computes this name until the last tensor is unparametrised.
    layer._parameters[name] = source.parameter
    if isinstance(layer, nn.RNNBase) and not parametrize.is_parametrized(layer):
        layer._flat_weights = [getattr(layer, own) for own in layer._flat_weights_names]


def read_weights_anew(layer: nn.Module) -> None:
    """Let a parametrised recurrent layer compute its weights in every call; torch reads them from a list made once."""
    if isinstance(layer, nn.RNNBase):
        current = property(
            lambda self: [getattr(self, name) for name in self._flat_weights_names], lambda self, _: None
        )
        setattr(type(layer), "_flat_weights", current)  # noqa: B010  the class is this layer's own
        vars(layer).pop("_flat_weights", None)


def check_module(module: object) -> None:
    """Refuse anything but a module, and modules whose parameters have no shape or no values yet."""
    if not isinstance(module, nn.Module):
        raise InputTypeError(f"module must be a torch.nn.Module. Got {type(module).__name__}.")
    lazy = [
        name
        for name, tensor in (*module.named_parameters(), *module.named_buffers())
        if isinstance(tensor, (nn.UninitializedParameter, nn.UninitializedBuffer))
    ]
    if lazy:
        raise InputError(f"the lazy parameters {lazy} have no shape yet. Run the module once: module(x).")
    meta = [name for name, parameter in module.named_parameters() if parameter.is_meta]
    if meta:
        raise InputError(
            f"the parameters {meta} are on the meta device and have no values. Write module.to_empty(device=...) and draw them."
        )


def check_precision(module: nn.Module) -> None:
    """Refuse parameters of half precision: what is computed with them, and derivatives in them, has two or three digits."""
    for name, parameter in module.named_parameters():
        if parameter.is_floating_point() and parameter.dtype not in (torch.float32, torch.float64):
            raise InputTypeError(
                "the module's parameters must be float32 or float64: half precision cannot hold a kernel. "
                f"Got {parameter.dtype} in {name!r}. Write module.float()."
            )
