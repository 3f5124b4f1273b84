"""Operations that only move or mix positions: pooling, slices, interpolation, flatten, broadcasting, graphs."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from ._program import Keep, Keeps, Op, Values, Weights


@dataclass(frozen=True)
class Contract(Op):
    """Positions merged into the channels (flatten): K' = mean over p of K[p, p] along ``axes``, which are removed."""

    axes: tuple[int, ...]
    name: str = "flatten"  # for tables

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        rest = iter(keeps)
        rank = len(keeps) + len(self.axes)
        return (tuple(Keep.SAME if axis in self.axes else next(rest) for axis in range(rank)),)

    def label(self) -> str:
        return self.name

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Merge the axes into the channels, which vary slowest."""
        dims = [axis + 1 for axis in self.axes]
        x = inputs[0].movedim(dims, list(range(-len(dims), 0)))
        return x.flatten(-len(dims) - 1)


@dataclass(frozen=True)
class PositionMap(Op):
    """A linear map of the positions along one axis, x'[q] = sum_p A[q, p] x[p], so K' = A K A^T there."""

    axis: int

    def matrix(self, size: int) -> Tensor:
        """Return A, shape (output size, ``size``), float64."""
        raise NotImplementedError

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        here = keeps[self.axis] if self.selects else Keep.ALL
        return ((*keeps[: self.axis], here, *keeps[self.axis + 1 :]),)

    def alike(self, other: Op) -> bool:
        return isinstance(other, PositionMap) and (self.axis, self.selects) == (other.axis, other.selects)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        dim = self.axis + 1
        x = inputs[0].movedim(dim, -1)
        return (x @ self.matrix(x.shape[-1]).to(x).T).movedim(-1, dim)


@dataclass(frozen=True)
class AvgPool(PositionMap):
    """Average pooling along one axis by ``size`` windows; global pooling is one window as long as the axis."""

    kernel: int
    stride: int
    padding: int
    size: int
    count_include_pad: bool = True  # whether padding counts as positions of a window
    divisor: float | None = None  # of the sum over a window; None: its number of positions

    def matrix(self, size: int) -> Tensor:
        matrix = torch.zeros(self.size, size, dtype=torch.float64)
        for q in range(self.size):
            start = q * self.stride - self.padding
            stop = min(start + self.kernel, size + self.padding)
            inside = range(max(start, 0), min(stop, size))
            count = stop - start if self.count_include_pad else len(inside)
            if inside:
                matrix[q, inside.start : inside.stop] = 1.0 / (count if self.divisor is None else self.divisor)
        return matrix

    def label(self) -> str:
        return f"average {self.kernel}" + (f" stride {self.stride}" if self.stride != self.kernel else "")


@dataclass(frozen=True)
class AdaptiveAvgPool(PositionMap):
    """Average pooling to m = ``size`` windows, which need not divide the axis: window q covers [q P / m, (q + 1) P / m)."""

    size: int

    def matrix(self, size: int) -> Tensor:
        matrix = torch.zeros(self.size, size, dtype=torch.float64)
        for q in range(self.size):
            start, stop = q * size // self.size, -(-(q + 1) * size // self.size)
            matrix[q, start:stop] = 1.0 / (stop - start)
        return matrix

    def label(self) -> str:
        return f"average to {self.size}"


@dataclass(frozen=True)
class Reindex(PositionMap):
    """Positions re-indexed along one axis (slices, flips, padding): x'[q] = x[index[q]], zero where index[q] < 0."""

    selects = True
    index: tuple[int, ...]
    name: str = "reindex"
    whole: bool = False  # whether it reads K[p, p'] of all positions, because x and x' differ in their number

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        here = Keep.ALL if self.whole else keeps[self.axis]
        return ((*keeps[: self.axis], here, *keeps[self.axis + 1 :]),)

    def matrix(self, size: int) -> Tensor:
        return (torch.tensor(self.index)[:, None] == torch.arange(size)).to(torch.float64)

    def label(self) -> str:
        return self.name


@dataclass(frozen=True)
class ConstantMap(PositionMap):
    """x'[q] = sum_p A[q, p] x[p] along one axis with a fixed A of shape (positions after, positions before)."""

    shape: tuple[int, int]
    entries: bytes = field(repr=False)  # of A row by row, float64 as bytes, so that equal maps compare equal
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
    """x'[q] = sum_p A(x)[q, p] x[p] along one axis, A computed from the input itself (an adjacency): K' = A(x) K A(x')^T."""

    axis: int
    prefix: int  # index in ``Program.prefixes`` of A(x), shape (n, size, positions before)
    size: int
    transposed: bool = False  # the prefix returns A(x)^T

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ((*keeps[: self.axis], Keep.ALL, *keeps[self.axis + 1 :]),)

    def label(self) -> str:
        return "matrix of each input"

    def alike(self, other: Op) -> bool:
        return isinstance(other, DataMap) and replace(other, prefix=self.prefix, size=self.size) == self

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Apply the matrices ``inputs[1]`` to ``inputs[0]``."""
        x, matrices = inputs
        dim = self.axis + 1
        equation = "a...i,aiq->a...q" if self.transposed else "a...i,aqi->a...q"
        return torch.einsum(equation, x.movedim(dim, -1), matrices.to(x)).movedim(-1, dim)


@dataclass(frozen=True)
class Split(Op):
    """An axis split into several of lengths ``sizes``, the last fastest: K'[(a, b), (a', b')] = K[p, p'] with p = a B + b."""

    selects = True
    axis: int
    sizes: tuple[int, ...]

    def alike(self, other: Op) -> bool:
        return isinstance(other, Split) and (self.axis, len(self.sizes)) == (other.axis, len(other.sizes))

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        stop = self.axis + len(self.sizes)
        return ((*keeps[: self.axis], max(keeps[self.axis : stop]), *keeps[stop:]),)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        value: Tensor = inputs[0].unflatten(self.axis + 1, self.sizes)
        return value


@dataclass(frozen=True)
class Arrange(Op):
    """Position axes reordered, axes of length one dropped, and new axes added along which the field is constant."""

    selects = True
    axes: tuple[int | None, ...]  # for each axis of the output that of the input, None for a new one
    sizes: tuple[int, ...]  # lengths of the output's axes
    rank: int  # number of axes of the input

    def alike(self, other: Op) -> bool:
        return isinstance(other, Arrange) and (self.axes, self.rank) == (other.axes, other.rank)

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        kept = [Keep.SAME] * self.rank
        for keep, axis in zip(keeps, self.axes, strict=True):
            if axis is not None:
                kept[axis] = keep
        return (tuple(kept),)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        (x,) = inputs
        used = [axis + 1 for axis in self.axes if axis is not None]
        dropped = [axis + 1 for axis in range(self.rank) if axis not in self.axes]
        x = x.permute(0, *used, *dropped, -1).reshape(len(x), *(x.shape[dim] for dim in used), x.shape[-1])
        for index, axis in enumerate(self.axes):
            if axis is None:
                x = x.unsqueeze(index + 1)
        return x.expand(len(x), *self.sizes, x.shape[-1])


@dataclass(frozen=True)
class Merge(Op):
    """``count`` adjacent position axes from ``axis`` on merged into one, the last varying fastest: the inverse of a split."""

    selects = True
    axis: int
    count: int

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ((*keeps[: self.axis], *(keeps[self.axis],) * self.count, *keeps[self.axis + 1 :]),)

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        return inputs[0].flatten(self.axis + 1, self.axis + self.count)
