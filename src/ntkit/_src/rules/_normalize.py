"""LayerNorm, GroupNorm and RMSNorm in the limit: the statistics over infinitely many channels are constants of each input."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.program import Node, Normalize

from ._covariance import Covariance, Ends, Moments, diagonal_mask
from ._positions import merge_mean
from .expectations import half_apart, safe_sqrt

__all__ = ["normalize", "normalized_mean"]


def normalize(op: Normalize, node: Node, x: Covariance, ends: Ends) -> Covariance:
    """Apply y = (x - m) / s, s^2 = v + eps, then the affine parameters at their initial values, one and zero.

    K' = (K - m m') / (s s') for centred channels m = 0; Theta' = Theta / (s s') + u v + 1, the last two terms for a
    trained affine weight and bias; u v, the product of the channel's own values, has mean K'. The gradients of m and s
    vanish in the limit: each is a mean over all channels. RMSNorm has m = 0 and v = K, whatever the channels' mean.
    """
    block, total = node.inputs
    centre1, scale1 = _statistics(op, total, ends.first)
    centre2, scale2 = _statistics(op, total, ends.second)
    if centre1 is not None:
        x = x.settled()  # an earlier gain multiplies values that are not centred yet
    s1, s2 = ends.spread(scale1, scale2, x.keeps)
    k = x.nngp
    means = ends.means(block, x.keeps)
    if centre1 is not None and centre2 is not None:
        m1, m2 = ends.spread(centre1, centre2, x.keeps)
        b1, b2 = (0.0, 0.0) if means is None else means
        k = k - b1 * m2 - m1 * b2 + m1 * m2
    h = _normalized_h(x, s1, s2, ends.variances(block, x.keeps)) if centre1 is None else None
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


def _normalized_h(x: Covariance, s1: Tensor, s2: Tensor, variances: tuple[Tensor, Tensor] | None) -> Tensor | None:
    """H' = A / (s s') + (d / s - d' / s')^2 / 2 of centred channels, with deviations d and A = d d' - K = H - (d - d')^2 / 2.

    With a ratio r, r A = H - (r d - d')^2 / 2. Dividing A loses no digits; computing H' as a difference of H and terms of similar
    size would.
    """
    if x.h is None or variances is None:
        return None
    d1, d2 = (safe_sqrt(q) for q in variances)
    if x.multiple is None:
        apart, _ = half_apart(x.h, d1, d2)
    else:
        apart = half_apart(x.h, x.multiple * d1, d2)[0] / x.multiple
    return apart / (s1 * s2) + (d1 / s1 - d2 / s2) ** 2 / 2


def normalized_mean(op: Normalize, node: Node, moments: Moments) -> Tensor:
    """Return the channels' mean of the block after normalisation: zero unless the block is part of a concatenation."""
    block, total = node.inputs
    centre, scale = _statistics(op, total, moments)
    mean = moments.mean.get(block, 0.0 * moments.variance[total])
    return (mean - (0.0 if centre is None else centre)) / scale


def _statistics(op: Normalize, total: int, moments: Moments) -> tuple[Tensor | None, Tensor]:
    square = merge_mean(moments.variance[total], op.axes)
    if total not in moments.mean or not op.centres:
        return None, (square + op.eps).sqrt()
    centre = merge_mean(moments.mean[total], op.axes)
    return centre, (square - centre.square() + op.eps).sqrt()
