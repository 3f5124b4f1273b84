"""Sums, products and concatenations of fields, and constants."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor

from ntkit._src.program import Concat, Constant, Keeps, Product, Sum

from ._axes import spread_tokens
from ._covariance import Covariance, Ends, Moments
from ._rule import Inputs, Parts, Rule, Step
from ._sketch import Draws, Features


class SumRule(Rule[Sum], ops=(Sum,)):
    """A sum of independent fields: K' = sum c_i^2 K_i + sum over i != j of c_i c_j m_i m_j', Theta' = sum c_i^2 Theta_i."""

    local = True  # a cross term comes with a table, which is computed whole
    sizes = True

    def covariance(self, step: Step[Sum], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        op, terms = step.op, inputs
        affine = terms[0].affine if len(terms) == 1 else None  # a multiple of a field keeps its A: u and v are scaled
        if affine is None:
            terms = tuple(term.settled() for term in terms)
        nngp, ntk, h = _weighted([c * c for c in op.coefficients], terms)
        means = [(c, ends.means(read, keeps)) for c, read in zip(op.coefficients, step.node.inputs, strict=True)]
        present = [(c * mean[0], c * mean[1]) for c, mean in means if mean is not None]
        for i, (first, _) in enumerate(present):
            for j, (_, second) in enumerate(present):
                if i != j:
                    nngp = nngp + first * second
        if op.cross is not None:  # drop H, which would need the same term at both ends
            nngp = nngp + spread_tokens(op.cross.to(nngp), step.node.positions, keeps, ends.pair_dims).nngp
            return Covariance(nngp, ntk, keeps, affine)
        if h is not None:
            for i, (first, second) in enumerate(present):
                for other_first, other_second in present[:i]:
                    h = h + _apart(terms[0], first, second) * _apart(terms[0], other_first, other_second)
        return Covariance(nngp, ntk, keeps, affine, h, terms[0].ratio)

    def mean(self, step: Step[Sum], known: Moments) -> Tensor | None:
        return _weighted_mean(step.op.coefficients, step, known)

    def gives_h(self, op: Sum) -> bool:
        return op.cross is None

    def without_random_features(self, step: Step[Sum]) -> str | None:
        if sum(not source.node.centred for source in step.sources) > 1:
            return "a sum of several fields whose channels are not centred has no random features"
        return None

    def random_features(self, step: Step[Sum], inputs: Parts, data: Moments, draws: Draws) -> Features:
        return _beside(inputs, step.op.coefficients)


class ProductRule(Rule[Product], ops=(Product,)):
    """A product of independent fields: K' = K1 K2, Theta' = Theta1 K2 + K1 Theta2."""

    local = True
    sizes = True

    def covariance(self, step: Step[Product], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        first, second = (x.settled() for x in inputs)
        ntk = _add(
            None if first.ntk is None else first.ntk * second.nngp,
            None if second.ntk is None else first.nngp * second.ntk,
        )
        return Covariance(first.nngp * second.nngp, ntk, keeps)

    def mean(self, step: Step[Product], known: Moments) -> Tensor | None:
        first, second = (known.mean.get(read) for read in step.node.inputs)
        return None if first is None or second is None else first * second

    def random_features(self, step: Step[Product], inputs: Parts, data: Moments, draws: Draws) -> Features:
        first, second = inputs
        parts = [
            draws.product(step.index, name, u, v)
            for name, u, v in (("first", first.psi, second.phi), ("second", first.phi, second.psi))
            if u is not None and v is not None
        ]
        phi = draws.product(step.index, "phi", first.phi, second.phi)
        return Features(phi, torch.cat(parts, -1) if parts else None)


class ConcatRule(Rule[Concat], ops=(Concat,)):
    """Concatenated channels: the mean of the covariances weighted by width."""

    keeps_h = True
    local = True
    sizes = True

    def covariance(self, step: Step[Concat], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        blocks = tuple(block.settled() for block in inputs)
        nngp, ntk, h = _weighted(step.op.fractions, blocks)
        return Covariance(nngp, ntk, keeps, h=h, ratio=blocks[0].ratio)

    def mean(self, step: Step[Concat], known: Moments) -> Tensor | None:
        return _weighted_mean(step.op.fractions, step, known)

    def random_features(self, step: Step[Concat], inputs: Parts, data: Moments, draws: Draws) -> Features:
        return _beside(inputs, [math.sqrt(fraction) for fraction in step.op.fractions])


class ConstantRule(Rule[Constant], ops=(Constant,)):
    """The same number in every channel and position."""

    keeps_h = True
    local = True
    sizes = True

    def covariance(self, step: Step[Constant], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        k = ends.first.like.new_full((1,) * (ends.pair_dims + sum(keeps)), step.op.value**2)
        return Covariance(k, None, keeps, h=torch.zeros_like(k))

    def mean(self, step: Step[Constant], known: Moments) -> Tensor:
        return known.like.new_full((len(known.like),) + (1,) * len(step.node.positions), step.op.value)

    def random_features(self, step: Step[Constant], inputs: Parts, data: Moments, draws: Draws) -> Features:
        return Features(data.like.new_full((len(data.like), *step.node.positions, 1), step.op.value), None)


def _weighted(weights: Sequence[float], parts: tuple[Covariance, ...]) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Add the K, the Theta and the H of independent parts; H is None if any part has none."""
    nngp = _add(*(_times(part.nngp, weight) for weight, part in zip(weights, parts, strict=True)))
    ntk = _add(*(_times(part.ntk, weight) for weight, part in zip(weights, parts, strict=True)))
    h = None
    if all(part.h is not None for part in parts):
        h = _add(*(_times(part.h, weight) for weight, part in zip(weights, parts, strict=True)))
    assert nngp is not None
    return nngp, ntk, h


def _weighted_mean(weights: Sequence[float], step: Step[Sum] | Step[Concat], known: Moments) -> Tensor | None:
    means = [known.mean.get(read) for read in step.node.inputs]
    return _add(*(_times(mean, weight) for mean, weight in zip(means, weights, strict=True)))


def _beside(inputs: tuple[Features, ...], weights: Sequence[float]) -> Features:
    phi = torch.cat([weight * x.phi for weight, x in zip(weights, inputs, strict=True)], -1)
    psi = [weight * x.psi for weight, x in zip(weights, inputs, strict=True) if x.psi is not None]
    return Features(phi, torch.cat(psi, -1) if psi else None)


def _apart(x: Covariance, first: Tensor, second: Tensor) -> Tensor:
    """Return the difference of the means at both ends that H is about."""
    return (first if x.multiple is None else x.multiple * first) - second


def _times(value: Tensor | None, factor: float) -> Tensor | None:
    """Return factor times a value; a factor of one, that of every skip connection, costs nothing."""
    if value is None or (isinstance(factor, (int, float)) and factor == 1):
        return value
    return factor * value


def _add(*values: Tensor | None) -> Tensor | None:
    present = [value for value in values if value is not None]
    return reduce(Tensor.add, present) if present else None
