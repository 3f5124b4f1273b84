"""Layers with parameters: linear, convolutional, and normalisation over the channels."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product

import torch
from torch import Tensor

from ._program import Keep, Keeps, Op, Values, Weights


@dataclass(frozen=True)
class Gains:
    """The variances of a layer's weights and bias, and how much training them adds to the tangent kernel.

    K' = w_std^2 M(K) + b_std^2 and Theta' = weight_rate M(K) + bias_rate + w_std^2 M(Theta) with M the mean over the window. The
    rates are w_std^2 and b_std^2 in the NTK parametrisation, the fan-in and 1 in the standard one, 0 for a frozen parameter.
    """

    w_std: float | Tensor  # a tensor if derivatives with respect to it are needed
    b_std: float | Tensor  # 0 without bias
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

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Apply ``weight`` (out, in) and ``bias`` (out,)."""
        weight, bias = weights
        assert weight is not None
        value = inputs[0] @ weight.T
        return value if bias is None else value + bias


@dataclass(frozen=True)
class Conv(Op):
    """A convolution along some position axes: its window moves over p and p' together."""

    gains: Gains
    axes: tuple[int, ...]  # those it moves along; each field below has one entry per axis
    kernel: tuple[int, ...]
    stride: tuple[int, ...]
    dilation: tuple[int, ...]
    padding: tuple[tuple[int, int], ...]  # positions before and after: zeros, or wrapped around if circular
    circular: bool

    def output_size(self, index: int, size: int) -> int:
        """Return the length of axis ``axes[index]`` after the convolution."""
        reach = self.dilation[index] * (self.kernel[index] - 1) + 1
        return (size + sum(self.padding[index]) - reach) // self.stride[index] + 1

    def label(self) -> str:
        text = "conv " + "x".join(map(str, self.kernel))
        if any(stride != 1 for stride in self.stride):
            text += " stride " + "x".join(map(str, self.stride))
        return text + (" circular" if self.circular else "")

    def taps(self, x: Tensor) -> Iterator[Tensor]:
        """Yield x, shape (n, *positions, channels), as each place of the window sees it, the last axis fastest."""
        dims = [axis + 1 for axis in self.axes]
        sizes = [self.output_size(index, x.shape[dim]) for index, dim in enumerate(dims)]
        for dim, padding in zip(dims, self.padding, strict=True):
            x = pad(x, dim, *padding, self.circular)
        for window in product(*map(range, self.kernel)):
            part = x
            for index, dim in enumerate(dims):
                start = window[index] * self.dilation[index]
                stop = start + (sizes[index] - 1) * self.stride[index] + 1
                part = part[(slice(None),) * dim + (slice(start, stop, self.stride[index]),)]
            yield part

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Apply ``weight`` (out, channels of a group, *kernel) and ``bias`` (out,)."""
        weight, bias = weights
        assert weight is not None
        groups = inputs[0].shape[-1] // weight.shape[1]
        total: Tensor | None = None
        for place, part in enumerate(self.taps(inputs[0])):
            grouped = part.unflatten(-1, (groups, -1))
            kernel = weight.flatten(2)[:, :, place].unflatten(0, (groups, -1))
            value = torch.einsum("...gc,goc->...go", grouped, kernel).flatten(-2)
            total = value if total is None else total + value
        assert total is not None
        return total if bias is None else total + bias


def pad(x: Tensor, dim: int, before: int, after: int, circular: bool) -> Tensor:
    """Pad along a dimension: with zeros, or with the positions at the other end."""
    if before == after == 0:
        return x
    if circular:
        size = x.shape[dim]
        return x.index_select(dim, torch.arange(-before, size + after, device=x.device) % size)
    return torch.nn.functional.pad(x, (0, 0) * (x.ndim - 1 - dim) + (before, after))


@dataclass(frozen=True)
class Normalize(Op):
    """LayerNorm, GroupNorm or RMSNorm: (x - m) / sqrt(v + eps), m and v the mean and variance over the channels and ``axes``.

    Its inputs are the block to normalise and the field whose channels determine m and v (the same field unless the
    normalisation spans a concatenation). A trained weight adds the normalised covariance to the tangent kernel, a bias one.
    """

    axes: tuple[int, ...]  # position axes normalised over, together with the channels
    eps: float
    weight_trained: bool
    bias_trained: bool
    affine_axes: tuple[int, ...] = ()  # axes along which the affine parameters differ: they add to Theta[p, p] only
    groups: int = 1  # of channels with separate statistics, which all have the same limit
    centres: bool = True  # whether m is subtracted; RMSNorm takes m = 0, so v is the mean square

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return keeps, None

    def needs_own(self, ranks: tuple[int, ...]) -> tuple[Keeps | None, ...]:
        return None, (Keep.SAME,) * ranks[1]

    def reads_means(self, uncentred: int) -> bool:
        return self.centres and uncentred > 0

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Normalise, then apply ``weight`` and ``bias`` (*positions or ones, channels)."""
        block, total = (x.unflatten(-1, (self.groups, -1)) for x in inputs)
        dims = [*(axis + 1 for axis in self.axes), -1]
        centre = total.mean(dims, keepdim=True) if self.centres else total.new_zeros(())
        scale = ((total - centre).square().mean(dims, keepdim=True) + self.eps).sqrt()
        value: Tensor = ((block - centre) / scale).flatten(-2)
        weight, bias = weights
        if weight is not None:
            value = weight * value
        return value if bias is None else value + bias
