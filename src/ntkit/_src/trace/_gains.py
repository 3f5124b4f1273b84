"""The gains of each layer: NTK parametrisation, standard parametrisation, and PyTorch's default initialisation."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, get_args

from torch import Tensor

from ntkit._src.common import check_choice, check_number, shown, transformed
from ntkit._src.program import Gains
from ntkit.errors import InputError, InputTypeError

Init = Literal["ntk", "standard", "torch"]
Gain = float | Tensor
W_STD = 2**0.5
B_STD = 0.0
_DIGITS = 1e-12


@dataclass(frozen=True, eq=False)
class GainRule:
    """How the variances of all layers are chosen: w_std^2 / fan_in for weights, b_std^2 for biases.

    ``"ntk"``: w_std / sqrt(fan_in) and b_std are part of the forward pass and standard normals are trained. ``"standard"``: the
    weights themselves are trained, so the tangent kernel grows with the fan-in. ``"torch"``: as standard, with the variances of
    PyTorch's default initialisation, 1 / (3 fan_in) for both.
    """

    w_std: Gain | None = None  # None: sqrt(2), or the gain of the module's own parametrisation
    b_std: Gain | None = None  # None: 0, or the module's own
    init: Init = "ntk"
    # Individual ``w_std`` and ``b_std`` of layers, by path in the module; below those that are part of the module.
    overrides: Mapping[str, Mapping[str, Gain]] = field(default_factory=dict)
    parametrized: Mapping[str, Mapping[str, float]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        check_choice("init", self.init, get_args(Init))
        for name, value in (("w_std", self.w_std), ("b_std", self.b_std)):
            if value is not None:
                _check_gain(name, value)
        if self.init == "torch" and not (_is(self.w_std, W_STD) and _is(self.b_std, B_STD)):
            raise InputError(
                'init="torch" takes its variances from PyTorch\'s default initialisation, so w_std and b_std have no effect. '
                'Leave them out, or write init="standard".'
            )
        for layer, own in self.overrides.items():
            if not isinstance(own, Mapping) or not set(own) <= {"w_std", "b_std"}:
                raise InputError(
                    f'overrides[{layer!r}] must be a mapping with the keys "w_std" and "b_std". Got {shown(own)}. '
                    f'Write overrides={{{layer!r}: {{"w_std": 1.0}}}}.'
                )
            for name, value in own.items():
                _check_gain(f"overrides[{layer!r}][{name!r}]", value)

    def for_module(self, parametrized: Mapping[str, Mapping[str, float]]) -> GainRule:
        """Return the rule for a module with layers in the NTK parametrisation; other gains than theirs are an InputError."""
        if parametrized and self.init != "ntk":
            raise InputError(
                f'init="{self.init}" needs plain weights, but layer {next(iter(parametrized))!r} is in the NTK '
                "parametrisation. Write ntkit.remove_ntk(module) first."
            )
        for layer, own in parametrized.items():
            for name, value in own.items():
                given = self._given(layer, name)
                number = value if given is None else float(given.detach() if isinstance(given, Tensor) else given)
                if abs(number - value) > _DIGITS * abs(value):
                    raise InputError(
                        f"layer {layer!r} is in the NTK parametrisation with {name}={value:.6g}, but {name}={number:.6g} "
                        f"is given. Leave {name} out, or write ntkit.remove_ntk(module) first."
                    )
        return replace(self, parametrized=parametrized)

    def __call__(
        self, layer: str, fan_in: int, biased: bool, weight_trained: bool, bias_trained: bool,
        torch_gains: tuple[float, float] | None = None,
    ) -> Gains:  # fmt: skip
        """Return one layer's gains; ``torch_gains`` are PyTorch's own if they differ from those of linear layers."""
        defaults = (W_STD, B_STD)
        if self.init == "torch":
            defaults = torch_gains or (3**-0.5, (3 * fan_in) ** -0.5)
        w_std = self._gain(layer, "w_std", defaults[0])
        b_std = self._gain(layer, "b_std", defaults[1]) if biased else 0.0
        weight_rate, bias_rate = (w_std**2, b_std**2) if self.init == "ntk" else (float(fan_in), 1.0)
        return Gains(w_std, b_std, weight_rate if weight_trained else 0.0, bias_rate if bias_trained else 0.0)

    def over(self, gains: Tensor) -> GainRule:
        """Return the rule of a grid, shape (g, 2), checked before: it gives tensors (g,) for w_std and b_std."""
        other = copy.copy(self)
        for name, column in zip(("w_std", "b_std"), gains.unbind(1), strict=True):
            object.__setattr__(other, name, column)
        return other

    def _given(self, layer: str, name: str) -> Gain | None:
        for_all = self.w_std if name == "w_std" else self.b_std
        return self.overrides.get(layer, {}).get(name, None if self.init == "torch" else for_all)

    def _gain(self, layer: str, name: str, default: float) -> Gain:
        given = self._given(layer, name)
        return self.parametrized.get(layer, {}).get(name, default) if given is None else given


def alike(first: Gains, second: Gains) -> bool:
    """Return whether the same gains are zero, and the same are tensors: then programs have the same structure."""
    pairs = zip(vars(first).values(), vars(second).values(), strict=True)
    return all(isinstance(a, Tensor) == isinstance(b, Tensor) and _is_zero(a) == _is_zero(b) for a, b in pairs)


def _is_zero(value: Gain) -> bool:
    return float(value.detach() if isinstance(value, Tensor) else value) == 0


def _check_gain(name: str, value: object) -> None:
    if isinstance(value, Tensor):
        if value.numel() != 1 or not value.is_floating_point():
            raise InputTypeError(
                f"{name} must be a number or a floating-point tensor of one element. "
                f"Got a tensor of shape {tuple(value.shape)} and dtype {value.dtype}."
            )
        if transformed(value):  # tracing uses constants, so the derivative of such a gain would be lost
            raise InputError(
                f"{name} is differentiated by a transform of torch.func, which gains do not support. Differentiate with respect "
                "to a tensor that requires_grad, or to a dual number of torch.autograd.forward_ad."
            )
        value = float(value.detach())
    check_number(name, value, 0.0)


def _is(value: Gain | None, number: float) -> bool:
    return value is None or (not isinstance(value, Tensor) and value == number)
