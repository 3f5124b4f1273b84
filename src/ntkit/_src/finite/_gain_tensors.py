"""The tensors of a module that have gains: weights and biases of linear and convolutional layers and of attention."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from torch import Tensor, nn

from ntkit._src.common import ParameterSource, parameter_source, shown
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
    def value(self) -> Tensor:
        """The tensor that the forward pass uses."""
        value: Tensor = getattr(self.layer, self.name)
        return value

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
