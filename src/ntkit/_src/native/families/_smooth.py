"""Activations with a closed form that is smooth at rho = 1: erf, GELU, sine, cosine, exponential, polynomials."""

from __future__ import annotations

from collections.abc import Iterator
from math import comb
from typing import TYPE_CHECKING

from ntkit._src.program import Normalize, Pointwise
from ntkit._src.rules import odd_factorial

from .. import _core
from .._plane import Part, Plane
from ._family import Family
from ._normalize import gain_factor, same_gain

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork


class SmoothFamily(Family[Pointwise]):
    """One closed form, implemented in the core as ``function``."""

    reads_h = True
    single_precision = False
    rounds_h = True

    def __init__(self, function: _core.Function) -> None:
        self.function = function

    def local(self, network: PlannedNetwork, index: int, op: Pointwise) -> bool:
        return same_gain(network, index)

    def homogeneous(self, op: Pointwise) -> bool:
        return False

    def cache_entries(self, network: PlannedNetwork, index: int, op: Pointwise) -> Iterator[tuple[_core.Cached, int]]:
        yield _core.Cached.DEVIATION, index
        if not network.linear_after[index]:
            yield _core.Cached.HALF, index

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Pointwise) -> None:
        network, index = emitter.network, plane.node
        before = network.program.nodes[network.program.nodes[index].inputs[0]].op
        gain = isinstance(before, Normalize) and before.weight_trained
        coefficients = op.phi.polynomial() or ()
        slopes = tuple(power * coefficient for power, coefficient in enumerate(coefficients))  # of z phi'(z)
        operation = emitter.operation(
            "smooth",
            index,
            lambda: _core.Smooth(
                size=network.size(index),
                function=self.function,
                hermite_terms=hermite_terms(coefficients),
                deviation_at=network.cache_at(_core.Cached.DEVIATION, index),
                half_at=network.cache_at(_core.Cached.HALF, index),
                rounded=network.nonlinear_before[index],
                trained_gain=float(gain),
                gain_terms=hermite_terms(slopes) if gain else (),
            ),
        )
        factor = gain_factor(before, plane.offset) if isinstance(before, Normalize) else 1.0
        emitter.unary(_core.Kind.SMOOTH, operation, plane, parts, factor)


def hermite_terms(coefficients: tuple[float, ...]) -> list[float]:
    """Return c[m] C(m, j) (m - j - 1)!! at [j, m], zero where m - j is odd or negative."""
    size = len(coefficients)
    return [
        coefficients[m] * comb(m, j) * odd_factorial(m - j) if m >= j and (m - j) % 2 == 0 else 0.0
        for j in range(size)
        for m in range(size)
    ]
