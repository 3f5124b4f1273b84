"""Softmax attention at 1/sqrt(d): a mean over drawn logits.

One sample of the logits of two inputs is G = g F_q E F_k^T, with E standard normal and F_q F_q^T, F_k F_k^T the joint
covariances of the queries and of the keys of both inputs. Z = softmax(G) then gives K' = mean Z K_v Z'^T, and with the
Jacobian W_a = diag(Z_a) - Z_a Z_a^T

T'[a, a'] = mean (Z T_v Z'^T)[a, a'] + g^2 mean sum_ee' (W_a K_v W'_a')[e, e'] (T_q[a, a'] K_k[e, e'] + K_q[a, a'] T_k[e, e']).

Where queries and keys are linear in the data, F is the data and E serves all inputs at once: the kernel is then positive
semidefinite by construction. Otherwise F is a Cholesky factor for each pair, and this holds only up to the sampling error.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor

from ntkit._src.program import Attention, Dense, Input, Node, Op

from ._axes import Tokens, own_tokens
from ._covariance import Ends, Moments
from ._rule import Step

Softmax = Callable[[Tensor], Tensor]
_RANK = 1e-12  # fraction of a token's variance below which the remainder is rounding


def sampled_attention(
    step: Step[Attention], q: Tokens, k: Tokens, v: Tokens, ends: Ends, same: bool, hidden: Sequence[Tensor | None]
) -> tuple[Tensor, Tensor | None]:
    """Average over the samples of the operation; return K and Theta of the tokens, or their diagonals if ``same``.

    ``hidden`` says which keys are hidden from which queries of x and of x', shape (n or 1, P, P), None: none.
    """
    op, ops = step.op, step.ops(ends)

    def softmax(side: int, spread: bool) -> Softmax:
        """Return the weights of x or of x' as a function of logits, of pairs if ``spread``."""
        own = hidden[side]
        if own is not None and spread:
            own = own[None] if side else own[:, None]
        return partial(ops[side].weights, hidden=own)

    if op.on_data:
        return _mean(op, _data_weights(step, ends, q.nngp, (softmax(0, False), softmax(1, False))), q, k, v, same)
    if ends.pair_dims == 1:
        own_weights = _own_weights(op, step.node, ends.first, softmax(0, False))
        return _mean(op, ((z, z) for z in own_weights), q, k, v, same)
    owns = [[own_tokens(side, read) for read in step.node.inputs[:2]] for side in (ends.first, ends.second)]
    first, second = [o[:, None] for o in owns[0]], [o[None] for o in owns[1]]
    one, other = softmax(0, True), softmax(1, True)
    # The factor of a pair depends on which input comes first; averaging both orders makes K(x, x') = K(x', x)^T.
    there = _mean(op, _joint_weights(op, first, [q.nngp, k.nngp], second, one, other), q, k, v, same)
    tq, tk, tv = (part.transposed for part in (q, k, v))
    back = _mean(op, _joint_weights(op, second, [tq.nngp, tk.nngp], first, other, one), tq, tk, tv, same)
    ntk = None if there[1] is None or back[1] is None else (there[1] + back[1].mT) / 2
    return (there[0] + back[0].mT) / 2, ntk


def _mean(
    op: Attention, weights: Iterator[tuple[Tensor, Tensor]], q: Tokens, k: Tokens, v: Tokens, same: bool
) -> tuple[Tensor, Tensor | None]:
    """Average over blocks of Z and Z', shape (samples, pairs, P, P), which may broadcast over the pairs."""
    assert op.samples is not None
    nngp = torch.zeros((), dtype=v.nngp.dtype, device=v.nngp.device)
    value = by_query = by_key = nngp
    for z1, z2 in weights:
        nngp = nngp + _bilinear(z1, v.nngp, z2, same).sum(0)
        if v.ntk is not None:
            value = value + _bilinear(z1, v.ntk, z2, same).sum(0)
        if q.ntk is not None:
            by_query = by_query + _jacobian(z1, k.nngp, v.nngp, z2, same).sum(0)
        if k.ntk is not None:
            by_key = by_key + _jacobian(z1, k.ntk, v.nngp, z2, same).sum(0)
    terms = [] if v.ntk is None else [value]
    if q.ntk is not None:
        terms.append(op.gain**2 * q.ntk * by_query)
    if k.ntk is not None:
        terms.append(op.gain**2 * q.nngp * by_key)
    count = op.samples.count
    return nngp / count, sum(terms[1:], start=terms[0]) / count if terms else None


def _bilinear(z1: Tensor, m: Tensor, z2: Tensor, same: bool) -> Tensor:
    """Return Z m Z'^T, or its diagonal."""
    half = z1 @ m
    return (half * z2).sum(-1) if same else half @ z2.mT


