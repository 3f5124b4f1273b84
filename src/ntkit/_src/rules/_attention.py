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

from ntkit._src.program import Attention, Keep, Keeps, LogitSamples, MaskedAttention, Node, Program
from ntkit.errors import InputError

from ._axes import Tokens, both_sides, own_tokens, unmerged
from ._covariance import Covariance, Ends, Moments
from ._input import run_prefix
from ._rule import Inputs, Rule, Step
from ._sampled_attention import sampled_attention
from .expectations import dual


class AttentionRule(Rule[Attention], ops=(Attention, MaskedAttention)):
    """Attention; its channels are centred, as those of the values are."""

    sizes = True

    def covariance(self, step: Step[Attention], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        op = step.op
        same = all(keep is Keep.SAME for keep in keeps) and (op.on_data or not op.sampled)
        *logits, v = map(Tokens.of, inputs)
        if op.scaling == "linear":
            nngp, ntk = _constant_logits(step, v, ends, same)
        else:
            q, k = logits
            if op.sampled:
                hidden = hidden_at(step, ends, (v.nngp.shape[-2], v.nngp.shape[-1]))
                nngp, ntk = sampled_attention(step, q, k, v, ends, same, hidden)
            elif op.linear_in_logits:
                nngp, ntk = _identity(step, q, k, v, ends, same)
            else:
                nngp, ntk = _elementwise(step, q, k, v, ends, same)
        kept = (Keep.SAME if same else Keep.ALL,) * len(keeps)
        positions, others = step.positions(ends)
        tangent = None if ntk is None else unmerged(ntk, positions, same, others)
        return Covariance(unmerged(nngp, positions, same, others), tangent, kept).restrict(keeps)

    def read(self, program: Program, node: Node, x: Tensor, dtype: torch.dtype) -> dict[tuple[int, int], Tensor]:
        op = node.op
        if not isinstance(op, MaskedAttention):
            return {}
        hidden = run_prefix(program, op.prefix, node.path, x).to(dtype)
        own = op.hidden()
        blind = (hidden > 0) if own is None else (hidden > 0) | own.to(hidden.device)
        if bool(blind.all(-1).any()):
            row = int(blind.all(-1).any(-1).nonzero()[0])
            raise InputError(
                f"{node.path}: the mask of attention hides every token from a query of input {row}. "
                "Expected masks that leave at least one; leave out inputs without tokens."
            )
        return {(op.prefix, 0): hidden}

    def workspace(self, op: Attention, positions: tuple[int, ...], keeps: Keeps) -> int:
        tokens = math.prod(positions)
        if op.scaling == "linear" or op.linear_in_logits:
            return 4 * tokens**2
        if op.sampled:
            return (8 * LogitSamples.BLOCK + 12) * tokens**2
        same = all(keep is Keep.SAME for keep in keeps)
        return 12 * tokens ** (2 if same else 3)


def hidden_at(step: Step[Attention], ends: Ends, tokens: tuple[int, int]) -> list[Tensor | None]:
    """Return which keys are hidden from which queries of x and of x', each (n or 1, tokens, tokens); None if no key is."""
    found: list[Tensor | None] = []
    for op, side, size in zip(step.ops(ends), (ends.first, ends.second), tokens, strict=True):
        own = op.hidden()
        hidden = None if own is None else own.to(side.like.device)[None]
        if isinstance(op, MaskedAttention):
            given = (side.data[op.prefix, 0] > 0).expand(-1, size, size)
            hidden = given if hidden is None else given | hidden
        found.append(hidden)
    return found


def _constant_logits(step: Step[Attention], v: Tokens, ends: Ends, same: bool) -> tuple[Tensor, Tensor | None]:
    sizes = v.nngp.shape[-2:]
    hidden = hidden_at(step, ends, (sizes[0], sizes[1]))
    sides = zip(step.ops(ends), (ends.first, ends.second), sizes, hidden, strict=True)
    first, second = (
        _weights(op, step.node, side, v.nngp.new_zeros(1, size, size), own) for op, side, size, own in sides
    )

    def average(k: Tensor) -> Tensor:
        return both_sides(first, k, second, ends.pair_dims, same)

    return average(v.nngp), None if v.ntk is None else average(v.ntk)


def _weights(op: Attention, node: Node, side: Moments, zero: Tensor, hidden: Tensor | None) -> Tensor:
    """Return A(x), shape (n, P, P), or (1, P, P) where the logits vanish, as ``zero`` has it."""
    return op.weights(zero if not op.tied else op.gain * own_tokens(side, node.inputs[0]), hidden)


def _visible(step: Step[Attention], k: Tensor, ends: Ends) -> tuple[Tensor, Tensor] | None:
    """Return ones where the queries of x and of x' see a key, broadcastable to (pairs, P, P); None if they see all."""
    hidden = hidden_at(step, ends, (k.shape[-2], k.shape[-1]))
    if all(own is None for own in hidden):
        return None
    first, second = (
        k.new_ones(1, size, size) if own is None else (~own).to(k)
        for own, size in zip(hidden, k.shape[-2:], strict=True)
    )
    return (first[:, None], second[None]) if ends.pair_dims == 2 else (first, second)


def _identity(
    step: Step[Attention], q: Tokens, k: Tokens, v: Tokens, ends: Ends, same: bool
) -> tuple[Tensor, Tensor | None]:
    """K' = K_q sum_bb' K_k K_v, the sums over the keys that a and a' see; likewise T'."""
    op, visible = step.op, _visible(step, k.nngp, ends)

    def seen(entries: Tensor) -> Tensor:
        if visible is None:
            total = op.gain**2 * entries.sum((-2, -1))
            return total[..., None] if same else total[..., None, None]
        half = op.gain**2 * visible[0] @ entries
        return (half * visible[1]).sum(-1) if same else half @ visible[1].mT

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
    step: Step[Attention], q: Tokens, k: Tokens, v: Tokens, ends: Ends, same: bool
) -> tuple[Tensor, Tensor | None]:
    """Integrate query by query: the expectations of one query a with all queries a' take P^3 entries per pair."""
    op, node = step.op, step.node
    assert op.phi is not None
    own = [[side.variance[read].flatten(1) for side in (ends.first, ends.second)] for read in node.inputs[:2]]
    (q1, q2), (k1, k2) = ([v1[:, None], v2[None]] if ends.pair_dims == 2 else [v1, v2] for v1, v2 in own)
    square = op.gain**2
    visible = _visible(step, k.nngp, ends)
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
            first, second = visible
            left, right = (first[..., a, :], second[..., a, :]) if same else (first[..., a, None, :], second)
            seen = left[..., :, None] * right[..., None, :]
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
