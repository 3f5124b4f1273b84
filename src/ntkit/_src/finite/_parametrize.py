"""The NTK parametrisation: standard normal parameters, scaled in the forward pass."""

from __future__ import annotations

from collections.abc import Mapping

from torch import Tensor, nn
from torch.nn.utils import parametrize

from ntkit._src.common import Scaled, check_module, strip_ntk
from ntkit._src.trace import GainRule
from ntkit.errors import InputError

from ._gain_tensors import GainTensor, check_overrides, check_readable, gain_tensors

_DIGITS = 1e-12


def parametrize_ntk(
    module: nn.Module,
    w_std: float | Tensor | None = None,
    b_std: float | Tensor | None = None,
    overrides: Mapping[str, Mapping[str, float | Tensor]] | None = None,
) -> nn.Module:
    r"""Put a module into the NTK parametrisation, in place.

    Every ``Linear`` and ``Conv`` layer computes with :math:`W = \frac{w}{\sqrt{fan\_in}} \omega` and
    :math:`b = b_{std}\, \beta`, and the parameters trained are :math:`\omega` and :math:`\beta`, standard normal at
    initialisation (Jacot et al. 2018; Arora et al. 2019, section 3). That is what :func:`ntkit.infinite_width` assumes with
    the same ``w_std``, ``b_std`` and ``overrides``: the empirical kernel of such a network tends to it as its width grows.

    The projections of ``MultiheadAttention`` are scaled likewise. All other parameters (norms, embeddings, your own) stay
    unchanged. The function that the module computes does not change, except that tensors with gain zero are switched off;
    :func:`ntkit.initialize` draws standard normals. The raw parameters are ``layer.parametrizations.weight.original``.

    Parameters
    ----------
    module
        The module, changed in place. You can still deep-copy it and save its ``state_dict``, which also holds the gains; torch
        cannot pickle a parametrised module as a whole.
    w_std, b_std
        Gains of weights and biases. Default None: sqrt(2) and 0.
    overrides
        Gains of individual layers by path: ``{"4": {"w_std": 1.0}}``.

    Returns
    -------
    nn.Module
        ``module``.

    Raises
    ------
    InputError
        If a layer is already parametrised, or shares its weight with a layer of another scale.

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
    return register_scalings(module, w_std, b_std, overrides, drawn_afterwards=False)


def register_scalings(
    module: nn.Module,
    w_std: float | Tensor | None,
    b_std: float | Tensor | None,
    overrides: Mapping[str, Mapping[str, float | Tensor]] | None,
    drawn_afterwards: bool,
) -> nn.Module:
    """Put a module into the NTK parametrisation, in place.

    Its function stays the same, unless its parameters are redrawn afterwards: then layers may share a parameter that they
    scale differently, or that one of them does not scale, such as an embedding that is also the output layer.
    """
    tensors = gain_tensors(module)
    rule = GainRule(w_std, b_std, "ntk", check_overrides(overrides, tensors))
    _check_plain(tensors)
    scalings = {id(tensor): _scaling(tensor, rule) for tensor in tensors}
    shared = {id(tensor) for tensor in tensors} if drawn_afterwards else _check_shared(module, tensors, scalings)
    for tensor in tensors:
        scaling = scalings[id(tensor)]
        scaling.divides = id(tensor) not in shared  # tied weights are one parameter, divided once
        parametrize.register_parametrization(tensor.layer, tensor.name, scaling)
        scaling.divides = True
    return module


def remove_ntk(module: nn.Module) -> nn.Module:
    """Remove the NTK parametrisation of a module in place, leaving plain weights that compute the same function.

    Examples
    --------
    >>> import ntkit
    >>> from torch import nn
    >>> net = ntkit.parametrize_ntk(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1)))
    >>> sorted(dict(ntkit.remove_ntk(net).named_parameters()))
    ['0.bias', '0.weight', '2.bias', '2.weight']
    """
    check_module(module)
    return strip_ntk(module)


def _scaling(tensor: GainTensor, rule: GainRule) -> Scaled:
    return Scaled(tensor.gain(rule), 1 if tensor.is_bias else tensor.fan_in)


def _check_plain(tensors: list[GainTensor]) -> None:
    for tensor in tensors:
        if tensor.source.scaling is not None:
            raise InputError(
                f"layer {tensor.path!r} is already in the NTK parametrisation. Write ntkit.remove_ntk(module) first."
            )
    check_readable(tensors, "put into the NTK parametrisation")


def _check_shared(module: nn.Module, tensors: list[GainTensor], scalings: dict[int, Scaled]) -> set[int]:
    """Find the second and later owners of a tied parameter; all owners must scale it equally."""
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
                f"{mine:.6g}. Give each its own weight, or gains that make the scales equal."
            )
    scaled = {(id(tensor.layer), tensor.name) for tensor in tensors}
    for path, layer in module.named_modules():
        for name, parameter in layer.named_parameters(recurse=False):
            if id(parameter) in first and (id(layer), name) not in scaled:
                raise InputError(
                    f"layer {first[id(parameter)].path!r} shares its {first[id(parameter)].name} with {path!r}, which is not "
                    "scaled. Give it its own weight."
                )
    return shared
