"""Gaussian expectations E[phi(u) phi(v)] and E[phi'(u) phi'(v)] that have closed forms.

Price's theorem (1958), dE[phi(u) phi(v)]/dk = E[phi'(u) phi'(v)], gives the second expectation from the first.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import torch
from numpy.polynomial import Polynomial
from numpy.typing import NDArray
from torch import Tensor

from ntkit.program._activation import Activation
from ntkit.rules._quadrature import evaluate, orthant

__all__ = ["Pair", "Pieces", "closed_dual", "closed_mean", "pieces", "piecewise_dual", "piecewise_mean"]

# Variances below this (standard deviation 1e-15) are taken as zero by rules that divide by a deviation.
_SMALLEST = 2.0**-100
# Below this, derivatives in the variance are rounding noise (an error of eps in the value, divided by q), while their
# contribution to a derivative in the network's input, of order sqrt(q), is below 1e-9: they are taken as zero.
_SMALLEST_WITH_GRADIENT = 2.0**-64


def _sqrt(x: Tensor) -> Tensor:
    """Square root of x >= 0 whose derivative at 0 is 0 instead of infinity."""
    positive = x > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, x, 1.0)), 0.0)


class Pair:
    """Two centred Gaussians, u = s1 x and v = s2 y with corr(x, y) = rho, in the coordinates that the rules need.

    Attributes
    ----------
    k
        Covariance, any shape, clipped to |k| <= sqrt(v1 v2).
    v1, v2
        Variances as given, with as many axes as ``k``.
    product
        sqrt(v1 v2), with derivative 0 where it vanishes.
    rho
        Correlation, clipped to [-1, 1]; 0 where a variance vanishes. Derivatives pass through the clipping.
    q1, q2, s1, s2
        Variances and deviations bounded away from zero, for rules that divide by them.
    """

    def __init__(self, k: Tensor, q1: Tensor, q2: Tensor) -> None:
        self.v1, self.v2 = (q.reshape((1,) * (k.ndim - q.ndim) + tuple(q.shape)) for q in (q1, q2))
        self.product = _sqrt(self.v1) * _sqrt(self.v2)
        self._nonzero = (self.v1 > _SMALLEST) & (self.v2 > _SMALLEST)
        raw = torch.where(self._nonzero, k / torch.where(self._nonzero, self.product, 1.0), 0.0)
        # Two copies of one input have rho = 1 up to rounding, and an error of eps in rho is one of sqrt(eps) in the
        # angle, hence in E[phi' phi'] of a ReLU: correlations this close to +-1 are taken to be +-1.
        near = raw.detach().abs() >= 1 - 8 * torch.finfo(k.dtype).eps
        self.rho = torch.where(near, torch.sign(raw), raw).detach() + (raw - raw.detach())
        self.k = torch.where(near, self.product * self.rho, k).detach() + (k - k.detach())
        self.q1, self.q2 = (
            torch.where(v > _SMALLEST_WITH_GRADIENT, v, v.detach()).clamp_min(_SMALLEST) for v in (self.v1, self.v2)
        )
        self.s1, self.s2 = torch.sqrt(self.q1), torch.sqrt(self.q2)

    @cached_property
    def c_squared(self) -> Tensor:
        """1 - rho^2."""
        return (1 - self.rho) * (1 + self.rho)

    @cached_property
    def c(self) -> Tensor:
        """sqrt(1 - rho^2), with derivative 0 where it vanishes."""
        return _sqrt(self.c_squared)

    @cached_property
    def theta(self) -> Tensor:
        """asin(rho), with derivative 0 at rho = +-1."""
        return torch.atan2(self.rho, self.c)

    @property
    def graded(self) -> bool:
        """Whether a derivative in k may be asked for."""
        return torch.is_grad_enabled() and self.rho.requires_grad

    def price(self, value: Tensor, slope: Tensor) -> Tensor:
        """Give ``value``, computed at fixed rho, the derivative E[phi' phi'] = ``slope`` in k (Price 1958)."""
        along = self.product.detach() * (self.rho - self.rho.detach())
        return value + slope.detach() * torch.where(self._nonzero, along, self.k - self.k.detach())


def _rectified(pair: Pair, parameters: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = ab k + (b - a)^2 R, E' = ab + (b - a)^2 S for a min(z, 0) + b max(z, 0) (Cho and Saul 2009).

    S = P(u > 0, v > 0) = 1/4 + theta / (2 pi) and R = s1 s2 (c / (2 pi) + rho S).
    """
    a, b = parameters
    if a == b:
        return a * b * pair.k, torch.full_like(pair.k, a * b)
    s = 0.25 + pair.theta / (2 * math.pi)
    r = pair.product * (pair.c / (2 * math.pi) + pair.rho * s)
    return a * b * pair.k + (b - a) ** 2 * r, a * b + (b - a) ** 2 * s


