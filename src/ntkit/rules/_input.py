"""K = x . x' / C and H = |x - x'|^2 / (2 C) of the data."""

from __future__ import annotations

from functools import reduce

import torch
from torch import Tensor

from ntkit.program import Input, Keep, Keeps

from ._covariance import Covariance, Ends

__all__ = ["input_covariance"]

_FEW_CHANNELS = 8  # a sum this short has the same rounding in K(x, x') as in K(x, x)
_NEAR = 1e-6  # threshold of 1 - rho and |x - x'|^2 / (|x|^2 + |x'|^2) below which x . x' is computed from a difference
_BLOCK = 1 << 22  # entries gathered at once


def input_covariance(op: Input, keeps: Keeps, ends: Ends, carry: bool = True) -> Covariance:
    """Return the mean over the channels of x[p] x'[p'], exact to rounding even where x and x' nearly coincide.

    H is left out unless ``carry``.
    """
    key = (op.prefix, op.channel)
    x1, x2 = ends.first.data[key], ends.second.data[key]
    letters = iter("abcdefghijklmnopqrstuvw")
    pair = [next(letters)] * 2 if ends.pair_dims == 1 else [next(letters), next(letters)]
    axes = [[next(letters)] * 2 if keep is Keep.SAME else [next(letters), next(letters)] for keep in keeps]
    sides = ["".join([pair[side], *(axis[side] for axis in axes)]) + "z" for side in (0, 1)]
    output = "".join(dict.fromkeys("".join(pair) + "".join("".join(axis) for axis in axes)))
    channels = x1.shape[-1]
    k = torch.einsum(f"{sides[0]},{sides[1]}->{output}", x1, x2) / channels
    if ends.pair_dims == 1 and Keep.ALL not in keeps:
        return Covariance(k, None, keeps)  # each value with itself: H is zero, which k = q expresses exactly
    if channels <= _FEW_CHANNELS:
        if not carry:
            return Covariance(k, None, keeps)
        spread = (ends.spread(x1[..., c], x2[..., c], keeps) for c in range(channels))
        h = reduce(Tensor.add, ((first - second).square() for first, second in spread)) / (2 * channels)
        return Covariance(k, None, keeps, h=h)
    squares = [torch.einsum("...z,...z->...", x, x) / channels for x in (x1, x2)]
    q1, q2 = ends.spread(squares[0], squares[1], keeps)
    rows = _spread_indices(x1, x2, ends, keeps)
    k, refined = _refine(k, q1, q2, *rows, x1.reshape(-1, channels), x2.reshape(-1, channels), carry)
    return Covariance(k, None, keeps, h=refined)


def _spread_indices(x1: Tensor, x2: Tensor, ends: Ends, keeps: Keeps) -> tuple[Tensor, Tensor]:
    rows = [torch.arange(x.shape[:-1].numel(), device=x.device).reshape(x.shape[:-1]) for x in (x1, x2)]
    return ends.spread(rows[0], rows[1], keeps)


def _refine(
    k: Tensor, q1: Tensor, q2: Tensor, rows1: Tensor, rows2: Tensor, x1: Tensor, x2: Tensor, carry: bool
) -> tuple[Tensor, Tensor | None]:
    """Compute x . x' from a difference where the points are nearly parallel, and return H if ``carry``.

    The correlation of two parallel points must be one: a matrix product that rounds differently from |x|^2 makes it 1 - eps,
    an angle of sqrt(2 eps), and the tangent kernel of a ReLU network is wrong in the eighth digit. Where x and x' nearly
    coincide, H = |x - x'|^2 / 2 and K = (q + q') / 2 - H. Where only their directions do, 1 - rho^2 = |r|^2 / |x'|^2 with r
    the component of x' orthogonal to x.
    """
    s1, s2 = q1.sqrt(), q2.sqrt()
    where = (k > ((1 - _NEAR) * s1) * s2).nonzero(as_tuple=True)
    h = (q1 / 2 - k) + q2 / 2 if carry else None
    if where[0].numel() == 0:
        return k, h
    first, second = (rows.expand_as(k)[where] for rows in (rows1, rows2))
    square1, square2 = (q.expand_as(k)[where] for q in (q1, q2))
    along = (
        k[where] / square1
    ).detach()  # |r|^2 is minimal there, so its derivative with respect to this factor is zero
    step = max(1, _BLOCK // x1.shape[1])
    apart, across = [], []
    for a, b, factor in zip(first.split(step), second.split(step), along.split(step), strict=True):
        left, right = x1[a], x2[b]
        apart.append((left - right).square().mean(1))
        across.append((right - factor[:, None] * left).square().mean(1))
    share = torch.cat(across) / square2
    deviations = square1.sqrt() * square2.sqrt()
    turned = deviations * share / (1 + (1 - share).sqrt())  # s s' (1 - rho)
    coincide = torch.cat(apart) < _NEAR * (square1 + square2)
    own = torch.where(coincide, torch.cat(apart) / 2, turned + (square1.sqrt() - square2.sqrt()) ** 2 / 2)
    value = torch.where(coincide, (square1 + square2) / 2 - own, deviations - turned)
    return k.index_put(where, value), None if h is None else h.index_put(where, own)
