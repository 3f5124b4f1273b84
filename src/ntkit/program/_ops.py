"""The operations of a program: what each computes of a covariance, and what it needs kept of its inputs.

A value of the network is a random field over positions (pixels, tokens; none for vectors) whose channels are
exchangeable, so its distribution in the limit is given by a covariance K[p, p'] between the positions of two inputs.
Each op says, position axis by position axis, how much of its inputs' covariance it reads (:class:`Keep`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import IntEnum

import torch
from torch import Tensor

from ._activation import Activation

__all__ = [
    "Arrange",
    "AvgPool",
    "Concat",
    "Constant",
    "Contract",
    "Conv",
    "Dense",
    "Elementwise",
    "Gains",
    "Input",
    "Keep",
    "Keeps",
    "Normalize",
    "Op",
    "PositionMap",
    "Product",
    "Reindex",
    "Sum",
]


class Keep(IntEnum):
    """What is kept of a covariance along one position axis: K[p, p] alone, or every K[p, p']; the value counts indices."""

    SAME = 1
    ALL = 2


Keeps = tuple[Keep, ...]
"""One :class:`Keep` for each position axis. Where nothing is kept at all, None stands in its place."""


@dataclass(frozen=True)
class Op:
    """Base of the operations."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        """Tell what must be kept of each input so that ``keeps`` of the output can be computed; None: the input is not read."""
        return (keeps,)

    def label(self) -> str:
        """Name the operation in tables."""
        return type(self).__name__.lower()


@dataclass(frozen=True)
class Input(Op):
    """K = x . x' / C of the data, after the deterministic part of the network that comes before the first random layer.

    Attributes
    ----------
    prefix
        Index into ``Program.prefixes``.
    channel
        Which dimension of the prefix's output holds the C channels; dimension 0 holds the batch, the others are positions.
    channels
        C.
    """

    prefix: int
    channel: int
    channels: int

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ()


@dataclass(frozen=True)
class Gains:
    """The variances of a layer's weights and bias, and how much training them adds to the tangent kernel.

    K' = w_std^2 M(K) + b_std^2 and Theta' = weight_rate M(K) + bias_rate + w_std^2 M(Theta) with M the mean over the window.

    Attributes
    ----------
    w_std, b_std
        Gains of the weights and of the bias (0 without bias); tensors to differentiate in them.
    weight_rate, bias_rate
        w_std^2 and b_std^2 in the NTK parametrisation, the fan-in and 1 in the standard one, 0 for a frozen parameter.
    """

    w_std: float | Tensor
    b_std: float | Tensor
    weight_rate: float | Tensor
    bias_rate: float | Tensor

    @property
    def trained(self) -> bool:
        """Whether the weight or the bias is trained."""
        return any(isinstance(rate, Tensor) or rate != 0 for rate in (self.weight_rate, self.bias_rate))


@dataclass(frozen=True)
class Dense(Op):
    """A fully connected layer at every position."""

    gains: Gains

    def label(self) -> str:
        return "linear"


@dataclass(frozen=True)
class Conv(Op):
    """A convolution along some position axes: its window moves over p and p' together.

    Attributes
    ----------
    axes
        The position axes it moves along; one entry of each field below for each of them.
    padding
        Positions added before and after; zeros, or wrapped around where ``circular``.
    """

    gains: Gains
    axes: tuple[int, ...]
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]
    circular: bool

    def output_size(self, index: int, size: int) -> int:
        """Give the length of axis ``axes[index]`` after the convolution."""
        reach = self.dilation[index] * (self.kernel[index] - 1) + 1
        return (size + sum(self.padding[index]) - reach) // self.stride[index] + 1

    def label(self) -> str:
        text = "conv " + "x".join(map(str, self.kernel))
        if any(stride != 1 for stride in self.stride):
            text += " stride " + "x".join(map(str, self.stride))
        return text + (" circular" if self.circular else "")


@dataclass(frozen=True)
class Elementwise(Op):
    """An activation: K' = E[phi phi], Theta' = Theta E[phi' phi']."""

    phi: Activation

    def label(self) -> str:
        return str(self.phi)


@dataclass(frozen=True)
class Contract(Op):
    """Positions merged into the channels (flatten): K' = mean over p of K[p, p] along ``axes``.

    ``axes`` are removed, so the remaining ones keep their order and are numbered anew.
    """

    axes: tuple[int, ...]

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        rest = iter(keeps)
        rank = len(keeps) + len(self.axes)
        return (tuple(Keep.SAME if axis in self.axes else next(rest) for axis in range(rank)),)

    def label(self) -> str:
        return "flatten"


@dataclass(frozen=True)
class PositionMap(Op):
    """A linear map of the positions along one axis, x'[q] = sum_p A[q, p] x[p], so K' = A K A^T there."""

    axis: int

    def matrix(self, size: int) -> Tensor:
        """Give A, shape (output size, ``size``), float64."""
        raise NotImplementedError

    def selects(self) -> bool:
        """Tell whether every row of A reads one position at most."""
        return False

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        here = keeps[self.axis] if self.selects() else Keep.ALL
        return ((*keeps[: self.axis], here, *keeps[self.axis + 1 :]),)


@dataclass(frozen=True)
class AvgPool(PositionMap):
    """Average pooling along one axis; global pooling is one window as long as the axis.

    Attributes
    ----------
    kernel, stride, padding
        The window, its step, and the zeros added at both ends.
    size
        Number of windows.
    divisor
        What the sum over a window is divided by; None: by the number of positions in it, those of the padding included
        where ``count_include_pad``.
    """

    kernel: int
    stride: int
    padding: int
    size: int
    count_include_pad: bool = True
    divisor: float | None = None

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
class Reindex(PositionMap):
    """Positions read from elsewhere along one axis (slices, flips, padding): x'[q] = x[index[q]], zero where index[q] < 0."""

    index: tuple[int, ...]

    def matrix(self, size: int) -> Tensor:
        matrix = torch.zeros(len(self.index), size, dtype=torch.float64)
        for q, p in enumerate(self.index):
            if p >= 0:
                matrix[q, p] = 1.0
        return matrix

    def selects(self) -> bool:
        return True


@dataclass(frozen=True)
class Arrange(Op):
    """Position axes put in another order, axes of length one dropped, and new ones added along which the field is constant.

    Attributes
    ----------
    axes
        For each axis of the output the axis of the input, or None for a new one.
    sizes
        The lengths of the output's axes.
    rank
        How many axes the input has.
    """

    axes: tuple[int | None, ...]
    sizes: tuple[int, ...]
    rank: int

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        kept = [Keep.SAME] * self.rank
        for keep, axis in zip(keeps, self.axes, strict=True):
            if axis is not None:
                kept[axis] = keep
        return (tuple(kept),)


@dataclass(frozen=True)
class Normalize(Op):
    """LayerNorm or GroupNorm: (x - m) / sqrt(v + eps), m and v the mean and variance over the channels and over ``axes``.

    Its inputs are the block to normalise and the field whose channels make up m and v (the same one unless the
    normalisation spans a concatenation).

    Attributes
    ----------
    axes
        Position axes normalised over, together with the channels.
    weight_trained, bias_trained
        Whether the affine weight and bias add their terms, the normalised covariance and one, to the tangent kernel.
    affine_axes
        Axes along which the affine parameters differ, so that they add to Theta[p, p] only there.
    """

    axes: tuple[int, ...]
    eps: float
    weight_trained: bool
    bias_trained: bool
    affine_axes: tuple[int, ...] = ()

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return keeps, None

    def label(self) -> str:
        return "normalize"


@dataclass(frozen=True)
class Sum(Op):
    """A linear combination of independent fields."""

    coefficients: tuple[float, ...]

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return (keeps,) * len(self.coefficients)

    def label(self) -> str:
        return "sum" if len(self.coefficients) > 1 else f"times {self.coefficients[0]:g}"


@dataclass(frozen=True)
class Product(Op):
    """The product of two independent fields: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2."""

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return keeps, keeps


@dataclass(frozen=True)
class Concat(Op):
    """Channels of several fields side by side: the mean of their covariances weighted by ``fractions`` of the width."""

    fractions: tuple[float, ...]

    def __post_init__(self) -> None:
        assert math.isclose(sum(self.fractions), 1.0)

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return (keeps,) * len(self.fractions)


@dataclass(frozen=True)
class Constant(Op):
    """The same number in every channel and position."""

    value: float

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ()

    def label(self) -> str:
        return f"constant {self.value:g}"
