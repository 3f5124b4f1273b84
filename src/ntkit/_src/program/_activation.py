"""Elementwise functions: one class each, with what tracing and planning must know; ``rules.expectations`` integrates them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache, partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from ._program import Keep, Keeps, Op, Values, Weights


@dataclass(frozen=True)
class Activation(ABC):
    """An elementwise function phi of a pre-activation. A subclass overrides what differs from a smooth function."""

    label: str = field(default="", kw_only=True)  # how tables and messages name it; by default the name of its class
    kinks: tuple[float, ...] = field(default=(), init=False)  # where phi or one of its first two derivatives jumps
    closed_form: ClassVar[bool] = True  # of Gaussian expectations; else they are integrated numerically
    differentiable: ClassVar[bool] = True  # whether E[phi' phi'], and so the tangent kernel, exists

    @abstractmethod
    def __call__(self, z: Tensor) -> Tensor:
        """Apply phi to every entry."""

    @property
    def odd(self) -> bool:
        """Whether phi(-z) = -phi(z), so that E phi = 0."""
        return False

    @property
    def homogeneous(self) -> bool:
        """Whether phi(r z) = r phi(z) for all r > 0."""
        return False

    def polynomial(self) -> tuple[float, ...] | None:
        """Return the coefficients from the constant term up; None unless phi is a polynomial."""
        return None

    def slopes(self) -> tuple[float, float] | None:
        """Return the slopes below and above zero; None unless phi is linear on either side and zero at zero."""
        return None

    def times_derivative(self) -> Activation | None:
        """Return z phi'(z) as an activation; None if there is none whose expectations are as good as phi's."""
        return None

    def __str__(self) -> str:
        return self.label or type(self).__name__.lower()


class _Torch(Activation):
    """A function of torch."""

    function: ClassVar[Callable[..., Tensor]]

    def __call__(self, z: Tensor) -> Tensor:
        return type(self).function(z)


class _Odd(_Torch):
    @property
    def odd(self) -> bool:
        return True


@dataclass(frozen=True)
class Rectified(Activation):
    """a min(z, 0) + b max(z, 0) with a = ``low`` and b = ``high``: ReLU, leaky ReLU, the absolute value."""

    low: float
    high: float
    kinks: tuple[float, ...] = field(default=(0.0,), init=False)

    def __call__(self, z: Tensor) -> Tensor:
        # The derivative at zero is PyTorch's: that of the left side, and zero for the absolute value.
        return z.abs() if self.slopes() == (-1.0, 1.0) else torch.where(z > 0, self.high * z, self.low * z)

    @property
    def odd(self) -> bool:
        return self.low == self.high

    @property
    def homogeneous(self) -> bool:
        return True

    def slopes(self) -> tuple[float, float]:
        return self.low, self.high

    def times_derivative(self) -> Activation:
        return self  # Euler's theorem


@dataclass(frozen=True)
class Polynomial(Activation):
    """A polynomial, given by its coefficients from the constant term up."""

    coefficients: tuple[float, ...]

    def __call__(self, z: Tensor) -> Tensor:
        return sum((c * z**k for k, c in enumerate(self.coefficients) if c), start=torch.zeros_like(z))

    @property
    def odd(self) -> bool:
        return not any(self.coefficients[::2])

    def polynomial(self) -> tuple[float, ...]:
        return self.coefficients

    def slopes(self) -> tuple[float, float] | None:
        constant, slope, *higher = (*self.coefficients, 0.0, 0.0)
        return None if constant or any(higher) else (slope, slope)

    def times_derivative(self) -> Polynomial:
        return Polynomial(tuple(power * c for power, c in enumerate(self.coefficients)))


class Erf(_Odd):
    """The error function."""

    function = staticmethod(torch.erf)


class GELU(_Torch):
    """z Phi(z), Phi the standard Gaussian's distribution function."""

    function = staticmethod(F.gelu)


