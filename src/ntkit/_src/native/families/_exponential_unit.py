r"""ELU, SELU and CELU by Hermite series without their slow tail.

For a standard Gaussian x, phi(s x) = (scale / rate) f(z x) with z = rate s and f(x) = x for x > 0, f(x) = a (e^x - 1) for x < 0
(ELU: a = alpha; SELU: the same times a scale; CELU: a = 1, rate = 1 / alpha). Its Hermite coefficients have closed forms. They
fall slowly, because derivatives jump at zero: for x < 0, f(x) - x = sum_j k_j x^j / j! with k_1 = a - 1 and k_j = a for j > 1,
and x^j / j! 1{x < 0} has coefficients h_jn of the order of n^(-j/2 - 3/4). But such powers have closed expectations (Cho and Saul
2009), and h_jn h_kn = 0 for n > j, k where j + k is odd. So, with rho the correlation, the sums over n of

    n (alpha_n alpha_n' - k_1^2 h_1n^2 - k_2^2 z z' h_2n^2 - k_1 k_3 (z^2 + z'^2) h_1n h_3n) rho^(n - 1),

that is, of E[f' f'] without these three parts, have terms of the order of n^(-7/2), and some fifty orders with weights have the
sums of all.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import scipy  # which imports scipy.optimize and scipy.special when they are first used
import torch
from numpy.typing import NDArray

from ntkit._src.program import ExponentialUnit, Pointwise

from .. import _core
from ._fewer_orders import Array, non_negative
from ._series import DEGREE, LEAST, PIECE, SeriesFamily, nodes, transform

_REACHES = (1.0, 1.5, 2.25, 3.25, 4.0)  # the largest deviation of each tier, times the rate of the exponential
_TOLERANCE = 1e-12  # of E[f' f'], relative to the geometric mean of both inputs' own
# Singular values below this part of the largest are left out: tried in this order.
_INDEPENDENT = (1e-12, 3e-13, 1e-13, 1e-14, 1e-15)
_DENSE, _LARGEST = 32, 131072  # all orders below the first are candidates, and few up to the second
_DENSITY = math.sqrt(0.5 / math.pi)  # of the Gaussian at zero


class ExponentialUnitFamily(SeriesFamily):
    """ELU, SELU and CELU: Hermite series whose slow tail has a closed form."""

    def table(self, op: Pointwise, tier: int) -> _core.SeriesTable | None:
        return _table(_unit(op), _REACHES[tier])

    def reach(self, op: Pointwise) -> float:
        unit = _unit(op)
        return next(z for z in reversed(_REACHES) if unit_series(unit.a, z) is not None) / unit.rate

    def too_short(self, op: Pointwise) -> str | None:
        unit = _unit(op)
        enough = (z for z in _REACHES if z / unit.rate >= LEAST)  # the cheapest first
        return (
            None
            if any(unit_series(unit.a, z) is not None for z in enough)
            else f"{op.phi} (its exponential is too steep)"
        )


def _unit(op: Pointwise) -> ExponentialUnit:
    assert isinstance(op.phi, ExponentialUnit)
    return op.phi


@lru_cache(maxsize=64)
def _table(unit: ExponentialUnit, reach: float) -> _core.SeriesTable | None:
    """Build the table for deviations times rate from zero to ``reach``; None if no weights are accurate."""
    series = unit_series(unit.a, reach)
    if series is None:
        return None
    places = torch.arange(round(reach / PIECE), dtype=torch.float64)[:, None]
    z = (PIECE * (places + (1 + nodes()) / 2)).numpy()
    numbers = np.concatenate(
        [
            unit.scale / unit.rate * unit_mean(unit.a, z)[:, :, None],
            [unit.scale * np.sqrt(series.weights) * unit_coefficients(unit.a, row, series.orders) for row in z],
        ],
        axis=2,
    )
    first = unit.scale * (unit.a - 1)
    second, third = unit.scale * unit.a * unit.rate, unit.scale * unit.a * unit.rate**2
    closed = series.weights[:, None] * series.products * [first * first, second * second, first * third]
    return _core.SeriesTable(
        orders=series.orders.tolist(),
        degree=DEGREE,
        piece=PIECE / unit.rate,
        coefficients=(transform() @ torch.from_numpy(numbers)).reshape(-1).tolist(),
        jumps=[first, second, third],
        closed=closed.reshape(-1).tolist(),
    )


class UnitSeries(NamedTuple):
    """Some orders of f, ascending, with weights that give the sums of all."""

    orders: NDArray[np.int64]
    weights: Array
    products: Array  # h_1n^2, h_2n^2 and h_1n h_3n, shape (orders, 3); zero for n < 3, where others are not zero


@lru_cache(maxsize=64)
def unit_series(a: float, reach: float) -> UnitSeries | None:
    """Find orders and weights for all z from zero to ``reach``; None if no choice is accurate."""
    orders = _candidates()
    n = orders.astype(np.float64)
    products = _products(orders)
    # The columns get the size that they have with their weights, about the distance to the next candidate.
    distance = np.where(n < _DENSE, 1.0, 2 * np.gradient(n))
    near = np.concatenate([[0.0], np.geomspace(1e-3, 0.1, 40), np.linspace(0.12, 1.56, 60)])
    functions, wanted = _functions(a, _spread(reach, 16), np.concatenate([near, math.pi - near]), orders, products)
    # The triangle alone: its last column is the projection of what is wanted, and the orthogonal factor is not needed.
    system = torch.from_numpy(np.column_stack([functions * distance, wanted]))
    triangle = torch.linalg.qr(system, mode="r").R.numpy()
    left, sizes, right = np.linalg.svd(triangle[:-1, :-1])
    wanted = left.T @ triangle[:-1, -1]
    near = np.linspace(0.003, 1, 37) ** 2 * (math.pi / 2)
    checked, exact = _functions(a, _spread(reach, 17), np.concatenate([near, math.pi - near]), orders, products)
    for found in non_negative(sizes[:, None] * right, wanted, sizes, _INDEPENDENT):
        weights = found * distance
        if np.abs(checked @ weights - exact).max() <= _TOLERANCE:
            kept = weights > 0
            return UnitSeries(orders[kept], weights[kept], products[kept])
    return None


def unit_mean(a: float, z: Array) -> Array:
    """E[f(z x)]."""
    return np.asarray(_DENSITY * z + a * (0.5 * scipy.special.erfcx(z / math.sqrt(2)) - 0.5))


def unit_coefficients(a: float, z: Array, orders: NDArray[np.int64]) -> Array:
    """E[f(z x) He_n(x)] / (z sqrt(n!)) for orders n > 0, shape (len(z), len(orders)).

    Integration by parts gives, for e^(z x) 1{x < 0} without its value at z = 0 and divided by z,

        z^(n - 1) E[e^(z x) 1{x < 0}] / sqrt(n!) - (sum over 0 < j < n of z^(j - 1) He_(n - 1 - j)(0)) / sqrt(2 pi n!).
    """
    n, z = orders.astype(np.float64), z[:, None]
    powers = np.zeros((len(z), len(n)))
    low = orders < 150
    roots = np.sqrt([float(math.factorial(int(order))) for order in orders[low]])
    powers[:, low] = z ** (n[low] - 1) * (0.5 * scipy.special.erfcx(z / math.sqrt(2)) / roots)  # zero beyond
    # He_m(0) = 0 for odd m and He_(m - 2)(0) = -He_m(0) / (m - 1): every other term. That of j = 1 is added last.
    start = np.where(orders % 2 == 0, 3, 2)
    first = np.where(start == 3, _half_power(3, orders) * z * z, _half_power(2, orders) * z)
    term = total = np.where(orders > start, first, 0.0)
    m = n - 1 - start
    while bool((np.abs(term) > 1e-18 * np.abs(total)).any()):
        term = np.where(m >= 2, -term * z * z / np.maximum(m - 1, 1), 0.0)
        total, m = total + term, m - 2
    linear = np.where(orders == 1, 0.5, (a - 1) * _half_power(1, orders))
    return np.asarray(linear + a * (powers + total))


def _half_power(j: int, orders: NDArray[np.int64]) -> Array:
    """h_jn: the Hermite coefficients of x^j / j! for x < 0 and zero for x > 0, for j = 1, 2, 3 and n > 0, shape (orders,)."""
    moments = (0.5, -_DENSITY, 0.25, -_DENSITY / 3)  # E[x^i 1{x < 0}] / i!
    m = np.maximum(orders - 1 - j, 0)
    factor = np.prod([np.maximum(orders - i, 1.0) for i in range(j + 1)], axis=0)  # n! / m!
    # |He_m(0)| / sqrt(m!) is the root of the central binomial coefficient over 2^m, that is, of Gamma(k + 1/2) / (sqrt(pi) k!).
    beyond = np.where(m % 4 == 0, -1.0, 1.0) * _DENSITY * np.sqrt(_central(m // 2) / factor)
    beyond = np.where(m % 2 == 0, beyond, 0.0)
    below = [moments[j - n] / math.sqrt(math.factorial(n)) if n <= j else 0.0 for n in orders.tolist()]
    return np.where(orders > j, beyond, below)


def _central(k: NDArray[np.int64]) -> Array:
    """(2 k)! / (2^k k!)^2."""
    factors = np.arange(1, _LARGEST // 2 + 2, dtype=np.float64)
    return np.asarray(np.concatenate([[1.0], np.cumprod(1 - 0.5 / factors)])[k])


def _products(orders: NDArray[np.int64]) -> Array:
    one, two, three = (_half_power(j, orders) for j in (1, 2, 3))
    return np.where(orders[:, None] < 3, 0.0, np.stack([one * one, two * two, one * three], axis=1))


def _candidates() -> NDArray[np.int64]:
    """Orders whose distances are sums of few powers of two, so that few products give all powers of rho; both parities."""
    sparse: list[int] = []
    octave = _DENSE
    while octave < _LARGEST:
        for eighths in (8, 10, 12, 14):
            sparse += [octave * eighths // 8, octave * eighths // 8 + 1]
        octave *= 2
    return np.array([*range(1, _DENSE), *sparse], dtype=np.int64)


def _spread(reach: float, count: int) -> Array:
    """Chebyshev nodes between zero and ``reach``."""
    return np.asarray(reach * np.sin((np.arange(count) + 0.5) * (math.pi / (2 * count))) ** 2)


def _functions(a: float, z: Array, psi: Array, orders: NDArray[np.int64], products: Array) -> tuple[Array, Array]:
    """Give the terms of all pairs of z at all angles, shape (pairs * angles, orders), and their sums over all orders.

    Both are relative to the roots of E[f'(z x)^2] and E[f'(z' x)^2].
    """
    n = orders.astype(np.float64)
    one, two = np.triu_indices(len(z))
    alpha = unit_coefficients(a, z, orders)
    product, squares = z[one] * z[two], z[one] ** 2 + z[two] ** 2
    parts = np.stack([np.full(len(one), (a - 1) ** 2), a * a * product, (a - 1) * a * squares])
    rho, away = np.cos(psi), np.sin(psi)
    # The three parts in closed form, without their orders n = 1 and 2.
    angle = (math.pi - psi) / (2 * math.pi)
    slopes = np.stack([angle, angle * rho + away / (2 * math.pi), 0.5 * (angle + rho * away / (2 * math.pi))])
    h = [_half_power(j, np.array([1, 2])) for j in (1, 2, 3)]
    for part, (j, k) in enumerate(((0, 0), (1, 1), (0, 2))):
        slopes[part] -= h[j][0] * h[k][0] + 2 * rho * h[j][1] * h[k][1]
    own = np.sqrt(_slope(a, z, z, np.zeros(1))[:, 0])
    scale = 1 / (own[one] * own[two])
    wanted = (_slope(a, z[one], z[two], psi) - parts.T @ slopes) * scale[:, None]
    terms = n * (alpha[one] * alpha[two] - parts.T @ products.T) * scale[:, None]
    with np.errstate(divide="ignore"):
        logarithm = np.where(np.abs(rho) > 0.5, 0.5 * np.log1p(-away * away), np.log(np.abs(rho)))
    powers = np.exp(logarithm[:, None] * (n - 1)) * np.where((rho[:, None] < 0) & (orders % 2 == 0), -1.0, 1.0)
    return (terms[:, None] * powers).reshape(-1, len(orders)), wanted.reshape(-1)


def _slope(a: float, z1: Array, z2: Array, psi: Array) -> Array:
    """E[f'(z1 x) f'(z2 y)] for x, y of correlation cos(psi), shape (len(z1), len(psi)).

    In polar coordinates around x = y = 0, a sector where x and y have given signs has the exponent -r d(t) with
    d = z1 sin(t) + z2 sin(opening - t), without the terms of positive variables; the integral over the radius is
    1 - d sqrt(pi / 2) erfcx(d / sqrt(2)), and that over t goes by Gauss's rule.
    """
    x, weights = np.polynomial.legendre.leggauss(48)
    fractions = (x + 1) / 2
    total = np.zeros((len(z1), len(psi)))
    signs = ((1.0, a * a, z1, z2), (1.0, 1.0, 0 * z1, 0 * z2), (0.0, a, z1, 0 * z2), (0.0, a, 0 * z1, z2))
    for agree, factor, first, second in signs:
        opening = np.where(agree, math.pi - psi, psi)[:, None]
        t = opening * fractions
        d = first[:, None, None] * np.sin(t) + second[:, None, None] * np.sin(opening - t)
        radial = 1 - d * math.sqrt(math.pi / 2) * scipy.special.erfcx(d / math.sqrt(2))
        total += factor * (radial @ (weights / 2)) * opening[:, 0] / (2 * math.pi)
    return total
