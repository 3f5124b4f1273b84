"""The data."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._op import Keeps, Op, Values, Weights

__all__ = ["Input"]


@dataclass(frozen=True)
class Input(Op):
    """K = x . x' / C of the data, after the deterministic part of the network that comes before the first random layer.

    Attributes
    ----------
    prefix
        Index into ``Program.prefixes``.
    channel
        The dimension of the prefix's output that holds the C channels; dimension 0 holds the batch, the others are positions.
    channels
        C.
    """

    prefix: int
    channel: int
    channels: int

    def needs(self, keeps: Keeps) -> tuple[Keeps | None, ...]:
        return ()

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Move the channels of the prefix's output, ``inputs[0]``, last."""
        return inputs[0].movedim(self.channel, -1)
