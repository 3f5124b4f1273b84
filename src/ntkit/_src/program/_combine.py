"""Sums, products and concatenations of fields, and constants."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from functools import reduce

import torch
from torch import Tensor

from ._program import Keeps, Op, Source, Values, Weights


@dataclass(frozen=True)
class Sum(Op):
    """A linear combination of independent fields."""

    coefficients: tuple[float, ...]
    # Added to K, (P, P), position axes merged: the covariance of fixed values in two fields beyond the product of their means.
    cross: Tensor | None = field(default=None, compare=False)

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return (keeps,) * len(self.coefficients)

    def alike(self, other: Op) -> bool:
        return self == other and isinstance(other, Sum) and self.cross is None and other.cross is None

    def reads_means(self, uncentred: int) -> bool:
        return uncentred > 1

    def label(self) -> str:
        return "sum" if len(self.coefficients) > 1 else f"times {self.coefficients[0]:g}"

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        return reduce(torch.add, (c * x for c, x in zip(self.coefficients, inputs, strict=True)))


@dataclass(frozen=True)
class Product(Op):
    """The product of two independent fields: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return keeps, keeps

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        return inputs[0] * inputs[1]


@dataclass(frozen=True)
class Concat(Op):
    """Concatenated channels of several fields: the mean of their covariances weighted by ``fractions`` of the width."""

    fractions: tuple[float, ...]

    def __post_init__(self) -> None:
        assert math.isclose(sum(self.fractions), 1.0)

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return (keeps,) * len(self.fractions)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        return torch.cat(inputs, -1)


@dataclass(frozen=True)
class Constant(Source):
    """The same number in every channel and position."""

    value: float

    def label(self) -> str:
        return f"constant {self.value:g}"

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Return one number, which broadcasts."""
        return torch.tensor(self.value, dtype=torch.float64)


@dataclass(frozen=True)
class Join(Op):
    """Independent fields of lengths ``sizes`` concatenated along a position axis, such as a class token before the others."""

    axis: int
    sizes: tuple[int, ...]

    def alike(self, other: Op) -> bool:
        return isinstance(other, Join) and (self.axis, len(self.sizes)) == (other.axis, len(other.sizes))

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return (keeps,) * len(self.sizes)

    def reads_means(self, uncentred: int) -> bool:
        return uncentred > 1

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        n = max(len(x) for x in inputs)
        return torch.cat([x.expand(n, *x.shape[1:]) for x in inputs], self.axis + 1)
