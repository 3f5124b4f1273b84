"""Sums and products of functions of one value, such as x**2 + x, as one elementwise function of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import torch
from torch import Tensor

from ntkit._src.program import Activation, AnyFunction, Constant, Pointwise, Polynomial, Product, Rectified, Sum

from .._builder import Builder

_IDENTITY = Polynomial((0.0, 1.0), label="identity")


def composed_sum(builder: Builder, terms: Mapping[int, float]) -> tuple[int, Activation] | None:
    """Return a node u and a function phi with phi(u) = sum of coefficients times nodes; None if there is no such u."""
    return _latest(builder, _sums(builder, terms))


def composed_product(builder: Builder, first: int, second: int) -> tuple[int, Activation] | None:
    """Return a node u and a function phi with phi(u) = the product of two nodes; None if there is no such u."""
    return _latest(builder, _products(builder, first, second))


def _latest(builder: Builder, found: dict[int, Activation]) -> tuple[int, Activation] | None:
    """Choose the last Gaussian value of which everything is a function."""
    bases = [base for base in found if builder.info[base].gaussian]
    return (max(bases), found[max(bases)]) if bases else None


def _functions(builder: Builder, node: int) -> dict[int, Activation]:
    """Write a node in all ways as an elementwise function of an earlier node, or of itself."""
    op, inputs = builder.nodes[node].op, builder.nodes[node].inputs
    found: dict[int, Activation] = {}
    if isinstance(op, Pointwise) and op.phi.differentiable:
        found = {inputs[0]: op.phi}
    elif isinstance(op, Sum) and node not in builder.parts:
        terms: dict[int, float] = {}
        for read, coefficient in zip(inputs, op.coefficients, strict=True):
            terms[read] = terms.get(read, 0.0) + coefficient
        found = _sums(builder, terms)
    elif isinstance(op, Product):
        found = _products(builder, inputs[0], inputs[1])
    return {node: _IDENTITY, **found}


def _sums(builder: Builder, terms: Mapping[int, float]) -> dict[int, Activation]:
    constant, coefficients, functions = 0.0, [], []
    for node, coefficient in terms.items():
        op = builder.nodes[node].op
        if isinstance(op, Constant):
            constant += coefficient * op.value
        else:
            coefficients.append(coefficient)
            functions.append(_functions(builder, node))
    common = set.intersection(*map(set, functions)) if functions else set()
    return {base: _sum(tuple(coefficients), tuple(known[base] for known in functions), constant) for base in common}


def _products(builder: Builder, first: int, second: int) -> dict[int, Activation]:
    one, two = _functions(builder, first), _functions(builder, second)
    return {base: _product(one[base], two[base]) for base in set(one) & set(two)}


@lru_cache(maxsize=256)  # one function for equal sums, so that equal layers share their tables
def _sum(coefficients: tuple[float, ...], phis: tuple[Activation, ...], constant: float) -> Activation:
    polynomials = [powers for phi in phis if (powers := phi.polynomial()) is not None]
    if len(polynomials) == len(phis):
        total = [constant]
        for coefficient, powers in zip(coefficients, polynomials, strict=True):
            total += [0.0] * (len(powers) - len(total))
            for power, value in enumerate(powers):
                total[power] += coefficient * value
        return Polynomial(tuple(total))
    slopes = [pair for phi in phis if (pair := phi.slopes()) is not None]
    if constant == 0 and len(slopes) == len(phis):
        low, high = (sum(c * pair[i] for c, pair in zip(coefficients, slopes, strict=True)) for i in (0, 1))
        return Rectified(low, high, label="rectified sum")
    function = partial(_added, coefficients, phis, constant)
    return AnyFunction(function, kinks=_kinks(phis), label="sum of " + " and ".join(map(str, phis)))


@lru_cache(maxsize=256)
def _product(first: Activation, second: Activation) -> Activation:
    one, two = first.polynomial(), second.polynomial()
    if one is not None and two is not None:
        coefficients = [0.0] * (len(one) + len(two) - 1)
        for i, a in enumerate(one):
            for j, b in enumerate(two):
                coefficients[i + j] += a * b
        return Polynomial(tuple(coefficients))
    function = partial(_multiplied, first, second)
    return AnyFunction(function, kinks=_kinks((first, second)), label=f"product of {first} and {second}")


def _kinks(phis: tuple[Activation, ...]) -> tuple[float, ...]:
    return tuple(sorted({kink for phi in phis for kink in phi.kinks}))


def _added(coefficients: tuple[float, ...], phis: tuple[Activation, ...], constant: float, z: Tensor) -> Tensor:
    total = torch.full_like(z, constant)
    for coefficient, phi in zip(coefficients, phis, strict=True):
        total = total + coefficient * phi(z)
    return total


def _multiplied(first: Activation, second: Activation, z: Tensor) -> Tensor:
    return first(z) * second(z)