class NormalCDF(_Torch):
    """Phi, the standard Gaussian's distribution function: the probit unit."""

    function = staticmethod(torch.special.ndtr)


class Sin(_Odd):
    """The sine."""

    function = staticmethod(torch.sin)


class Cos(_Torch):
    """The cosine."""

    function = staticmethod(torch.cos)


class Exp(_Torch):
    """The exponential."""

    function = staticmethod(torch.exp)


class Sinh(_Odd):
    """The hyperbolic sine."""

    function = staticmethod(torch.sinh)


class Cosh(_Torch):
    """The hyperbolic cosine."""

    function = staticmethod(torch.cosh)


class Expm1(_Torch):
    """exp(z) - 1."""

    function = staticmethod(torch.expm1)


class Sign(_Odd):
    """The sign, zero at zero."""

    differentiable = False
    function = staticmethod(torch.sign)


@dataclass(frozen=True)
class Step(Activation):
    """Heaviside's step: 0 below zero, 1 above, ``at_zero`` there."""

    at_zero: float
    differentiable = False

    def __call__(self, z: Tensor) -> Tensor:
        return torch.heaviside(z.detach(), z.new_tensor(self.at_zero))


@dataclass(frozen=True)
class AnyFunction(Activation):
    """A function whose expectations are integrated numerically: torch in, torch out, elementwise, differentiable."""

    function: Callable[[Tensor], Tensor]
    kinks: tuple[float, ...] = field(default=(), kw_only=True)
    closed_form = False

    def __call__(self, z: Tensor) -> Tensor:
        return self.function(z)

    def times_derivative(self) -> Activation:
        return _times_derivative(self)

    def __str__(self) -> str:
        return self.label or getattr(self.function, "__name__", "function")


class Discontinuous(AnyFunction):
    """A function that jumps at one of its kinks, so that it has an NNGP kernel but no tangent kernel."""

    differentiable = False


@lru_cache(maxsize=64)  # one function for equal activations, so that they share their tables
def _times_derivative(phi: AnyFunction) -> AnyFunction:
    return AnyFunction(partial(_times_slope, phi.function), kinks=phi.kinks, label=f"z d/dz {phi}")


def _times_slope(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    slope: Tensor = torch.func.jvp(function, (z,), (torch.ones_like(z),))[1]
    return z * slope


@dataclass(frozen=True)
class ExponentialUnit(AnyFunction):
    """ELU, SELU and CELU: scale z for z > 0 and scale a (e^(rate z) - 1) / rate for z < 0."""

    scale: float = 1.0
    a: float = 1.0
    rate: float = 1.0


_SELU = 1.0507009873554805, 1.6732632423543772  # scale and a


def any_function(function: Callable[[Tensor], Tensor], kinks: tuple[float, ...], label: str) -> AnyFunction:
    """Return the activation of a function: an exponential unit if it is one of torch's, with its options or without."""
    base: Any = function
    alpha = 1.0
    if isinstance(function, partial) and not function.args:
        base, alpha = function.func, float(function.keywords.get("alpha", 1.0))
    if base is F.elu:
        return ExponentialUnit(function, kinks=kinks, a=alpha, label=label)
    if base is F.selu:
        return ExponentialUnit(function, kinks=kinks, scale=_SELU[0], a=_SELU[1], label=label)
    if base is F.celu and alpha > 0:
        return ExponentialUnit(function, kinks=kinks, rate=1 / alpha, label=label)
    return AnyFunction(function, kinks=kinks, label=label)


@dataclass(frozen=True)
class Pointwise(Op):
    """An activation: K' = E[phi phi], Theta' = Theta E[phi' phi']."""

    phi: Activation

    def needs_own(self, ranks: tuple[int, ...]) -> tuple[Keeps | None, ...]:
        return ((Keep.SAME,) * ranks[0],)

    def label(self) -> str:
        return str(self.phi)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        return self.phi(inputs[0])
