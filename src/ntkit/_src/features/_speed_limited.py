"""Speed Limited Optimization: every weight matrix moves in steps of limited length."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, overload

import torch
from torch import Tensor
from torch.optim import Optimizer

from ntkit.errors import InputError, InputTypeError

Params = Iterable[Tensor] | Iterable[tuple[str, Tensor]] | Iterable[dict[str, Any]]


class SpeedLimited(Optimizer):
    r"""Gradient descent whose steps have a limited length in every weight matrix, faster in some layers than in others.

    .. math:: v \leftarrow \mu v + g, \qquad W \leftarrow W - \eta\, C\, \frac{v}{\epsilon + |v|}

    for every parameter tensor separately, with its gradient g, the Frobenius norm, and the speed C of its layer: no step is
    longer than :math:`\eta C`. A layer whose speed is much larger than the others' must learn the features, and its neural
    feature ansatz becomes strong (Speed Limited Optimization, Beaglehole et al. 2024, section 4; the sign printed there is
    wrong). With momentum the buffer is normalised, so the limit still holds.

    Parameters
    ----------
    params
        Parameters, dictionaries of parameter groups, or ``module.named_parameters()``. Named parameters form one group
        for the weights of each layer and one for its biases, which hold the layer's path as ``group["layer"]``.
    lr
        :math:`\eta`, not negative.
    speed
        C: one number for all; or by layer, ``{"0": 500.0, "2": 0.002, "4": 0.002}``, with named parameters. A key names a
        parameter or a module that contains it; the longest match counts: ``{"0": 500.0, "0.bias": 1.0}``. A parameter group may
        have its own ``"speed"``. A bias has the speed of its layer unless it is named.
    eps
        :math:`\epsilon`, not negative; with 0 every step has the full length, and a zero gradient moves nothing.
    momentum
        :math:`\mu`, at least 0 and below 1.

    Raises
    ------
    InputError
        For negative numbers and layers without a speed. From :meth:`step`: for a gradient that is not finite, naming the
        parameter, before anything is changed.
    InputTypeError
        From :meth:`step`, for a sparse gradient.

    See Also
    --------
    AdaptiveSpeed : chooses the speeds while training.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.features import SpeedLimited
    >>> net = nn.Sequential(nn.Linear(2, 4, bias=False), nn.Tanh(), nn.Linear(4, 1, bias=False))
    >>> optimizer = SpeedLimited(net.named_parameters(), lr=0.1, speed={"0": 5.0, "2": 0.2}, eps=0.0)
    >>> before = net[0].weight.detach().clone()
    >>> net(torch.ones(3, 2)).sum().backward()
    >>> optimizer.step()
    >>> round(float((net[0].weight.detach() - before).norm()), 4)  # 0.1 times 5
    0.5
    """

    def __init__(
        self,
        params: Params,
        lr: float,
        speed: float | Mapping[str, float] = 1.0,
        eps: float = 0.1,
        momentum: float = 0.0,
    ) -> None:
        if isinstance(params, Tensor):
            raise InputTypeError("params must be several parameters. Got one tensor: write [parameter].")
        given: list[Any] = list(params)
        by_layer = isinstance(speed, Mapping)
        if by_layer and not (given and all(isinstance(entry, tuple) for entry in given)):
            raise InputTypeError(
                "speeds by layer need the names of the parameters. Write SpeedLimited(module.named_parameters(), ...), or a "
                '"speed" in each group of parameters.'
            )
        if given and all(isinstance(entry, tuple) for entry in given):
            given = _layer_groups(given, speed)
        defaults = {"lr": lr, "speed": 1.0 if by_layer else speed, "eps": eps, "momentum": momentum, "layer": None}
        _check_settings(defaults)
        super().__init__(given, defaults)

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Add parameters with their own settings; settings left out are as for the others."""
        _check_settings({**self.defaults, **param_group})
        super().add_param_group(param_group)

    @overload
    def step(self, closure: None = None) -> None: ...
    @overload
    def step(self, closure: Callable[[], float]) -> float: ...
    def step(self, closure: Callable[[], float] | None = None) -> float | None:
        """Take one step; a closure is evaluated first and its loss returned."""
        loss = None
        if closure is not None:
            with torch.enable_grad():
                loss = closure()
        with torch.no_grad():
            moving, vectors, factors = [], [], []
            heavy = False
            for group in self.param_groups:
                length, heavy = -float(group["lr"]) * float(group["speed"]), heavy or group["momentum"] > 0
                for parameter in group["params"]:
                    gradient = parameter.grad
                    if gradient is not None:
                        if gradient.is_sparse:
                            raise self._sparse(parameter)
                        moving.append((parameter, group))
                        vectors.append(gradient)
                        factors.append((length, group["eps"]))
            norms = self._norms(moving, vectors)
            if heavy:
                vectors = [self._velocity(*entry, g) for entry, g in zip(moving, vectors, strict=True)]
                norms = self._norms(moving, vectors)
            for (parameter, _), vector, norm, (length, eps) in zip(moving, vectors, norms, factors, strict=True):
                if eps + norm:
                    parameter.add_(vector, alpha=length / (eps + norm))
        return loss

    def _sparse(self, parameter: Tensor) -> InputTypeError:
        return InputTypeError(
            f"SpeedLimited needs dense gradients. Got a sparse one for {self._name(parameter)}: "
            "build the embedding with sparse=False."
        )

    def _velocity(self, parameter: Tensor, group: dict[str, Any], gradient: Tensor) -> Tensor:
        """Return v = mu v + g and keep it for the next step."""
        if not group["momentum"]:
            return gradient
        state = self.state[parameter]
        if "momentum_buffer" not in state:
            state["momentum_buffer"] = torch.zeros_like(gradient)
        velocity: Tensor = state["momentum_buffer"]
        return velocity.mul_(group["momentum"]).add_(gradient)

    def _norms(self, moving: list[tuple[Tensor, dict[str, Any]]], vectors: list[Tensor]) -> list[float]:
        """Return the norms, or raise an error that names the first parameter whose norm is not finite."""
        norms = [norm.item() for norm in torch._foreach_norm(vectors)] if vectors else []
        for index, norm in enumerate(norms):
            if not math.isfinite(norm):  # squares may overflow although the entries are finite
                norms[index] = float(torch.linalg.vector_norm(vectors[index].double()))
            if not math.isfinite(norms[index]):
                raise InputError(
                    f"the gradient of {self._name(moving[index][0])} must be finite. Got NaN or infinite values; no parameter "
                    "was changed. Use a smaller lr or speed, and check the loss."
                )
        return norms

    def _name(self, parameter: Tensor) -> str:
        for number, group in enumerate(self.param_groups):
            for index, own in enumerate(group["params"]):
                if own is parameter:
                    names = group.get("param_names")
                    return repr(names[index]) if names else f"parameter {index} of group {number}"
        raise AssertionError("no such parameter")