def _jacobian(z1: Tensor, m: Tensor, v: Tensor, z2: Tensor, same: bool) -> Tensor:
    """Return sum_ee' (W_a v W'_a')[e, e'] m[e, e'], with the Jacobians of softmax multiplied out."""
    left, right = (z1 @ m) * (z1 @ v), (m @ z2.mT) * (v @ z2.mT)
    cross = (left * z2 + z1 * right.mT).sum(-1) if same else left @ z2.mT + z1 @ right
    return _bilinear(z1, m * v, z2, same) + _bilinear(z1, m, z2, same) * _bilinear(z1, v, z2, same) - cross


def _data_weights(
    step: Step[Attention], ends: Ends, like: Tensor, softmax: tuple[Softmax, Softmax]
) -> Iterator[tuple[Tensor, Tensor]]:
    op = step.op
    inputs = [ends.nodes(source.sources[0].index, source.sources[0].node) for source in step.sources[:2]]
    given = (ends.first, ends.second)
    layers = [source.op for source in step.sources[:2]]
    sides = [
        [_features(layer, both[i].op, side) for layer, both in zip(layers, inputs, strict=True)]
        for i, side in enumerate(given)
    ]
    assert op.samples is not None
    for draw in op.samples.draws(sides[0][0].shape[-1], sides[0][1].shape[-1], like):
        z1, z2 = (own(op.gain * (fq @ draw[:, None] @ fk.mT)) for own, (fq, fk) in zip(softmax, sides, strict=True))
        yield (z1[:, :, None], z2[:, None]) if ends.pair_dims == 2 else (z1, z2)


def _features(dense: Op, data: Op, side: Moments) -> Tensor:
    """Return F with F F'^T = K of a linear layer of raw data, shape (n, P, C) or (n, P, C + 1) with a bias."""
    assert isinstance(dense, Dense)
    assert isinstance(data, Input)
    x = side.data[data.prefix, data.channel].flatten(1, -2)
    weight = torch.as_tensor(dense.gains.w_std).to(x)
    bias = torch.as_tensor(dense.gains.b_std).to(x)
    return torch.cat([weight * x / x.shape[-1] ** 0.5, bias.expand(*x.shape[:-1], 1)], -1)


def _own_weights(op: Attention, node: Node, side: Moments, softmax: Softmax) -> Iterator[Tensor]:
    fq, fk = (_factor(own_tokens(side, read)) for read in node.inputs[:2])
    tokens = fq.shape[-1]
    assert op.samples is not None
    for draw in op.samples.draws(2 * tokens, 2 * tokens, fq):
        yield softmax(op.gain * (fq @ draw[:, None, :tokens, :tokens] @ fk.mT))


def _joint_weights(
    op: Attention, first: list[Tensor], cross: list[Tensor], second: list[Tensor], softmax1: Softmax, softmax2: Softmax
) -> Iterator[tuple[Tensor, Tensor]]:
    factors = []
    for own1, between, own2 in zip(first, cross, second, strict=True):
        shape = between.shape[:-2]
        own1, own2 = (own.expand(*shape, *own.shape[-2:]) for own in (own1, own2))
        factors.append(_factor(torch.cat([torch.cat([own1, between], -1), torch.cat([between.mT, own2], -1)], -2)))
    fq, fk = factors
    tokens = first[0].shape[-1]
    assert op.samples is not None
    for draw in op.samples.draws(fq.shape[-1], fq.shape[-1], fq):
        draw = draw[:, None, None]
        yield (
            softmax1(op.gain * (fq[..., :tokens, :] @ draw @ fk[..., :tokens, :].mT)),
            softmax2(op.gain * (fq[..., tokens:, :] @ draw @ fk[..., tokens:, :].mT)),
        )


def _factor(k: Tensor) -> Tensor:
    """Return the lower triangular L, L L^T = K positive semidefinite, shape (..., P, P); a dependent token's pivot is zero."""
    size = k.shape[-1]
    least = _RANK * k.diagonal(dim1=-2, dim2=-1)
    rest = k
    columns = []
    for j in range(size):
        pivot = rest[..., j, j]
        free = pivot > least[..., j]
        root = torch.where(free, pivot, 1.0).sqrt()
        column = torch.where(free[..., None], rest[..., :, j] / root[..., None], 0.0)
        column = torch.cat([torch.zeros_like(column[..., :j]), column[..., j:]], -1)
        columns.append(column)
        rest = rest - column[..., :, None] * column[..., None, :]
    return torch.stack(columns, -1)
