"""The NTK parametrisation: standard normal parameters, scaled in the forward pass."""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils import parametrize

from ntkit.errors import InputError
from ntkit.trace import B_STD, W_STD, GainRule

from ._gain_tensors import GainTensor, check_module, check_overrides, gain_tensors

__all__ = ["Scaled", "ntk_gains", "ntk_scaling", "parametrize_ntk", "remove_ntk"]

_DIGITS = 1e-12


class Scaled(nn.Module):
    """The map from a raw parameter to the weight that the layer uses: multiplication by gain / sqrt(fan_in).

    Attributes
    ----------
    gain
        w_std of a weight, b_std of a bias.
    fan_in
        Inputs of each output; 1 for a bias.
    """

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
        """Give the weight of a raw parameter."""
        return self.scale * raw

    def right_inverse(self, weight: Tensor) -> Tensor:
        """Give the raw parameter of a weight; with gain zero every one gives zero, and the value is kept as it is."""
        return weight / self.scale if self.scale and self.divides else weight

    # The gain is part of the function, so it is saved with the parameters: as float64, which a buffer would not stay.
    def get_extra_state(self) -> Tensor:
        """Give the gain, for ``state_dict``."""
        return torch.tensor(self.gain, dtype=torch.float64)

    def set_extra_state(self, state: Tensor) -> None:
        """Take the gain from a ``state_dict``."""
        self.gain = float(state)

    def extra_repr(self) -> str:
        """Show the scale."""
        return f"gain={self.gain}, fan_in={self.fan_in}"


def parametrize_ntk(
    module: nn.Module,
    w_std: float | Tensor = W_STD,
    b_std: float | Tensor = B_STD,
    overrides: Mapping[str, Mapping[str, float | Tensor]] | None = None,
) -> nn.Module:
    r"""Put a module into the NTK parametrisation, in place.

    Every ``Linear`` and ``Conv`` layer computes with :math:`W = \frac{w}{\sqrt{fan\_in}} \omega` and
    :math:`b = b_{std}\, \beta`, and the parameters trained are :math:`\omega` and :math:`\beta`, standard normal at
    initialisation (Jacot et al. 2018; Arora et al. 2019, section 3). That is what :func:`ntkit.infinite_width` assumes with
    the same ``w_std``, ``b_std`` and ``overrides``: the empirical kernel of such a network tends to it as its width grows.

    The projections of ``MultiheadAttention`` are scaled likewise. All other parameters (norms, embeddings, your own) stay as
    they are. The function that the module computes does not change, except that what has gain zero is switched off;
    :func:`ntkit.initialize` draws standard normals. The raw parameters are ``layer.parametrizations.weight.original``.

    Parameters
    ----------
    module
        Changed in place. It stays safe to deep-copy and to save by its ``state_dict``, which holds the gains as well; torch
        does not pickle parametrised modules whole.
    w_std, b_std
        Gains of weights and biases.
    overrides
        The gains of single layers by path: ``{"4": {"w_std": 1.0}}``.

    Returns
    -------
    nn.Module
        ``module``.

    Raises
    ------
    InputError
        If a layer is parametrised already, or shares its weight with a layer of another scale.

    See Also
    --------
    remove_ntk : back to plain weights.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> net = nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))
    >>> net = ntkit.initialize(ntkit.parametrize_ntk(net), generator=torch.Generator().manual_seed(0))
    >>> raw = net[2].parametrizations.weight.original
    >>> torch.equal(net[2].weight, (2 / 8) ** 0.5 * raw)
    True
    """
    check_module(module)
    tensors = gain_tensors(module)
    rule = GainRule(w_std, b_std, "ntk", check_overrides(overrides, tensors))
    _check_plain(tensors)
    scalings = {id(tensor): _scaling(tensor, rule) for tensor in tensors}
    shared = _check_shared(module, tensors, scalings)
    for tensor in tensors:
        scaling = scalings[id(tensor)]
        scaling.divides = id(tensor) not in shared  # tied weights are one parameter, divided once
        parametrize.register_parametrization(tensor.layer, tensor.name, scaling)
        scaling.divides = True
    return module


def remove_ntk(module: nn.Module) -> nn.Module:
    """Take the NTK parametrisation off a module, in place: plain weights that compute the same function.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> net = ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)))
    >>> sorted(dict(ntkit.remove_ntk(net).named_parameters()))
    ['0.bias', '0.weight', '2.bias', '2.weight']
    """
    check_module(module)
    found = [tensor for tensor in gain_tensors(module) if ntk_scaling(tensor) is not None]
    # All of them before the first is taken off: tied weights share their raw parameter.
    values = [tensor.value.detach().clone() for tensor in found]
    for tensor in found:
        _remove(tensor)
    with torch.no_grad():
        for tensor, value in zip(found, values, strict=True):
            tensor.value.copy_(value)
    return module


