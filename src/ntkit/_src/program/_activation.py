"""Elementwise functions: named where a closed form exists, given by the function itself otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ._op import Keep, Keeps, Op, Values, Weights

__all__ = ["Activation", "Pointwise"]


@dataclass(frozen=True)
class Activation:
    """An elementwise function phi of a pre-activation.

    Attributes
    ----------
    name
        The rule for its Gaussian expectations: ``"rectified"``, ``"erf"``, ``"gelu"``, ``"sin"``, ``"cos"``,
        ``"polynomial"``, ``"exp"``, ``"sinh"``, ``"cosh"``, ``"expm1"``, ``"sign"``, ``"step"`` have closed forms;
        ``"quadrature"`` integrates ``function`` numerically.
    parameters
        The constants of the closed form: ``(a, b)`` of a min(z, 0) + b max(z, 0) for ``"rectified"``, the
        coefficients from the constant term up for ``"polynomial"``, the value at zero for ``"step"``.
    function
        The function itself, only for ``"quadrature"``: torch in, torch out, elementwise, differentiable.
    kinks
        Where ``function`` or its first two derivatives jump.
    label
        How tables and messages name it, such as ``"tanh"``.
    """

    name: str
    parameters: tuple[float, ...] = ()
    function: Callable[[Tensor], Tensor] | None = None
    kinks: tuple[float, ...] = ()
    label: str = ""

    def __call__(self, z: Tensor) -> Tensor:
        """Apply phi to every entry."""
        match self.name:
            case "rectified":
                low, high = self.parameters
                # The derivative at zero is PyTorch's: that of the left side, and zero for the absolute value.
                return z.abs() if (low, high) == (-1.0, 1.0) else torch.where(z > 0, high * z, low * z)
            case "polynomial":
                return sum((c * z**k for k, c in enumerate(self.parameters) if c), start=torch.zeros_like(z))
            case "step":
                return torch.heaviside(z.detach(), z.new_tensor(self.parameters[0]))
            case "quadrature":
                assert self.function is not None
                return self.function(z)
        return _FUNCTIONS[self.name](z)

    def __str__(self) -> str:
        return self.label or self.name


_FUNCTIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "erf": torch.erf,
    "gelu": torch.nn.functional.gelu,
    "sin": torch.sin,
    "cos": torch.cos,
    "exp": torch.exp,
    "sinh": torch.sinh,
    "cosh": torch.cosh,
    "expm1": torch.expm1,
    "sign": torch.sign,
}


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
