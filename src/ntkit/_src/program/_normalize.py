"""Normalisation over the channels."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from ._op import Keep, Keeps, Op, Values, Weights


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

    def label(self) -> str:
        return "normalize"

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
