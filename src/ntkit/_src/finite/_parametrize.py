"""The NTK parametrisation, standard normal parameters scaled in the forward pass, and the tensors of a module that have gains."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn
from torch.nn.utils import parametrize

from ntkit._src.common import (
    ParameterSource,
    Scaled,
    check_module,
    parameter_source,
    read_weights_anew,
    shown,
    strip_ntk,
)
from ntkit._src.kernels.finite_network import LAYERS, TRANSPOSED
from ntkit._src.trace import GainRule
from ntkit.errors import InputError, InputTypeError

_ATTENTION_WEIGHTS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight")


@dataclass(frozen=True)
class GainTensor:
    """One weight or bias that is drawn with a gain."""

    path: str  # the layer's path in the module, as used in ``overrides``
    layer: nn.Module
    name: str  # the tensor's name in the layer
    fan_in: int  # number of inputs per output: features, or channels of a group times positions of the window
    is_bias: bool

    @property
    def source(self) -> ParameterSource:
        """Where the tensor comes from."""
        source = parameter_source(self.layer, self.name)
        assert source is not None
        return source

    @property
    def parameter(self) -> nn.Parameter:
        """The parameter itself: the raw one if it is scaled."""
        parameter = self.source.parameter
        assert parameter is not None  # check_readable
        return parameter

    def gain(self, rule: GainRule) -> float:
        """Return w_std or b_std of this tensor."""
        gains = rule(self.path, self.fan_in, True, True, True)
        return float(gains.b_std if self.is_bias else gains.w_std)

    def std(self, gain: float) -> float:
        """Return the standard deviation for a gain: w_std / sqrt(fan_in), or b_std."""
        return gain if self.is_bias else gain / self.fan_in**0.5


def gain_tensors(module: nn.Module) -> list[GainTensor]:
    """List every tensor that has a gain, each layer once, in the order of the module."""
    return [tensor for path, layer in module.named_modules() for tensor in _of_layer(path, layer)]


def _of_layer(path: str, layer: nn.Module) -> Iterator[GainTensor]:
    if isinstance(layer, LAYERS):
        fan_in = layer.weight[0].numel()
        if isinstance(layer, TRANSPOSED):  # the weight has the input channels first
            fan_in = layer.weight[:, 0].numel() // layer.groups
        yield GainTensor(path, layer, "weight", fan_in, False)
        if layer.bias is not None:
            yield GainTensor(path, layer, "bias", fan_in, True)
    elif isinstance(layer, nn.MultiheadAttention):
        for name in _ATTENTION_WEIGHTS:
            weight = getattr(layer, name)
            if weight is not None:
                yield GainTensor(path, layer, name, weight.shape[1], False)
        if layer.in_proj_bias is not None:
            yield GainTensor(path, layer, "in_proj_bias", layer.embed_dim, True)
    elif isinstance(layer, (nn.RNN, nn.RNNCell)):
        cell = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        for name in layer._flat_weights_names if isinstance(layer, nn.RNN) else cell:
            tensor = getattr(layer, name)
            if tensor is not None:
                yield GainTensor(path, layer, name, tensor.shape[-1], tensor.ndim == 1)


def check_readable(tensors: list[GainTensor], what: str) -> None:
    """Refuse tensors that something other than the NTK parametrisation computes; ``what`` cannot be done with them."""
    for tensor in tensors:
        source = tensor.source
        if source.parameter is None:
            raise InputError(
                f"layer {tensor.path!r} cannot be {what}: its {tensor.name} is computed by {source.computed_by}. "
                f"Remove that first: {source.remedy}."
            )


def check_overrides(overrides: object, tensors: list[GainTensor]) -> dict[str, Mapping[str, float | Tensor]]:
    """Return the overrides as a dict, or raise an error that lists those that name no layer."""
    if overrides is None:
        return {}
    if not isinstance(overrides, Mapping):
        raise InputTypeError(
            f'overrides must be a mapping from layers to gains. Got {shown(overrides)}. Write {{"0": {{"w_std": 1.0}}}}.'
        )
    layers = sorted({tensor.path for tensor in tensors})
    unknown = sorted(str(name) for name in overrides if name not in layers)
    if unknown:
        raise InputError(
            f"overrides names the layers {unknown}, which the module does not have. Its layers with gains are {layers}."
        )
    return dict(overrides)


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

    The projections of ``MultiheadAttention`` and the weights of ``RNN`` and ``RNNCell`` are scaled likewise. All other
    parameters (norms, embeddings, your own) stay unchanged. The function that the module computes does not change, except
    that tensors with gain zero are switched off; :func:`ntkit.initialize` draws standard normals. The raw parameters are
    ``layer.parametrizations.weight.original``.

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
    """Put a module into the NTK parametrisation, in place."""
    # Its function stays the same, unless its parameters are redrawn afterwards: then layers may share a parameter that they
    # scale differently, or that one of them does not scale, such as an embedding that is also the output layer.
    tensors = gain_tensors(module)
    rule = GainRule(w_std, b_std, "ntk", check_overrides(overrides, tensors))
    for tensor in tensors:
        if tensor.source.scaling is not None:
            raise InputError(
                f"layer {tensor.path!r} is already in the NTK parametrisation. Write ntkit.remove_ntk(module) first."
            )
    check_readable(tensors, "put into the NTK parametrisation")
    scalings = {id(tensor): Scaled(tensor.gain(rule), 1 if tensor.is_bias else tensor.fan_in) for tensor in tensors}
    shared = {id(tensor) for tensor in tensors} if drawn_afterwards else _check_shared(module, tensors, scalings)
    for tensor in tensors:
        scaling = scalings[id(tensor)]
        scaling.divides = id(tensor) not in shared  # tied weights are one parameter, divided once
        parametrize.register_parametrization(tensor.layer, tensor.name, scaling)
        read_weights_anew(tensor.layer)
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


def _check_shared(module: nn.Module, tensors: list[GainTensor], scalings: dict[int, Scaled]) -> set[int]:
    """Find the second and later owners of a tied parameter; all owners must scale it equally."""
    first: dict[int, GainTensor] = {}
    shared: set[int] = set()
    for tensor in tensors:
        other = first.setdefault(id(tensor.source.value), tensor)
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
