"""Gaussian expectations of functions that are polynomials between their kinks (hardtanh, relu6, hardswish, relu(z)**4, ...).

A table cannot serve them: where both inputs meet the same kink, E[phi' phi'] itself has a kink, along q1 = q2 at
rho = 1. Their expectations reduce to orthant probabilities instead.
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import constant, differentiated
from ntkit._src.program import AnyFunction

from ._closed_forms import derivative_coefficients, odd_factorial
from ._expectations import jump_error
from ._pair import Pair
from ._quadrature import density, legendre, sample

_DEGREE = 3
_POWERS = range(1, 13)  # of a homogeneous function
_CHUNK = 2**15  # entries whose orthant probabilities are computed at once
_DENSE = 2001  # points where a function must be what it seems to be, so that a narrow bump is seen


@dataclass(frozen=True)
class Pieces:
    """phi(z) = p(z) + sum over corners (t, +1, c) of c_i (z - t)_+^i and over corners (t, -1, c) of c_i (t - z)_+^i."""

    label: str
    centre: tuple[float, ...]  # the coefficients of p, the polynomial around zero, from the constant term up
    corners: tuple[tuple[float, int, tuple[float, ...]], ...]  # kink, side (away from zero), coefficients added there

    def derivative(self) -> Pieces:
        """Differentiate; an error if phi jumps."""
        if any(c[0] != 0 for _, _, c in self.corners):
            raise jump_error(self.label)
        corners = ((t, side, tuple(side * c for c in derivative_coefficients(c))) for t, side, c in self.corners)
        return Pieces(self.label, derivative_coefficients(self.centre), tuple(corners))


@lru_cache(maxsize=64)
@constant
def pieces(phi: AnyFunction) -> Pieces | None:
    """Find the pieces of ``phi.function``; None unless they are polynomials of degree at most 3, or powers of z up to 12."""
    kinks = sorted(set(phi.kinks))
    if kinks in ([], [0.0]) and (power := _homogeneous(phi)) is not None:
        return power
    edges = [(kinks[0] if kinks else 0.0) - 8, *kinks, (kinks[-1] if kinks else 0.0) + 8]
    polynomials = []
    for i, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = low + (high - low) * (0.5 - 0.5 * np.cos(np.pi * (np.arange(24) + 0.5) / 24))
        # An unbounded piece must stay the same polynomial far away.
        far = [low - 1e3, low - 30] * (i == 0) + [high + 30, high + 1e3] * (i == len(kinks))
        dense = low + (high - low) * np.linspace(0, 1, _DENSE)[1:-1]
        near = np.concatenate([inside, dense])
        z = np.concatenate([near, far])
        values = sample(phi, torch.from_numpy(z))[0].numpy()
        if not np.isfinite(values).all():
            return None
        polynomial = _fit(inside, values[: len(inside)])
        if _differs(polynomial, near, values[: len(near)]) or _differs(polynomial, z, values):
            return None
        polynomials.append(polynomial)
    first = sum(t < 0 for t in kinks)
    corners = []
    for i, t in enumerate(kinks):
        side = 1 if t >= 0 else -1
        jump = side * (polynomials[i + 1] - polynomials[i])(Polynomial([t, side]))
        scale = max(np.abs(p.coef).max() for p in polynomials) * max(1.0, abs(t)) ** _DEGREE
        corners.append((float(t), side, tuple(float(c) if abs(c) > 1e-12 * scale else 0.0 for c in jump.coef)))
    return Pieces(str(phi), tuple(map(float, polynomials[first].coef)), tuple(corners))


def _homogeneous(phi: AnyFunction) -> Pieces | None:
    """Find n, a and b if the function is a z^n for z < 0 and b z^n for z > 0, such as relu(z)**4; None otherwise.

    All powers but one vanish exactly here, which a fit does not see: it would be wrong for small variances.
    """
    z = np.geomspace(1e-6, 1e6, _DENSE)
    values = sample(phi, torch.from_numpy(np.stack([-z, z])))[0].numpy()
    if not np.isfinite(values).all() or not values.any():
        return None
    for n in _POWERS:
        ratio = values / np.stack([(-z) ** n, z**n])
        left, right = np.median(ratio, axis=1).tolist()
        if np.abs(ratio - [[left], [right]]).max() <= 1e-14 * max(abs(left), abs(right)):
            padding = (0.0,) * n
            corners = ((0.0, 1, (*padding, right - left)),) if right != left else ()
            return Pieces(str(phi), (*padding, left), corners)
    return None


def _differs(polynomial: Polynomial, z: NDArray[np.float64], values: NDArray[np.float64]) -> bool:
    size = np.abs(values)
    return bool(np.any(np.abs(polynomial(z) - values) > 1e-12 * np.maximum(size, size.max() * 1e-3)))


def _fit(z: NDArray[np.float64], values: NDArray[np.float64]) -> Polynomial:
    """Find the polynomial of lowest degree through the values, in powers of z."""

    def error(p: Polynomial) -> float:
        return float(np.abs(p(z) - values).max())

    for degree in range(_DEGREE + 1):
        fit: Polynomial = Polynomial.fit(z, values, degree).convert()
        if error(fit) <= 1e-13 * max(np.abs(values).max(), 1e-300):
            break
    # Coefficients are mostly short decimals: use those if they fit no worse than the least squares.
    noise = 1e-14 * np.abs(fit.coef).max()
    short = Polynomial([float(f"{c:.14g}") if abs(c) > noise else 0.0 for c in fit.coef])
    return short if error(short) <= error(fit) else fit


def _owen(h: Tensor, ah: Tensor) -> Tensor:
    """Owen's T(h, a) = 1/(2 pi) int_0^a exp(-h^2 (1 + x^2) / 2) / (1 + x^2) dx, given h >= 0 and a h >= 0.

    For a > 1 by T(h, a) = (Phi(h) + Phi(ah)) / 2 - Phi(h) Phi(ah) - T(ah, 1/a), so x stays in [0, 1], where 20
    Gauss-Legendre nodes leave an error below 1e-16.
    """
    swap = ah > h
    large, small = torch.where(swap, ah, h), torch.where(swap, h, ah)
    a = small / torch.where(large > 0, large, 1)
    half_square = large * large / 2
    total = torch.zeros_like(a)
    for x, w in zip(*(t.tolist() for t in legendre(20)), strict=True):
        y = 1 + (a * x) ** 2
        total += torch.exp(-half_square * y).div_(y).mul_(w)
    total *= a / (2 * math.pi)
    p, q = torch.special.ndtr(h), torch.special.ndtr(ah)
    return torch.where(swap, (p + q) / 2 - p * q - total, total)


def _orthant(h1: Tensor, h2: Tensor, rho: Tensor) -> Tensor:
    """Evaluate P(x > h1, y > h2) on flat tensors of one shape."""
    tiny: float = torch.finfo(rho.dtype).tiny
    # At h1 = h2 = 0 the slopes a below are 0/0; the limit along h1 = h2 > 0 is the right value.
    h1, h2 = (torch.where(b == 0, tiny**0.5, -b) for b in (h1, h2))
    c = torch.sqrt((1 - rho) * (1 + rho)).clamp_min(tiny)
    # P(x < h1, y < h2) = (Phi(h1) + Phi(h2)) / 2 - T(h1, a1) - T(h2, a2) - [h1 h2 < 0] / 2,
    # a1 = (h2 - rho h1) / (h1 c), a2 = (h1 - rho h2) / (h2 c)
    total: Tensor = (torch.special.ndtr(h1) + torch.special.ndtr(h2)) / 2 - torch.where(h1 * h2 < 0, 0.5, 0.0)
    for p, q in ((h1, h2), (h2, h1)):
        rest = (q - rho * p) / c
        sign = torch.where((rest < 0) != (p < 0), -1.0, 1.0)
        total -= sign * _owen(p.abs(), rest.abs())
    return total


def _orthant_slopes(h1: Tensor, h2: Tensor, rho: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return the derivatives of P(x > h1, y > h2) in h1, h2 and rho."""
    inside = rho.abs() < 1
    c = torch.sqrt(torch.where(inside, (1 - rho) * (1 + rho), 1e-20))
    joint = torch.exp(-(h1 * h1 + (h2 - rho * h1) ** 2 / (c * c)) / 2) / (2 * math.pi * c)
    return (
        -density(h1) * torch.special.ndtr((rho * h1 - h2) / c),
        -density(h2) * torch.special.ndtr((rho * h2 - h1) / c),
        # At rho = +-1 and h1 = +-h2 the derivative is infinite; zero keeps gradients finite.
        torch.where(inside, joint, 0.0),
    )


