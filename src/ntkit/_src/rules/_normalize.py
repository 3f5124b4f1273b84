"""LayerNorm, GroupNorm and RMSNorm in the limit: the statistics over infinitely many channels are constants of each input."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.program import Keeps, Normalize

from ._axes import diagonal_mask
from ._covariance import Covariance, Ends, Moments
from ._rule import Cut, Inputs, Parts, Prefixes, Rule, Step, Window
from ._sketch import Draws, Features
from .expectations import half_apart, safe_sqrt


class NormalizeRule(Rule[Normalize], ops=(Normalize,)):
    """y = (x - m) / s, s^2 = v + eps, then the affine parameters at their initial values, one and zero.

    K' = (K - m m') / (s s') for centred channels m = 0; Theta' = Theta / (s s') + u v + 1, the last two terms for a
    trained affine weight and bias; u v, the product of the channel's own values, has mean K'. The gradients of m and s
    vanish in the limit: each is a mean over all channels. RMSNorm has m = 0 and v = K, whatever the channels' mean.
    """

    keeps_h = True
    reads_ratio = True
    sizes = True

    def covariance(self, step: Step[Normalize], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), op = inputs, step.op
        block, total = step.node.inputs
        centre1, scale1 = _statistics(op, total, ends.first)
        centre2, scale2 = _statistics(op, total, ends.second)
        s1, s2 = ends.spread(scale1, scale2, x.keeps)
        k, h = x.nngp, None
        if centre1 is not None and centre2 is not None:
            x = x.settled()  # an earlier gain multiplies values that are not centred yet
            m1, m2 = ends.spread(centre1, centre2, x.keeps)
            b1, b2 = ends.means(block, x.keeps) or (0.0, 0.0)
            k = k - b1 * m2 - m1 * b2 + m1 * m2
        else:
            h = _normalized_h(x, s1, s2, ends.variances(block, x.keeps))
        scale = s1 * s2
        k = k / scale
        ntk = None if x.ntk is None else x.ntk / scale
        mask = diagonal_mask(x, op.affine_axes)
        if op.bias_trained:
            ntk = mask.expand_as(k) if ntk is None else ntk + mask
        affine = x.affine  # from an earlier normalisation; divided by s s', as u v are
        if op.weight_trained:
            affine = mask if affine is None else affine + mask
        return Covariance(k, ntk, x.keeps, affine, h)

    def mean(self, step: Step[Normalize], known: Moments) -> Tensor:
        """Return the mean of the block after normalisation: zero unless the block is part of a concatenation."""
        block, total = step.node.inputs
        centre, scale = _statistics(step.op, total, known)
        mean = known.mean.get(block, 0.0 * known.variance[total])
        return (mean - (0.0 if centre is None else centre)) / scale

    def reads_variance(self, op: Normalize) -> bool:
        return True

    def scales(self, op: Normalize, inputs: bool) -> bool:
        return False

    def crop(self, step: Step[Normalize], window: Window, prefixes: Prefixes) -> Cut | None:
        return None if step.op.axes or step.op.affine_axes else Cut(step.op, (window, window))

    def without_random_features(self, step: Step[Normalize]) -> str | None:
        if step.op.weight_trained or step.op.bias_trained or not step.sources[1].node.centred:
            return "a normalisation with trained affine parameters, or of channels with a mean, has no random features"
        return None

    def random_features(self, step: Step[Normalize], inputs: Parts, data: Moments, draws: Draws) -> Features:
        square = _mean_over(inputs[1].phi.square().sum(-1), step.op.axes)
        scale = (square + step.op.eps).rsqrt()[..., None]
        return inputs[0].map(lambda v: v * scale)


def _normalized_h(x: Covariance, s1: Tensor, s2: Tensor, variances: tuple[Tensor, Tensor] | None) -> Tensor | None:
    """H' = A / (s s') + (d / s - d' / s')^2 / 2 of centred channels, with deviations d and A = d d' - K = H - (d - d')^2 / 2.

    With a ratio r, r A = H - (r d - d')^2 / 2. H' as a difference of H and terms of similar size would lose digits.
    """
    if x.h is None or variances is None:
        return None
    d1, d2 = (safe_sqrt(q) for q in variances)
    if x.multiple is None:
        apart, _ = half_apart(x.h, d1, d2)
    else:
        apart = half_apart(x.h, x.multiple * d1, d2)[0] / x.multiple
    return apart / (s1 * s2) + (d1 / s1 - d2 / s2) ** 2 / 2


def _statistics(op: Normalize, total: int, moments: Moments) -> tuple[Tensor | None, Tensor]:
    square = _mean_over(moments.variance[total], op.axes)
    if total not in moments.mean or not op.centres:
        return None, (square + op.eps).sqrt()
    centre = _mean_over(moments.mean[total], op.axes)
    return centre, (square - centre.square() + op.eps).sqrt()


def _mean_over(values: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Average values (n, *positions) over axes, which are kept with length one."""
    return values.mean([axis + 1 for axis in axes], keepdim=True) if axes else values
