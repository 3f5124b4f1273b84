"""The description of an elementwise function: its name where a closed form exists, the function itself otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor

__all__ = ["Activation"]


@dataclass(frozen=True)
class Activation:
    """An elementwise function phi of a pre-activation.

    Attributes
    ----------
    name
        Which rule gives its Gaussian expectations: ``"rectified"``, ``"erf"``, ``"gelu"``, ``"sin"``, ``"cos"``,
        ``"polynomial"``, ``"exp"``, ``"sinh"``, ``"cosh"``, ``"expm1"``, ``"sign"``, ``"step"`` have closed forms;
        ``"quadrature"`` integrates ``function`` numerically.
    parameters
        The constants of the closed form: ``(a, b)`` of a min(z, 0) + b max(z, 0) for ``"rectified"``, the
        coefficients from the constant term up for ``"polynomial"``, the value at zero for ``"step"``.
    function
        The function itself, for ``"quadrature"`` alone: torch in, torch out, elementwise, differentiable.
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

    def __str__(self) -> str:
        return self.label or self.name
