"""Sums and products of functions of one value, such as x**2 + x, as one elementwise function of it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache, partial

import torch
from torch import Tensor

from ntkit._src.program import Activation, Constant, Pointwise, Product, Sum

from .._builder import Builder

__all__ = ["composed_product", "composed_sum"]

_IDENTITY = Activation("polynomial", (0.0, 1.0), label="identity")
_JUMPS = ("sign", "step")


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
    if isinstance(op, Pointwise) and op.phi.name not in _JUMPS:
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
    if all(phi.name == "polynomial" for phi in phis):
        total = [constant]
        for coefficient, phi in zip(coefficients, phis, strict=True):
            total += [0.0] * (len(phi.parameters) - len(total))
            for power, value in enumerate(phi.parameters):
                total[power] += coefficient * value
        return Activation("polynomial", tuple(total))
    slopes = [_slopes(phi) for phi in phis]
    if constant == 0 and all(pair is not None for pair in slopes):
        pairs = [pair for pair in slopes if pair is not None]
        low, high = (sum(c * pair[i] for c, pair in zip(coefficients, pairs, strict=True)) for i in (0, 1))
        return Activation("rectified", (low, high), label="rectified sum")
    function = partial(_added, coefficients, phis, constant)
    return Activation("quadrature", function=function, kinks=_kinks(phis), label="sum of " + _names(phis))


@lru_cache(maxsize=256)
def _product(first: Activation, second: Activation) -> Activation:
    if first.name == second.name == "polynomial":
        coefficients = [0.0] * (len(first.parameters) + len(second.parameters) - 1)
        for i, a in enumerate(first.parameters):
            for j, b in enumerate(second.parameters):
                coefficients[i + j] += a * b
        return Activation("polynomial", tuple(coefficients))
    function = partial(_multiplied, first, second)
    kinks = _kinks((first, second))
    return Activation("quadrature", function=function, kinks=kinks, label="product of " + _names((first, second)))


def _slopes(phi: Activation) -> tuple[float, float] | None:
    """Return the slopes below and above zero of a function that is linear on either side."""
    if phi.name == "rectified":
        return phi.parameters[0], phi.parameters[1]
    if phi.name == "polynomial" and not any(c for power, c in enumerate(phi.parameters) if power != 1):
        return (phi.parameters[1],) * 2 if len(phi.parameters) > 1 else (0.0, 0.0)
    return None


def _kinks(phis: tuple[Activation, ...]) -> tuple[float, ...]:
    own = (0.0,) if any(phi.name == "rectified" for phi in phis) else ()
    return tuple(sorted({*own, *(kink for phi in phis for kink in phi.kinks)}))


def _names(phis: tuple[Activation, ...]) -> str:
    return " and ".join(str(phi) for phi in phis)


def _added(coefficients: tuple[float, ...], phis: tuple[Activation, ...], constant: float, z: Tensor) -> Tensor:
    total = torch.full_like(z, constant)
    for coefficient, phi in zip(coefficients, phis, strict=True):
        total = total + coefficient * phi(z)
    return total


def _multiplied(first: Activation, second: Activation, z: Tensor) -> Tensor:
    return first(z) * second(z)
