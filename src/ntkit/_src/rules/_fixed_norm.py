"""Batch normalisation with fixed statistics."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.program import FixedNorm, Keeps

from ._covariance import Covariance, Ends, Moments
from ._rule import Inputs, Rule, Step


class FixedNormRule(Rule[FixedNorm], ops=(FixedNorm,)):
    """K' = c^2 K and Theta' = c^2 Theta + u v + 1, the last two terms for a trained weight and bias; u, v: its values."""

    keeps_h = True
    local = True

    def covariance(self, step: Step[FixedNorm], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), op = inputs, step.op
        square, one = op.scale**2, x.nngp.new_ones((1,) * x.nngp.ndim)
        nngp, affine = square * x.nngp, x.affine
        ntk = None if x.ntk is None else square * x.ntk
        if op.bias_trained:
            ntk = one.expand_as(nngp) if ntk is None else ntk + one
        if op.weight_trained:
            affine = one if affine is None else affine + one
        return Covariance(nngp, ntk, x.keeps, affine, None if x.h is None else square * x.h, x.ratio)

    def mean(self, step: Step[FixedNorm], known: Moments) -> Tensor | None:
        mean = known.mean.get(step.node.inputs[0])
        return None if mean is None else step.op.scale * mean
