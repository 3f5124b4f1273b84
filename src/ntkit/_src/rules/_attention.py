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

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.program import Attention, Keep, Keeps, Node

from ._both_sides import both_sides
from ._covariance import Covariance, Ends, Moments
from ._token_axes import merged, unmerged
from .expectations import dual

__all__ = ["Tokens", "attention", "own_tokens", "restored"]


@dataclass(frozen=True)
class Tokens:
    """A covariance with all position axes merged into one axis of tokens.

    Attributes
    ----------
    nngp, ntk
        K and Theta, shape (pairs, P, P'), or (pairs, P) if only K[a, a] is kept; Theta may be None.
    """

    nngp: Tensor
    ntk: Tensor | None

    @classmethod
    def of(cls, x: Covariance) -> Tokens:
        """Merge the position axes."""
        x = x.settled()
        return cls(merged(x.nngp, x.keeps), None if x.ntk is None else merged(x.ntk, x.keeps))

    @property
    def transposed(self) -> Tokens:
        """The covariance with the two inputs exchanged; all pairs of tokens must be kept."""
        return Tokens(self.nngp.mT, None if self.ntk is None else self.ntk.mT)


def attention(op: Attention, node: Node, inputs: tuple[Covariance, ...], keeps: Keeps, ends: Ends) -> Covariance:
    """Apply attention whose expectations have closed forms or are one-dimensional integrals."""
    same = all(keep is Keep.SAME for keep in keeps)
    if op.scaling == "linear":
        nngp, ntk = _constant_logits(op, node, Tokens.of(inputs[-1]), ends, same)
    elif op.linear_in_logits:
        q, k, v = map(Tokens.of, inputs)
        nngp, ntk = _identity(op, q, k, v, same)
    else:
        q, k, v = map(Tokens.of, inputs)
        nngp, ntk = _elementwise(op, node, q, k, v, ends, same)
    return restored(nngp, ntk, node.positions, keeps, same)


def restored(nngp: Tensor, ntk: Tensor | None, positions: tuple[int, ...], keeps: Keeps, same: bool) -> Covariance:
    """Restore the position axes of the tokens and drop what is not kept."""
    kept = (Keep.SAME if same else Keep.ALL,) * len(keeps)
    parts = [None if k is None else unmerged(k, positions, same) for k in (nngp, ntk)]
    assert parts[0] is not None
    return Covariance(parts[0], parts[1], kept).restrict(keeps)


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
    q1, q2 = _spread(ends, *(_variances(side, node.inputs[0]) for side in (ends.first, ends.second)))
    k1, k2 = _spread(ends, *(_variances(side, node.inputs[1]) for side in (ends.first, ends.second)))
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


def own_tokens(side: Moments, read: int) -> Tensor:
    """Return K(x, x) of a node that keeps all pairs of positions, shape (n, P, P)."""
    own = side.own[read]
    return merged(own, (Keep.ALL,) * ((own.ndim - 1) // 2))


def _spread(ends: Ends, first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """Reshape values of each input (n, ...) so that they broadcast over pairs."""
    return (first[:, None], second[None]) if ends.pair_dims == 2 else (first, second)


def _variances(side: Moments, read: int) -> Tensor:
    return side.variance[read].flatten(1)
