"""Batch normalisation in evaluation mode: an affine map whose statistics are fixed numbers."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._program import Op, Values, Weights


@dataclass(frozen=True)
class FixedNorm(Op):
    """y = ``scale`` x, then a weight of one and a bias of zero for each channel, which may be trained."""

    scale: float  # 1 / sqrt(running variance + eps)
    weight_trained: bool
    bias_trained: bool

    def label(self) -> str:
        return "batch norm, fixed statistics"

    def finite(self, inputs: Values, weights: Weights) -> Tensor:
        """Scale, then apply ``weight`` and ``bias`` (channels,)."""
        weight, bias = weights
        value = self.scale * inputs[0]
        if weight is not None:
            value = weight * value
        return value if bias is None else value + bias