def orthant(h1: Tensor, h2: Tensor, rho: Tensor) -> Tensor:
    """P(x > h1, y > h2) for standard Gaussians x, y of correlation rho in [-1, 1], broadcast, by Owen's T (Owen 1956).

    Absolute error near 1e-16 for every rho; differentiable.

    Examples
    --------
    >>> import torch
    >>> zero = torch.zeros((), dtype=torch.float64)
    >>> round(orthant(zero, zero, zero + 0.5).item(), 12)
    0.333333333333
    """
    arguments = torch.broadcast_tensors(h1, h2, rho)
    fixed = [t.detach() for t in arguments]
    # In chunks that stay in cache: the rule makes about a hundred passes over its arguments.
    parts = zip(*(t.reshape(-1).split(_CHUNK) for t in fixed), strict=True)
    value = torch.cat([_orthant(*part) for part in parts]).reshape(fixed[0].shape)
    if differentiated(*arguments):  # closed-form derivatives, so that autograd stores nothing of the quadrature
        for argument, at, slope in zip(arguments, fixed, _orthant_slopes(*fixed), strict=True):
            value = value + slope * (argument - at)
    return value


def _partial_moments(mu: Tensor, sigma: Tensor, ratio: Tensor, order: int) -> list[Tensor]:
    """E (mu + sigma z)_+^i for i = 0..order, with ratio = mu / sigma: the integral by parts of z."""
    n = [torch.special.ndtr(ratio), mu * torch.special.ndtr(ratio) + sigma * density(ratio)]
    for i in range(1, order):
        n.append(mu * n[i] + i * sigma * sigma * n[i - 1])
    return n[: order + 1]


