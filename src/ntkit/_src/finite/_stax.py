"""Networks in the words of neural-tangents' ``stax``, as modules in the NTK parametrisation."""

# ruff: noqa: N802 - the names of stax
from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterator, Sequence
from functools import reduce
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from ntkit._src.common import check_choice, check_integer
from ntkit._src.kernels import infinite_width
from ntkit._src.layers import Elementwise as AnyFunction

from ._initialize import initialize
from ._parametrize import parametrize_ntk

Parameters = dict[str, Tensor]
_STANDARD = '; of modules of torch, ntkit.infinite_width(module, init="standard") gives the standard one'


class Layer(nn.Module):
    """Base of the layers; values have their channels in dimension 1."""

    gains: dict[str, dict[str, float]] | None = None  # of its parts with weights, by name


class Function(Layer):
    """A function of one value, or of several that were fanned out."""

    def __init__(self, function: Callable[[Any], Any], name: str) -> None:
        super().__init__()
        self.function, self.name = function, name

    def forward(self, x: Any) -> Any:
        """Apply the function."""
        return self.function(x)

    def extra_repr(self) -> str:
        """Name it in the module's printout."""
        return self.name


class DenseLayer(Layer):
    """A linear layer of the channels, at every position."""

    def __init__(self, out_dim: int, w_std: float, b_std: float | None) -> None:
        super().__init__()
        self.linear = nn.LazyLinear(out_dim, bias=bool(b_std))
        self.gains = {"linear": {"w_std": w_std} | ({"b_std": b_std} if b_std else {})}

    def forward(self, x: Tensor) -> Tensor:
        """Map the channels."""
        return self.linear(x.movedim(1, -1)).movedim(-1, 1)  # type: ignore[no-any-return]


