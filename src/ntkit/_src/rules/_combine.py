"""Sums, products and concatenations of fields, and constants."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

from torch import Tensor

from ntkit._src.program import Concat, Node, Product, Sum

from ._covariance import Covariance, Ends, Moments
from ._token_axes import spread_tokens

__all__ = ["combined_mean", "concat", "product", "total"]


def total(op: Sum, node: Node, terms: tuple[Covariance, ...], ends: Ends) -> Covariance:
    """Add independent fields: K' = sum c_i^2 K_i + sum over i != j of c_i c_j m_i m_j', Theta' = sum c_i^2 Theta_i.

    The second sum is nonzero only if two terms have channels that are not centred, such as two ReLU branches.
    """
    keeps = terms[0].keeps
    affine = terms[0].affine if len(terms) == 1 else None  # a multiple of a field keeps its A: u and v are scaled
    if affine is None:
        terms = tuple(term.settled() for term in terms)
    nngp = reduce(Tensor.add, (_scaled(term.nngp, c * c) for c, term in zip(op.coefficients, terms, strict=True)))
    ntk = _add(*(_times(term.ntk, c * c) for c, term in zip(op.coefficients, terms, strict=True)))
    means = [(c, ends.means(read, keeps)) for c, read in zip(op.coefficients, node.inputs, strict=True)]
    present = [(c * mean[0], c * mean[1]) for c, mean in means if mean is not None]
    for i, (first, _) in enumerate(present):
        for j, (_, second) in enumerate(present):
            if i != j:
                nngp = nngp + first * second
    if op.cross is not None:  # drop H, which would need the same term at both ends
        nngp = nngp + spread_tokens(op.cross.to(nngp), node.positions, keeps, ends.pair_dims).nngp
        return Covariance(nngp, ntk, keeps, affine)
    h = _weighted([c * c for c in op.coefficients], terms)
    if h is not None:
        for i, (first, second) in enumerate(present):
            for other_first, other_second in present[:i]:
                h = h + _apart(terms[0], first, second) * _apart(terms[0], other_first, other_second)
    return Covariance(nngp, ntk, keeps, affine, h, terms[0].ratio)


def product(first: Covariance, second: Covariance) -> Covariance:
    """Multiply independent fields: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2."""
    first, second = first.settled(), second.settled()
    ntk = _add(
        None if first.ntk is None else first.ntk * second.nngp,
        None if second.ntk is None else first.nngp * second.ntk,
    )
    return Covariance(first.nngp * second.nngp, ntk, first.keeps)


def concat(op: Concat, blocks: tuple[Covariance, ...]) -> Covariance:
    """Concatenate channels: the mean of the covariances weighted by width."""
    blocks = tuple(block.settled() for block in blocks)
    nngp = reduce(Tensor.add, (_scaled(block.nngp, f) for f, block in zip(op.fractions, blocks, strict=True)))
    ntk = _add(*(_times(block.ntk, f) for f, block in zip(op.fractions, blocks, strict=True)))
    return Covariance(nngp, ntk, blocks[0].keeps, h=_weighted(op.fractions, blocks), ratio=blocks[0].ratio)


def combined_mean(node: Node, moments: Moments) -> Tensor | None:
    """Return the channels' mean of a sum, product or concatenation; None if it is zero."""
    means = [moments.mean.get(read) for read in node.inputs]
    op = node.op
    if isinstance(op, Product):
        first, second = means
        return None if first is None or second is None else first * second
    weights = op.coefficients if isinstance(op, Sum) else op.fractions if isinstance(op, Concat) else ()
    return _add(*(_times(mean, weight) for mean, weight in zip(means, weights, strict=True)))


def _weighted(weights: Sequence[float], parts: tuple[Covariance, ...]) -> Tensor | None:
    """Add the H of independent parts; None if any part has none."""
    hs = [part.h for part in parts if part.h is not None]
    return _add(*(_scaled(h, weight) for weight, h in zip(weights, hs, strict=True))) if len(hs) == len(parts) else None


def _apart(x: Covariance, first: Tensor, second: Tensor) -> Tensor:
    """Return the difference of the means at both ends that H is about."""
    return (first if x.multiple is None else x.multiple * first) - second


def _times(value: Tensor | None, factor: float) -> Tensor | None:
    return None if value is None else _scaled(value, factor)


def _scaled(value: Tensor, factor: float) -> Tensor:
    """Return factor times a value; a factor of one, that of every skip connection, costs nothing."""
    return value if isinstance(factor, (int, float)) and factor == 1 else factor * value


def _add(*values: Tensor | None) -> Tensor | None:
    present = [value for value in values if value is not None]
    return reduce(Tensor.add, present) if present else None