def _corner_pair(
    h1: Tensor, h2: Tensor, rho: Tensor, c: Tensor, both: Tensor, orders: tuple[int, int]
) -> dict[tuple[int, int], Tensor]:
    """m_ij = E[(x - h1)_+^i (y - h2)_+^j] from the orthant probability m_00 = ``both`` and Stein's lemma.

    m_{i+1,j} = -h1 m_ij + (i m_{i-1,j} or, for i = 0, d(h1) E[(y - h2)_+^j | x = h1])
                        + rho (j m_{i,j-1} or, for j = 0, d(h2) E[(x - h1)_+^i | y = h2]),  d the Gaussian density.
    """
    inside = c > 0
    sigma = torch.where(inside, c, 1.0)

    def conditional(at: Tensor, bound: Tensor, order: int) -> list[Tensor]:
        mu = rho * at - bound
        # Without spread the ratio is +-infinity, or by symmetry 0; 1e3 is infinity to the Gaussian distribution.
        ratio = torch.where(inside, mu / sigma, 1e3 * torch.sign(mu.detach()))
        return _partial_moments(mu, c, ratio, order)

    m = {(0, 0): both}
    if orders == (0, 0):
        return m
    below = [density(h1) * g for g in conditional(h1, h2, orders[1])]
    left = [density(h2) * g for g in conditional(h2, h1, orders[0])]
    for j in range(orders[1]):
        m[0, j + 1] = -h2 * m[0, j] + (j * m[0, j - 1] if j else left[0]) + rho * below[j]
    for i in range(orders[0]):
        for j in range(orders[1] + 1):
            along = i * m[i - 1, j] if i else below[j]
            m[i + 1, j] = -h1 * m[i, j] + along + rho * (j * m[i, j - 1] if j else left[i])
    return m


