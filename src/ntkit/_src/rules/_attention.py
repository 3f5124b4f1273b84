"""Attention in the limit of infinitely many heads of infinite width (Hron et al. 2020; Golikov et al. 2022, section 4.4).

With K_q, K_k, K_v the covariances of queries, keys and values between two inputs and T_q, T_k, T_v their tangent kernels,
which already include the terms of the projections' own weights:

- at 1/d the logits are constants of each input, so A(x) = z(g K_q(x, x)) and K' = A(x) K_v A(x')^T, T' = A(x) T_v A(x')^T;
- at 1/sqrt(d) they are Gaussian with Cov[G_ab(x), G_a'b'(x')] = g^2 K_q[a, a'] K_k[b, b'], so
  K'[a, a'] = sum_bb' E[z z] K_v[b, b'] and T'[a, a'] = sum_bb' E[z z] T_v[b, b']
  + g^2 sum_bb' E[z' z'] K_v[b, b'] (T_q[a, a'] K_k[b, b'] + K_q[a, a'] T_k[b, b']).

Softmax at 1/sqrt(d) has no closed form: ``_sampled_attention``.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntkit._src.program import Attention, Keep, Keeps, LogitSamples, Node

from ._axes import Tokens, both_sides, own_tokens, unmerged
from ._covariance import Covariance, Ends, Moments
from ._rule import Inputs, Rule, Step
from ._sampled_attention import sampled_attention
from .expectations import dual


class AttentionRule(Rule[Attention], ops=(Attention,)):
    """Attention; its channels are centred, as those of the values are."""

    def covariance(self, step: Step[Attention], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        op, node = step.op, step.node
        same = all(keep is Keep.SAME for keep in keeps) and (op.on_data or not op.sampled)
        *logits, v = map(Tokens.of, inputs)
        if op.scaling == "linear":
            nngp, ntk = _constant_logits(op, node, v, ends, same)
        else:
            q, k = logits
            if op.sampled:
                nngp, ntk = sampled_attention(step, q, k, v, ends, same)
            elif op.linear_in_logits:
                nngp, ntk = _identity(op, q, k, v, same)
            else:
                nngp, ntk = _elementwise(op, node, q, k, v, ends, same)
        kept = (Keep.SAME if same else Keep.ALL,) * len(keeps)
        tangent = None if ntk is None else unmerged(ntk, node.positions, same)
        return Covariance(unmerged(nngp, node.positions, same), tangent, kept).restrict(keeps)

    def workspace(self, op: Attention, positions: tuple[int, ...], keeps: Keeps) -> int:
        tokens = math.prod(positions)
        if op.scaling == "linear" or op.linear_in_logits:
            return 4 * tokens**2
        if op.sampled:
            return (8 * LogitSamples.BLOCK + 12) * tokens**2
        same = all(keep is Keep.SAME for keep in keeps)
        return 12 * tokens ** (2 if same else 3)


def _constant_logits(op: Attention, node: Node, v: Tokens, ends: Ends, same: bool) -> tuple[Tensor, Tensor | None]:
    first, second = (_weights(op, node, side, v.nngp) for side in (ends.first, ends.second))

    def average(k: Tensor) -> Tensor:
        return both_sides(first, k, second, ends.pair_dims, same)

    return average(v.nngp), None if v.ntk is None else average(v.ntk)


def _weights(op: Attention, node: Node, side: Moments, like: Tensor) -> Tensor:
    """Return A(x), shape (n, P, P), or (1, P, P) where the logits vanish."""
    if not op.tied:
        return op.weights(like.new_zeros(1, *like.shape[-2:]))
    return op.weights(op.gain * own_tokens(side, node.inputs[0]))


def _identity(op: Attention, q: Tokens, k: Tokens, v: Tokens, same: bool) -> tuple[Tensor, Tensor | None]:
    """K' = K_q sum_bb' K_k K_v, the sums over the keys that a and a' see; likewise T'."""
    hidden = op.hidden()

    def seen(entries: Tensor) -> Tensor:
        if hidden is None:
            total = op.gain**2 * entries.sum((-2, -1))
            return total[..., None] if same else total[..., None, None]
        visible = (~hidden).to(entries)
        half = op.gain**2 * visible @ entries
        return (half * visible).sum(-1) if same else half @ visible.T

    nngp = q.nngp * seen(k.nngp * v.nngp)
    terms = []
    if q.ntk is not None:
        terms.append(q.ntk * seen(k.nngp * v.nngp))
    if k.ntk is not None:
        terms.append(q.nngp * seen(k.ntk * v.nngp))
    if v.ntk is not None:
        terms.append(q.nngp * seen(k.nngp * v.ntk))
    return nngp, sum(terms[1:], start=terms[0]) if terms else None


def _elementwise(
    op: Attention, node: Node, q: Tokens, k: Tokens, v: Tokens, ends: Ends, same: bool
) -> tuple[Tensor, Tensor | None]:
    """Integrate query by query: the expectations of one query a with all queries a' take P^3 entries per pair."""
    assert op.phi is not None
    own = [[side.variance[read].flatten(1) for side in (ends.first, ends.second)] for read in node.inputs[:2]]
    (q1, q2), (k1, k2) = ([v1[:, None], v2[None]] if ends.pair_dims == 2 else [v1, v2] for v1, v2 in own)
    square = op.gain**2
    hidden = op.hidden()
    visible = None if hidden is None else (~hidden).to(k.nngp)
    tangent = q.ntk is not None or k.ntk is not None
    rows: list[Tensor] = []
    tangents: list[Tensor] = []
    for a in range(q1.shape[-1]):
        # (pairs, b, b') for the query a itself, (pairs, a', b, b') with every query a'.
        others = a if same else slice(None)
        pick = (..., a) if same else (..., a, slice(None))
        spread = (..., None, None)
        kk = k.nngp if same else k.nngp[..., None, :, :]
        vv = v.nngp if same else v.nngp[..., None, :, :]
        variance1 = square * q1[..., a, None] * k1  # (pairs, b)
        variance1 = variance1[..., None] if same else variance1[..., None, :, None]
        variance2 = square * q2[..., others, None] * (k2 if same else k2[..., None, :])  # (pairs, [a',] b')
        value, slope = dual(op.phi, square * q.nngp[pick][spread] * kk, variance1, variance2[..., None, :], tangent)
        if visible is not None:
            seen = visible[a][:, None] * visible[others][..., None, :]
            value = value * seen
            slope = None if slope is None else slope * seen
        rows.append((value * vv).sum((-2, -1)))
        terms = []
        if v.ntk is not None:
            terms.append((value * (v.ntk if same else v.ntk[..., None, :, :])).sum((-2, -1)))
        if slope is not None:
            weighted = square * slope * vv
            if q.ntk is not None:
                terms.append(q.ntk[pick] * (weighted * kk).sum((-2, -1)))
            if k.ntk is not None:
                terms.append(q.nngp[pick] * (weighted * (k.ntk if same else k.ntk[..., None, :, :])).sum((-2, -1)))
        if terms:
            tangents.append(sum(terms[1:], start=terms[0]))
    dim = -1 if same else -2
    return torch.stack(rows, dim), torch.stack(tangents, dim) if tangents else None
