"""Learned vectors, shared by all inputs or looked up by integers, and fields joined along the tokens."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ._op import Keeps, Op, Source, Values, Weights


@dataclass(frozen=True)
class Table(Source):
    """A vector at every position, the same for all inputs: a class token, a table of positions. P counts all positions."""

    covariance: Tensor = field(compare=False)  # of its channels, shape (P, P)
    mean: Tensor | None = field(default=None, compare=False)  # of its channels, shape (P,); None: zero
    # Inner products of its derivatives with respect to its own parameters, shape (P, P); None if none is trained.
    tangent: Tensor | None = field(default=None, compare=False)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Return the vectors, ``weight`` (*positions, channels), for one input; they broadcast to all."""
        weight, _ = weights
        assert weight is not None
        return weight[None]


@dataclass(frozen=True)
class Lookup(Source):
    """An embedding of integers: rows of a table of standard normals, so K[p, p'] = 1 where both are the same row."""

    prefix: int  # index into ``Program.prefixes`` of the function that returns the integers, shape (n, *positions)
    rows: int  # of the table
    padding: int | None  # the row that is zero and not trained
    trained: bool

    def label(self) -> str:
        return "embedding"

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Look up rows of ``weight`` (rows, channels); the padding row is not trained."""
        weight, _ = weights
        assert weight is not None
        index = inputs[0].round().long()
        value = weight[index]
        return value if self.padding is None else value.where(index[..., None] != self.padding, value.detach())


@dataclass(frozen=True)
class Join(Op):
    """Independent fields of lengths ``sizes`` concatenated along a position axis, such as a class token before the others."""

    axis: int
    sizes: tuple[int, ...]

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return (keeps,) * len(self.sizes)

    def reads_means(self, uncentred: int) -> bool:
        return uncentred > 1

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        n = max(len(x) for x in inputs)
        return torch.cat([x.expand(n, *x.shape[1:]) for x in inputs], self.axis + 1)
