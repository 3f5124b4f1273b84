"""Linear maps of positions: by a constant matrix (interpolation, fixed filters), or by one computed from each input (graphs)."""

from __future__ import annotations

from dataclasses import dataclass, field

import torch
from torch import Tensor

from ._op import Keep, Keeps, Op, Values, Weights
from ._positions import PositionMap

__all__ = ["ConstantMap", "DataMap"]


@dataclass(frozen=True)
class ConstantMap(PositionMap):
    """x'[q] = sum_p A[q, p] x[p] along one axis with a fixed A, so K' = A K A^T there.

    Attributes
    ----------
    shape
        Shape of A: positions after and before.
    entries
        The entries of A row by row, float64 as bytes, so that equal maps compare and hash equal.
    name
        How tables name it, such as ``"bilinear to 12"``.
    """

    shape: tuple[int, int]
    entries: bytes = field(repr=False)
    name: str = "matrix"

    @classmethod
    def of(cls, axis: int, matrix: Tensor, name: str) -> ConstantMap:
        """Build the map from a matrix, shape (positions after, positions before)."""
        numbers = matrix.detach().to("cpu", torch.float64).contiguous()
        return cls(axis, (numbers.shape[0], numbers.shape[1]), numbers.numpy().tobytes(), name)

    def matrix(self, size: int) -> Tensor:
        assert size == self.shape[1]
        return torch.frombuffer(bytearray(self.entries), dtype=torch.float64).reshape(self.shape)

    def label(self) -> str:
        return self.name


@dataclass(frozen=True)
class DataMap(Op):
    """x'[q] = sum_p A(x)[q, p] x[p] along one axis, A computed from the input itself (an adjacency): K' = A(x) K A(x')^T.

    Attributes
    ----------
    axis
        The position axis.
    prefix
        Index into ``Program.prefixes`` of the function that computes A(x), shape (n, ``size``, positions before).
    size
        Positions after the map.
    transposed
        Whether the prefix returns A(x)^T instead, shape (n, positions before, ``size``).
    """

    axis: int
    prefix: int
    size: int
    transposed: bool = False

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ((*keeps[: self.axis], Keep.ALL, *keeps[self.axis + 1 :]),)

    def label(self) -> str:
        return "matrix of each input"

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Apply the matrices ``inputs[1]`` to ``inputs[0]``."""
        x, matrices = inputs
        dim = self.axis + 1
        equation = "a...i,aiq->a...q" if self.transposed else "a...i,aqi->a...q"
        return torch.einsum(equation, x.movedim(dim, -1), matrices.to(x)).movedim(-1, dim)