def _erf(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = 2/pi asin(2k / sqrt((1 + 2 q1)(1 + 2 q2))) E' = dE/dk (Williams 1997)."""
    # (1 + 2 q1)(1 + 2 q2) - 4 k^2 without its cancellation; the arc sine as an arc tangent for the same reason.
    root = torch.sqrt(1 + 2 * pair.v1 + 2 * pair.v2 + 4 * pair.v1 * pair.v2 * pair.c_squared)
    return (2 / math.pi) * torch.atan2(2 * pair.k, root), (4 / math.pi) / root


def _gelu(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """z Phi(z), with A = 1 + q1, B = 1 + q2, D = AB - k^2, N = q1 q2 + k^2 (1 - q1 q2) / (AB).

    E = k (1/4 + asin(k / sqrt(AB)) / (2 pi)) + N / (2 pi sqrt(D)): two uses of Stein's lemma on E[u v Phi(u) Phi(v)]
    and Phi2(0, 0; k / sqrt(AB)); E' = dE/dk.
    """
    k = pair.k
    ab = (1 + pair.v1) * (1 + pair.v2)
    q = pair.v1 * pair.v2
    root = torch.sqrt(1 + pair.v1 + pair.v2 + q * pair.c_squared)
    ratio = (1 - q) / ab
    n = q + k * k * ratio
    both = 0.25 + torch.atan2(k, root) / (2 * math.pi)
    value = k * both + n / (2 * math.pi * root)
    return value, both + k / (2 * math.pi * root) * (1 + 2 * ratio + n / (root * root))


def _sin(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = exp(-(q1 + q2) / 2) sinh k, E' = exp(-(q1 + q2) / 2) cosh k."""
    # With |k| split off, neither factor overflows and small k loses no digits; |k| has derivative 1 at 0 here.
    sign = torch.where(pair.k >= 0, 1.0, -1.0).to(pair.k)
    size = sign * pair.k
    largest = torch.exp(size - (pair.v1 + pair.v2) / 2) / 2
    return -sign * largest * torch.expm1(-2 * size), largest * (1 + torch.exp(-2 * size))


def _cos(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E and E' of the sine, exchanged."""
    value, slope = _sin(pair, ())
    return slope, value


def _exp(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = E' = exp((q1 + q2) / 2 + k)."""
    value = torch.exp((pair.v1 + pair.v2) / 2 + pair.k)
    return value, value


def _odd_factorial(n: int) -> int:
    """(n - 1)!! = E z^n for even n and a standard Gaussian z."""
    return math.prod(range(1, n, 2))


def _polynomial_value(pair: Pair, coefficients: tuple[float, ...]) -> Tensor:
    """E[p(u) p(v)] = sum_j k^j j! h_j(q1) h_j(q2), h_j(q) = sum_m c_m C(m, j) (m - j - 1)!! q^((m - j) / 2).

    From E[u^m v^n] = sum_j j! C(m, j) C(n, j) k^j E[w1^(m - j)] E[w2^(n - j)] over j with m - j and n - j even.
    """
    total = torch.zeros_like(pair.k)
    for j in range(len(coefficients)):
        sides = []
        for q in (pair.v1, pair.v2):
            side = torch.zeros_like(q)
            for m in range(j, len(coefficients), 2):
                side = side + coefficients[m] * math.comb(m, j) * _odd_factorial(m - j) * q ** ((m - j) // 2)
            sides.append(side)
        total = total + math.factorial(j) * pair.k**j * sides[0] * sides[1]
    return total


def _polynomial(pair: Pair, coefficients: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E and E' of a polynomial, its coefficients from the constant term up."""
    return _polynomial_value(pair, coefficients), _polynomial_value(pair, _derivative(coefficients))


def _sign(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, None]:
    """E = 2/pi asin(rho), with sign(0) = 0."""
    return (2 / math.pi) * pair.theta, None


def _step(pair: Pair, parameters: tuple[float, ...]) -> tuple[Tensor, None]:
    """E = P(u > 0, v > 0) = 1/4 + asin(rho) / (2 pi); a variable without variance contributes the value at zero."""
    means = [torch.where(v > 0, 0.5, parameters[0]).to(pair.k) for v in (pair.v1, pair.v2)]
    return means[0] * means[1] + pair.theta / (2 * math.pi), None


_RULES: dict[str, Callable[[Pair, tuple[float, ...]], tuple[Tensor, Tensor | None]]] = {
    "rectified": _rectified,
    "erf": _erf,
    "gelu": _gelu,
    "sin": _sin,
    "cos": _cos,
    "exp": _exp,
    "polynomial": _polynomial,
    "sign": _sign,
    "step": _step,
}


def closed_dual(phi: Activation, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """E[phi phi] and, if ``tangent``, E[phi' phi'] of an activation with a name."""
    if phi.name not in _RULES:
        raise ValueError(f"Activation name must be 'quadrature' or one of {sorted(_RULES)}. Got {phi.name!r}.")
    value, slope = _RULES[phi.name](pair, phi.parameters)
    if tangent and slope is None:
        raise ValueError(_jump_message(str(phi)))
    return value, slope if tangent else None


def _jump_message(label: str) -> str:
    return (
        f"Activation {label} jumps, so E[phi' phi'] and the NTK do not exist. Ask for the NNGP kernel alone "
        "(tangent=False), or use a continuous activation such as erf in place of sign."
    )


def closed_mean(phi: Activation, pair: Pair) -> Tensor:
    """E phi(u) for u ~ N(0, q), q being the first variance of the pair."""
    q = pair.v1
    match phi.name:
        case "rectified":
            return (phi.parameters[1] - phi.parameters[0]) / math.sqrt(2 * math.pi) * _sqrt(q)
        case "gelu":  # Stein: E[u Phi(u)] = q E[density(u)]
            return q / torch.sqrt(2 * math.pi * (1 + q))
        case "cos":
            return torch.exp(-q / 2)
        case "exp":
            return torch.exp(q / 2)
        case "polynomial":
            even = phi.parameters[::2]
            return sum((c * _odd_factorial(2 * i) * q**i for i, c in enumerate(even)), torch.zeros_like(q))
        case "step":
            return torch.where(q > 0, 0.5, phi.parameters[0]).to(q)
        case "erf" | "sin" | "sign":
            return torch.zeros_like(q)
    raise ValueError(f"Activation name must be 'quadrature' or one of {sorted(_RULES)}. Got {phi.name!r}.")


# --- Functions that are polynomials between their kinks (hardtanh, relu6, hardswish, ...) -----------------------------
#
# A table cannot serve them: where both inputs meet the same kink, E[phi' phi'] itself has a kink, along q1 = q2 at
# rho = 1. Their expectations reduce to orthant probabilities instead.

_DEGREE = 3


@dataclass(frozen=True)
class Pieces:
    """phi(z) = p(z) + sum over corners (t, +1, c) of c_i (z - t)_+^i and over corners (t, -1, c) of c_i (t - z)_+^i.

    Attributes
    ----------
    label
        Name for messages.
    centre
        Coefficients of p, the polynomial around zero, from the constant term up.
    corners
        Kink, side (away from zero) and coefficients of the truncated powers added there.
    """

    label: str
    centre: tuple[float, ...]
    corners: tuple[tuple[float, int, tuple[float, ...]], ...]

    def derivative(self) -> Pieces:
        """Differentiate; an error if phi jumps."""
        if any(c[0] != 0 for _, _, c in self.corners):
            raise ValueError(_jump_message(self.label))
        corners = ((t, side, tuple(side * c for c in _derivative(c))) for t, side, c in self.corners)
        return Pieces(self.label, _derivative(self.centre), tuple(corners))


def _derivative(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(i * c for i, c in enumerate(coefficients))[1:]


@lru_cache(maxsize=64)
def pieces(phi: Activation) -> Pieces | None:
    """Find the pieces of ``phi.function``; None unless they are polynomials of degree at most 3."""
    kinks = sorted(set(phi.kinks))
    edges = [(kinks[0] if kinks else 0.0) - 8, *kinks, (kinks[-1] if kinks else 0.0) + 8]
    polynomials = []
    for i, (low, high) in enumerate(itertools.pairwise(edges)):
        inside = low + (high - low) * (0.5 - 0.5 * np.cos(np.pi * (np.arange(24) + 0.5) / 24))
        # An unbounded piece must go on as it began.
        far = [low - 1e3, low - 30] * (i == 0) + [high + 30, high + 1e3] * (i == len(kinks))
        z = np.concatenate([inside, far])
        values = evaluate(phi, torch.from_numpy(z))[0].numpy()
        polynomial = _fit(inside, values[: len(inside)])
        if np.any(np.abs(polynomial(z) - values) > 1e-12 * np.maximum(np.abs(values), np.abs(values).max() * 1e-3)):
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


def _fit(z: NDArray[np.float64], values: NDArray[np.float64]) -> Polynomial:
    """Find the polynomial of lowest degree through the values, in powers of z."""

    def error(p: Polynomial) -> float:
        return float(np.abs(p(z) - values).max())

    for degree in range(_DEGREE + 1):
        fit: Polynomial = Polynomial.fit(z, values, degree).convert()
        if error(fit) <= 1e-13 * max(np.abs(values).max(), 1e-300):
            break
    # Coefficients are mostly short decimals: take those where they fit no worse than the least squares.
    noise = 1e-14 * np.abs(fit.coef).max()
    short = Polynomial([float(f"{c:.14g}") if abs(c) > noise else 0.0 for c in fit.coef])
    return short if error(short) <= error(fit) else fit


def _density(h: Tensor) -> Tensor:
    return torch.exp(-h * h / 2) / math.sqrt(2 * math.pi)


def _partial_moments(mu: Tensor, sigma: Tensor, ratio: Tensor, order: int) -> list[Tensor]:
    """E (mu + sigma z)_+^i for i = 0..order, with ratio = mu / sigma: the integral by parts of z."""
    n = [torch.special.ndtr(ratio), mu * torch.special.ndtr(ratio) + sigma * _density(ratio)]
    for i in range(1, order):
        n.append(mu * n[i] + i * sigma * sigma * n[i - 1])
    return n[: order + 1]


def _corner_pair(
    h1: Tensor, h2: Tensor, rho: Tensor, c: Tensor, orders: tuple[int, int]
) -> dict[tuple[int, int], Tensor]:
    """m_ij = E[(x - h1)_+^i (y - h2)_+^j] from the orthant probability m_00 and Stein's lemma.

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

    m = {(0, 0): orthant(h1, h2, rho)}
    if orders == (0, 0):
        return m
    below = [_density(h1) * g for g in conditional(h1, h2, orders[1])]
    left = [_density(h2) * g for g in conditional(h2, h1, orders[0])]
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
            coefficients[m] * math.perm(m, j) * _odd_factorial(m - j) * s**m for m in range(j, len(coefficients), 2)
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
            c * s**i * (math.perm(i, j) * n[i - j] if j <= i else math.factorial(i) * hermite[j - i - 1] * _density(h))
            for i, c in enumerate(coefficients)
            if c
        )
        moments.append(side**j * sum(terms, torch.zeros_like(s)))
    return moments


def _piecewise_value(phi: Pieces, pair: Pair, rho: Tensor, c: Tensor) -> Tensor:
    # Whatever contains the centre's polynomial is a finite Mehler sum, E[p(u) g(v)] = sum_j rho^j / j! p_j g_j.
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
            m = _corner_pair(h1, h2, side1 * side2 * rho, c, (len(c1) - 1, len(c2) - 1))
            for (i, j), moment in m.items():
                if c1[i] and c2[j]:
                    total = total + (c1[i] * pair.s1**i) * (c2[j] * pair.s2**j) * moment
    return total


def piecewise_dual(phi: Pieces, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """E[phi phi] and, if ``tangent``, E[phi' phi'] of a piecewise polynomial."""
    value = _piecewise_value(phi, pair, pair.rho.detach(), pair.c.detach())
    if not tangent and not pair.graded:
        return value, None
    slope = _piecewise_value(phi.derivative(), pair, pair.rho, pair.c)
    return pair.price(value, slope) if pair.graded else value, slope if tangent else None


def piecewise_mean(phi: Pieces, pair: Pair) -> Tensor:
    """E phi(u) of a piecewise polynomial."""
    value = _hermite_moments(phi.centre, pair.s1)[0]
    return sum((_corner_moments(*corner, pair.s1, 0)[0] for corner in phi.corners), value)