def _hermite_moments(coefficients: tuple[float, ...], s: Tensor) -> list[Tensor]:
    """E[p(s x) He_j(x)] = E[(d/dx)^j p(s x)] for j = 0..degree."""
    moments = []
    for j in range(len(coefficients)):
        terms = (
            coefficients[m] * math.perm(m, j) * odd_factorial(m - j) * s**m for m in range(j, len(coefficients), 2)
        )
        moments.append(sum(terms, torch.zeros_like(s)))
    return moments


def _corner_moments(t: float, side: int, coefficients: tuple[float, ...], s: Tensor, order: int) -> list[Tensor]:
    """E[C(s x) He_j(x)] for j = 0..order and C the truncated powers at one kink.

    With h = |t| / s, E[(x - h)_+^i He_j(x)] = i!/(i - j)! E (x - h)_+^(i - j), and i! He_m(h) d(h) for j = i + 1 + m.
    """
    h = side * t / s
    n = _partial_moments(-h, torch.ones_like(h), -h, len(coefficients))
    hermite = [torch.ones_like(h), h, h * h - 1]
    moments = []
    for j in range(order + 1):
        terms = (
            c * s**i * (math.perm(i, j) * n[i - j] if j <= i else math.factorial(i) * hermite[j - i - 1] * density(h))
            for i, c in enumerate(coefficients)
            if c
        )
        moments.append(side**j * sum(terms, torch.zeros_like(s)))
    return moments


def _piecewise_value(
    phi: Pieces, pair: Pair, rho: Tensor, c: Tensor, orthants: dict[tuple[float, float], Tensor]
) -> Tensor:
    """E[phi(u) phi(v)]; ``orthants`` keeps the probabilities, the costly part, by pair of kinks."""
    # Any term with the central polynomial is a finite Mehler sum, E[p(u) g(v)] = sum_j rho^j / j! p_j g_j.
    total = torch.zeros_like(rho)
    polynomial = [_hermite_moments(phi.centre, s) for s in (pair.s1, pair.s2)]
    corners = [[_corner_moments(*corner, s, len(phi.centre) - 1) for corner in phi.corners] for s in (pair.s1, pair.s2)]
    for j in range(len(phi.centre)):
        p1, p2 = polynomial[0][j], polynomial[1][j]
        g1, g2 = (sum((g[j] for g in side), torch.zeros_like(p)) for side, p in zip(corners, (p1, p2), strict=True))
        total = total + rho**j / math.factorial(j) * (p1 * p2 + p1 * g2 + g1 * p2)
    for t1, side1, c1 in phi.corners:
        for t2, side2, c2 in phi.corners:
            h1, h2 = side1 * t1 / pair.s1, side2 * t2 / pair.s2
            r = side1 * side2 * rho
            if (t1, t2) not in orthants:
                orthants[t1, t2] = orthant(h1, h2, r)
            m = _corner_pair(h1, h2, r, c, orthants[t1, t2], (len(c1) - 1, len(c2) - 1))
            for (i, j), moment in m.items():
                if c1[i] and c2[j]:
                    total = total + (c1[i] * pair.s1**i) * (c2[j] * pair.s2**j) * moment
    return total


def piecewise_dual(phi: Pieces, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """E[phi phi] and, if ``tangent``, E[phi' phi'] of a piecewise polynomial."""
    orthants: dict[tuple[float, float], Tensor] = {}
    value = _piecewise_value(phi, pair, pair.rho.detach(), pair.c.detach(), orthants)
    if not tangent and not pair.graded:
        return value, None
    # The value's probabilities carry no derivative with respect to rho, so they are reused only if none is needed.
    slope = _piecewise_value(phi.derivative(), pair, pair.rho, pair.c, {} if pair.graded else orthants)
    return pair.price(value, slope) if pair.graded else value, slope if tangent else None


def piecewise_mean(phi: Pieces, pair: Pair) -> Tensor:
    """E phi(u) of a piecewise polynomial."""
    value = _hermite_moments(phi.centre, pair.s1)[0]
    return sum((_corner_moments(*corner, pair.s1, 0)[0] for corner in phi.corners), value)