def _remove(tensor: GainTensor) -> None:
    """Make the raw parameter the layer's own again.

    Not by ``remove_parametrizations``: it takes the tensor's name from the layer's class, which deep copies share, and so
    would break every copy.
    """
    layer, table = tensor.layer, tensor.layer.parametrizations
    assert isinstance(table, nn.ModuleDict)
    if len(table) > sum(isinstance(entry[-1], Scaled) for entry in table.values()):  # type: ignore[index]
        parametrize.remove_parametrizations(layer, tensor.name)  # a parametrisation of the user's stays
        return
    original = raw_parameter(tensor)
    del table[tensor.name]
    if not len(table):
        del layer.parametrizations
        layer.__class__ = type(layer).__bases__[0]
    # Not by setattr: until the last tensor is taken off, the class computes this name.
    layer._parameters[tensor.name] = original  # type: ignore[assignment]


def ntk_scaling(tensor: GainTensor) -> Scaled | None:
    """Give the scaling of a weight or bias that is in the NTK parametrisation, None for a plain one."""
    if not parametrize.is_parametrized(tensor.layer, tensor.name):
        return None
    last = _parametrizations(tensor)[-1]
    return last if isinstance(last, Scaled) else None


def ntk_gains(module: nn.Module) -> dict[str, dict[str, float]]:
    """Give the gains of every layer in the NTK parametrisation by path, in the form of ``overrides``."""
    gains: dict[str, dict[str, float]] = {}
    for tensor in gain_tensors(module):
        scaling = ntk_scaling(tensor)
        if scaling is not None:
            gains.setdefault(tensor.path, {})["b_std" if tensor.is_bias else "w_std"] = scaling.gain
    return gains


def raw_parameter(tensor: GainTensor) -> Tensor:
    """Give the parameter itself: the raw one where it is parametrised."""
    if parametrize.is_parametrized(tensor.layer, tensor.name):
        original: Tensor = _parametrizations(tensor).original
        return original
    return tensor.value


def _parametrizations(tensor: GainTensor) -> parametrize.ParametrizationList:
    table = tensor.layer.parametrizations
    assert isinstance(table, nn.ModuleDict)
    found = table[tensor.name]
    assert isinstance(found, parametrize.ParametrizationList)
    return found


def _scaling(tensor: GainTensor, rule: GainRule) -> Scaled:
    return Scaled(tensor.gain(rule), 1 if tensor.is_bias else tensor.fan_in)


def _check_plain(tensors: list[GainTensor]) -> None:
    for tensor in tensors:
        if not parametrize.is_parametrized(tensor.layer, tensor.name):
            continue
        if ntk_scaling(tensor) is not None:
            raise InputError(
                f"layer {tensor.path!r} is in the NTK parametrisation already. Write ntkit.remove_ntk(module) first."
            )
        raise InputError(
            f"the {tensor.name} of layer {tensor.path!r} has a parametrisation of its own already. "
            "Remove it first: torch.nn.utils.parametrize.remove_parametrizations(layer, name)."
        )


def _check_shared(module: nn.Module, tensors: list[GainTensor], scalings: dict[int, Scaled]) -> set[int]:
    """Find the second and later owners of a tied parameter; all owners must scale it alike."""
    first: dict[int, GainTensor] = {}
    shared: set[int] = set()
    for tensor in tensors:
        other = first.setdefault(id(tensor.value), tensor)
        if other is tensor:
            continue
        shared.add(id(tensor))
        mine, its = scalings[id(tensor)].scale, scalings[id(other)].scale
        if abs(mine - its) > _DIGITS * its:
            raise InputError(
                f"layers {other.path!r} and {tensor.path!r} share their {tensor.name}, but would scale it by {its:.6g} and "
                f"{mine:.6g}. Give each a weight of its own, or gains that make the scales equal."
            )
    scaled = {(id(tensor.layer), tensor.name) for tensor in tensors}
    for path, layer in module.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if id(parameter) in first and (id(layer), name) not in scaled:
                raise InputError(
                    f"layer {first[id(parameter)].path!r} shares its {first[id(parameter)].name} with {path!r}, which is not "
                    "scaled. Give it a weight of its own."
                )
    return shared