def _layer_groups(named: list[tuple[str, Tensor]], speed: float | Mapping[str, float]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, bool, float], list[tuple[str, Tensor]]] = {}
    used: set[str] = set()
    homeless = []
    for name, parameter in named:
        value: float
        if isinstance(speed, Mapping):
            key = next((prefix for prefix in _prefixes(name) if prefix in speed), None)
            if key is None:
                homeless.append(name)
                continue
            used.add(key)
            value = speed[key]
        else:
            value = speed
        layer, is_bias = _owner(name)
        groups.setdefault((layer, is_bias, value), []).append((name, parameter))
    unknown = [key for key in speed if key not in used] if isinstance(speed, Mapping) else []
    if unknown or homeless:
        layers = dict.fromkeys(_owner(name)[0] for name, _ in named)
        raise InputError(
            f"speed must have a number for every layer: {', '.join(map(repr, layers))}. "
            + (f"There is none for {', '.join(map(repr, homeless))}. " if homeless else "")
            + (f"Nothing is called {', '.join(map(repr, unknown))}." if unknown else "")
        )
    return [{"params": members, "speed": value, "layer": layer} for (layer, _, value), members in groups.items()]


def _prefixes(name: str) -> list[str]:
    """Return a parameter's name and those of the modules that contain it, longest first, without parametrisation marks."""
    parts = _plain(name).split(".")
    return [name, *(".".join(parts[:count]) for count in range(len(parts), 0, -1)), ""]


def _owner(name: str) -> tuple[str, bool]:
    layer, _, own = _plain(name).rpartition(".")
    return layer, own == "bias"


def _plain(name: str) -> str:
    """Return ``0.weight`` for ``0.parametrizations.weight.original``."""
    head, marker, tail = name.partition("parametrizations.")
    return head + tail.split(".", 1)[0] if marker else name


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name in ("lr", "speed", "eps", "momentum"):
        value = settings[name]
        if isinstance(value, (bool, str)) or not hasattr(value, "__float__"):
            raise InputTypeError(f"{name} must be a number. Got {value!r} of type {type(value).__name__}.")
        if not (math.isfinite(value) and value >= 0):
            raise InputError(f"{name} must be finite and not negative. Got {float(value)}.")
    if not settings["momentum"] < 1:
        raise InputError(f"momentum must be below 1. Got {settings['momentum']}.")
