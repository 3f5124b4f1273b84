"""The kernel protocol: everything above a kernel only ever calls ``kernel(x1, x2)`` and ``kernel.diag(x)``."""

from __future__ import annotations

import operator
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import check_number
from ntkit.errors import InputTypeError


class Kernel(ABC):
    """A positive semidefinite function K(x, x') of two inputs.

    A kernel of your own needs two methods: ``__call__`` and ``diag``. Kernels add, multiply and scale:
    ``k1 + k2``, ``sum([k1, k2])``, ``k1 * k2``, ``0.5 * k1``; ``k.normalized()`` is K(x, x') / sqrt(K(x, x) K(x', x')).

    Examples
    --------
    >>> import torch
    >>> from ntkit import Kernel
    >>> class Linear(Kernel):
    ...     def __call__(self, x1, x2=None):
    ...         return x1 @ (x1 if x2 is None else x2).T
    ...     def diag(self, x):
    ...         return (x * x).sum(1)
    >>> x = torch.tensor([[3.0, 4.0], [1.0, 0.0]])
    >>> (2 * Linear()).normalized()(x)
    tensor([[1.0000, 0.6000],
            [0.6000, 1.0000]])
    """

    @abstractmethod
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Return the matrix K(x1_i, x2_j), shape (n1, n2); ``x2=None`` means ``x2 = x1``."""

    @abstractmethod
    def diag(self, x: Tensor) -> Tensor:
        """Return the vector K(x_i, x_i), shape (n,)."""

    def normalized(self) -> Kernel:
        """Return the kernel K(x, x') / sqrt(K(x, x) K(x', x')), one on the diagonal."""
        return Normalized(self)

    def __add__(self, other: Kernel) -> Kernel:
        if not isinstance(other, Kernel):
            return NotImplemented
        return Combined(operator.add, self, other)

    def __radd__(self, other: int) -> Kernel:
        if isinstance(other, int) and other == 0:  # sum([k1, k2]) starts from 0
            return self
        return NotImplemented

    def __mul__(self, other: Kernel | float) -> Kernel:
        if isinstance(other, Kernel):
            return Combined(operator.mul, self, other)
        if isinstance(other, (int, float)) and not isinstance(other, bool):
            return Scaled(self, float(other))
        return NotImplemented

    __rmul__ = __mul__


def check_kernel(kernel: object) -> None:
    """Refuse anything but a kernel."""
    if not isinstance(kernel, Kernel):
        raise InputTypeError(
            f"kernel must be an ntkit Kernel, such as ntkit.infinite_width(module).ntk. Got {type(kernel).__name__}."
        )


@dataclass(frozen=True)
class Combined(Kernel):
    """K1 + K2, or K1 K2 entry by entry (positive semidefinite by Schur's theorem)."""

    combine: Callable[[Tensor, Tensor], Tensor]  # operator.add or operator.mul
    first: Kernel
    second: Kernel

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.combine(self.first(x1, x2), self.second(x1, x2))

    def diag(self, x: Tensor) -> Tensor:
        return self.combine(self.first.diag(x), self.second.diag(x))


@dataclass(frozen=True)
class Scaled(Kernel):
    """c K with c >= 0."""

    kernel: Kernel
    scale: float

    def __post_init__(self) -> None:
        check_number("a kernel's scale", self.scale, 0)

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.scale * self.kernel(x1, x2)

    def diag(self, x: Tensor) -> Tensor:
        return self.scale * self.kernel.diag(x)


@dataclass(frozen=True)
class Normalized(Kernel):
    """K(x, x') / sqrt(K(x, x) K(x', x')); zero where K(x, x) is zero."""

    kernel: Kernel

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        inverse1 = _inverse_root(self.kernel.diag(x1))
        inverse2 = inverse1 if x2 is None else _inverse_root(self.kernel.diag(x2))
        return self.kernel(x1, x2) * (inverse1[:, None] * inverse2[None, :])  # this order keeps it symmetric to the bit

    def diag(self, x: Tensor) -> Tensor:
        values = self.kernel.diag(x)
        return torch.where(values > 0, torch.ones_like(values), torch.zeros_like(values))


def _inverse_root(values: Tensor) -> Tensor:
    positive = values > 0
    return torch.where(positive, torch.where(positive, values, 1).rsqrt(), 0)
