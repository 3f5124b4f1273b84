"""The data, or a covariance in their place."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._op import Source, Values, Weights


@dataclass(frozen=True)
class Input(Source):
    """K = x . x' / C of the data, after the deterministic part of the network that comes before the first random layer."""

    prefix: int  # index into ``Program.prefixes``
    channel: int  # the dimension of the prefix's output with the C channels; 0 is the batch, the others are positions
    channels: int  # C

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Move the channels of the prefix's output, ``inputs[0]``, last."""
        return inputs[0].movedim(self.channel, -1)


@dataclass(frozen=True, eq=False)
class Prior(Source):
    """A random input whose channels are independent Gaussians with a known covariance over positions."""

    def label(self) -> str:
        return "prior"


@dataclass(frozen=True, eq=False)
class StationaryPrior(Prior):
    """K[p, p'] = ``same`` where p = p' and ``other`` elsewhere, over axes of lengths ``positions``."""

    positions: tuple[int, ...]
    same: float | Tensor
    other: float | Tensor


@dataclass(frozen=True, eq=False)
class GivenPrior(Prior):
    """K[p, p'] as given: ``covariance`` of shape (P1, P2, ..., P1, P2, ...), the positions of x first."""

    covariance: Tensor