class ConvLayer(Layer):
    """A convolution; ``padding`` of stax: VALID, SAME or CIRCULAR."""

    def __init__(
        self, out: int, size: Sequence[int], strides: Sequence[int], padding: str, w_std: float, b_std: float | None
    ) -> None:
        super().__init__()
        kind: Any = {1: nn.LazyConv1d, 2: nn.LazyConv2d, 3: nn.LazyConv3d}[len(size)]
        self.size, self.strides, self.padding = tuple(size), tuple(strides), padding
        self.conv: nn.Module = kind(out, self.size, self.strides, bias=bool(b_std))
        self.gains = {"conv": {"w_std": w_std} | ({"b_std": b_std} if b_std else {})}

    def forward(self, x: Tensor) -> Tensor:
        """Pad as XLA does, then convolve."""
        if self.padding != "VALID":
            sides: list[int] = []
            for length, kernel, stride in zip(x.shape[2:], self.size, self.strides, strict=True):
                total = max((-(-length // stride) - 1) * stride + kernel - length, 0)
                sides = [total // 2, total - total // 2, *sides]
            x = F.pad(x, sides, mode="circular" if self.padding == "CIRCULAR" else "constant")
        result: Tensor = self.conv(x)
        return result


class Parallel(Layer):
    """Each layer applied to its own value."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.branches = nn.ModuleList(layers)

    def forward(self, x: Sequence[Tensor]) -> list[Tensor]:
        """Apply them."""
        return [layer(value) for layer, value in zip(self.branches, x, strict=True)]


class Network(Layer):
    """Layers one after the other, as :func:`ntkit.stax.serial` returns them.

    A module for tensors with channels in dimension 1; it iterates over ``init_fn, apply_fn, kernel_fn``, which take tensors with
    channels last, as in neural-tangents. Its layers learn their input channels from the first input, from which on it is in the
    NTK parametrisation with the gains of its layers, and goes wherever a module does: ``ntkit.infinite_width(net)``.
    """

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.ModuleList(layers)
        self._built = False
        self._limit: Any = None

    def forward(self, x: Any) -> Any:
        """Apply the layers."""
        for layer in self.layers:
            x = layer(x)
        return x

    def build(self, shape: Sequence[int], generator: torch.Generator | None = None) -> Network:
        """Draw the parameters for inputs of a shape, channels last; -1 for the batch. Return the module itself."""
        if not self._built:
            with torch.no_grad():
                self.double()(torch.zeros(2, shape[-1], *shape[1:-1], dtype=torch.float64))
            gains = {
                f"{path}.{part}": own
                for path, layer in self.named_modules()
                if isinstance(layer, Layer)
                for part, own in (layer.gains or {}).items()
            }
            parametrize_ntk(self, overrides=gains)
            self._built = True
        initialize(self, generator=generator)
        return self

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter((self.init_fn, self.apply_fn, self.kernel_fn))

    def init_fn(self, key: int | torch.Generator, input_shape: Sequence[int]) -> tuple[tuple[int, ...], Parameters]:
        """Return the output's shape and drawn parameters; ``key`` is a seed or a generator."""
        generator = key if isinstance(key, torch.Generator) else torch.Generator().manual_seed(key)
        self.build(input_shape, generator)
        parameters = {name: value.detach().clone() for name, value in self.named_parameters()}
        with torch.no_grad():
            output = self.apply_fn(parameters, torch.zeros(2, *input_shape[1:], dtype=torch.float64))
        return (input_shape[0], *output.shape[1:]), parameters

    def apply_fn(self, params: Parameters, x: Tensor) -> Tensor:
        """Return the outputs of inputs (n, ..., channels), channels last."""
        value: Tensor = functional_call(self, params, (x.to(torch.float64).movedim(-1, 1),))
        return value.movedim(1, -1).to(x.dtype)

    def kernel_fn(self, x1: Tensor, x2: Tensor | None = None, get: str | Sequence[str] = ("nngp", "ntk")) -> Any:
        """Return the kernel that ``get`` names, or a tuple of them in its order, of inputs with channels last."""
        if not self._built:
            self.build(tuple(x1.shape))
        if self._limit is None:
            self._limit = infinite_width(self)
        names = (get,) if isinstance(get, str) else tuple(get)
        for name in names:
            check_choice("get", name, ("nngp", "ntk"))
        moved = x1.movedim(-1, 1), None if x2 is None else x2.movedim(-1, 1)
        if len(names) == 1:
            return (
                getattr(self._limit, names[0])(*moved)
                if isinstance(get, str)
                else (getattr(self._limit, names[0])(*moved),)
            )
        both = self._limit.both(*moved)
        return tuple(getattr(both, name) for name in names)


def serial(*layers: nn.Module) -> Network:
    """Return the layers one after the other, a module that is also ``init_fn, apply_fn, kernel_fn``.

    Examples
    --------
    >>> import torch
    >>> from ntkit import stax
    >>> init_fn, apply_fn, kernel_fn = stax.serial(stax.Dense(512), stax.Relu(), stax.Dense(1))
    >>> kernel_fn(torch.eye(2, dtype=torch.float64), None, "ntk")
    tensor([[0.5000, 0.0796],
            [0.0796, 0.5000]], dtype=torch.float64)
    """
    return Network(*layers)


def parallel(*layers: nn.Module) -> Layer:
    """Return layers that are applied each to its own value, between ``FanOut`` and ``FanInSum``."""
    return Parallel(*layers)


def repeat(layer: Callable[[], nn.Module], n: int) -> Network:
    """Return n layers, each from a call of ``layer``, since layers have weights of their own."""
    return Network(*(layer() for _ in range(check_integer("n", n, 1))))


def Dense(out_dim: int, W_std: float = 1.0, b_std: float | None = None, parameterization: str = "ntk") -> Layer:
    """Return a linear layer of the channels."""
    check_choice(
        "parameterization",
        parameterization,
        ("ntk",),
        ': for the standard one, infinite_width(module, init="standard")',
    )
    return DenseLayer(out_dim, W_std, b_std)


def Conv(
    out_chan: int, filter_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID",
    W_std: float = 1.0, b_std: float | None = None, parameterization: str = "ntk",
) -> Layer:  # fmt: skip
    """Return a convolution; ``padding`` is ``"VALID"``, ``"SAME"`` or ``"CIRCULAR"``."""
    check_choice("padding", padding, ("VALID", "SAME", "CIRCULAR"))
    check_choice(
        "parameterization",
        parameterization,
        ("ntk",),
        ': for the standard one, infinite_width(module, init="standard")',
    )
    return ConvLayer(out_chan, filter_shape, strides or (1,) * len(filter_shape), padding, W_std, b_std)


def _pool(window_shape: Sequence[int], strides: Sequence[int] | None, padding: str, total: bool) -> Layer:
    check_choice("padding", padding, ("VALID",))
    pool = {1: F.avg_pool1d, 2: F.avg_pool2d, 3: F.avg_pool3d}[len(window_shape)]
    factor = math.prod(window_shape) if total else 1
    window, steps = tuple(window_shape), tuple(strides or (1,) * len(window_shape))
    return Function(lambda x: pool(x, window, steps) * factor, "SumPool" if total else "AvgPool")


def AvgPool(window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID") -> Layer:
    """Return average pooling, by steps of one by default, as in stax."""
    return _pool(window_shape, strides, padding, total=False)


def SumPool(window_shape: Sequence[int], strides: Sequence[int] | None = None, padding: str = "VALID") -> Layer:
    """Return sum pooling, by steps of one by default."""
    return _pool(window_shape, strides, padding, total=True)


def GlobalAvgPool() -> Layer:
    """Return the average over all positions."""
    return Function(lambda x: x.flatten(2).mean(2), "GlobalAvgPool")


def GlobalSumPool() -> Layer:
    """Return the sum over all positions."""
    return Function(lambda x: x.flatten(2).sum(2), "GlobalSumPool")


def Flatten() -> Layer:
    """Return the layer that makes positions channels."""
    return Function(lambda x: x.flatten(1), "Flatten")


def Identity() -> Layer:
    """Return the layer that does nothing."""
    return Function(lambda x: x, "Identity")


def LayerNorm(eps: float = 1e-12) -> Layer:
    """Return normalisation over the channels of each position, without trained parameters."""
    return Function(lambda x: F.layer_norm(x.movedim(1, -1), x.shape[1:2], eps=eps).movedim(-1, 1), "LayerNorm")


def FanOut(num: int) -> Layer:
    """Return the layer that hands its value to several others."""
    return Function(lambda x: [x] * num, "FanOut")


def FanInSum() -> Layer:
    """Return the sum of several values."""
    return Function(lambda x: sum(x[1:], start=x[0]), "FanInSum")


def FanInConcat() -> Layer:
    """Return several values with their channels side by side."""
    return Function(lambda x: torch.cat(list(x), 1), "FanInConcat")


def FanInProd() -> Layer:
    """Return the product of several values."""
    return Function(lambda x: reduce(operator.mul, x), "FanInProd")


def Relu() -> Layer:
    """Return max(x, 0)."""
    return Function(torch.relu, "Relu")


def LeakyRelu(alpha: float = 0.01) -> Layer:
    """Return x, or alpha x where it is negative."""
    return Function(lambda x: F.leaky_relu(x, alpha), "LeakyRelu")


def Abs() -> Layer:
    """Return the absolute value."""
    return Function(torch.abs, "Abs")


def ABRelu(a: float, b: float) -> nn.Module:
    """Return a x where it is negative, b x elsewhere."""
    return (
        AnyFunction(lambda x: torch.where(x < 0, a * x, b * x), kinks=(0.0,))
        if b == 0
        else Function(lambda x: b * F.leaky_relu(x, a / b), "ABRelu")
    )


def Erf(a: float = 1.0, b: float = 1.0, c: float = 0.0) -> nn.Module:
    """Return a erf(b x) + c."""
    return Function(lambda x: a * torch.erf(b * x) + c, "Erf")


def Gelu(approximate: bool = False) -> Layer:
    """Return x Phi(x), or its approximation by tanh."""
    return Function(lambda x: F.gelu(x, approximate="tanh" if approximate else "none"), "Gelu")


def Sin(a: float = 1.0, b: float = 1.0, c: float = 0.0) -> nn.Module:
    """Return a sin(b x + c)."""
    return (
        Function(lambda x: a * torch.sin(b * x), "Sin") if c == 0 else AnyFunction(lambda x: a * torch.sin(b * x + c))
    )


def Cos(a: float = 1.0, b: float = 1.0, c: float = 0.0) -> nn.Module:
    """Return a cos(b x + c)."""
    return (
        Function(lambda x: a * torch.cos(b * x), "Cos") if c == 0 else AnyFunction(lambda x: a * torch.cos(b * x + c))
    )


def Rbf(gamma: float = 1.0) -> nn.Module:
    """Return sqrt(2) sin(sqrt(2 gamma) x + pi / 4), whose NNGP kernel is exp(-gamma |x - x'|^2)."""
    return Sin(math.sqrt(2.0), math.sqrt(2.0 * gamma), math.pi / 4)


def Exp(a: float = 1.0, b: float = 1.0) -> Layer:
    """Return a exp(b x)."""
    return Function(lambda x: a * torch.exp(b * x), "Exp")


def Gaussian(a: float = 1.0, b: float = -1.0) -> nn.Module:
    """Return a exp(b x^2)."""
    return AnyFunction(lambda x: a * torch.exp(b * x * x))


def Sigmoid_like() -> Layer:
    """Return (1 + erf(x / 2.4020563531719796)) / 2, close to the sigmoid."""
    return Function(lambda x: 0.5 * torch.erf(x / 2.4020563531719796) + 0.5, "Sigmoid_like")


def Monomial(degree: int) -> Layer:
    """Return x^degree."""
    return Function(lambda x: x**degree, "Monomial")


def RectifiedMonomial(degree: int) -> nn.Module:
    """Return max(x, 0)^degree."""
    return AnyFunction(lambda x: torch.relu(x) ** degree, kinks=(0.0,))


def Elementwise(fn: Callable[[Tensor], Tensor]) -> nn.Module:
    """Return any smooth function of each value."""
    return AnyFunction(fn)
