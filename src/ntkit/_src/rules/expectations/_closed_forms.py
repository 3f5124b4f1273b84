"""Gaussian expectations E[phi(u) phi(v)], E[phi'(u) phi'(v)] and E[phi(u)] that have closed forms, one class per activation.

Price's theorem (1958), dE[phi(u) phi(v)]/dk = E[phi'(u) phi'(v)], gives the second expectation from the first.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from ntkit._src.program import GELU, Cos, Cosh, Erf, Exp, Expm1, NormalCDF, Polynomial, Rectified, Sign, Sin, Sinh, Step

from ._expectations import Expectations, register
from ._pair import Pair, safe_sqrt

Both = tuple[Tensor, Tensor]


@register(Rectified)
class _Rectified(Expectations[Rectified]):
    """E = ab k + (b - a)^2 R, E' = ab + (b - a)^2 S for a min(z, 0) + b max(z, 0) (Cho and Saul 2009).

    S = P(u > 0, v > 0) = 1/4 + theta / (2 pi) and R = s1 s2 (c / (2 pi) + rho S).
    """

    def dual(self, phi: Rectified, pair: Pair, tangent: bool) -> Both:
        a, b = phi.slopes()
        if a == b:
            return a * b * pair.k, torch.full_like(pair.k, a * b)
        s = 0.25 + pair.theta / (2 * math.pi)
        r = pair.product * torch.addcmul(pair.c / (2 * math.pi), pair.rho, s)
        if (a, b) == (0.0, 1.0):
            return r, s
        return a * b * pair.k + (b - a) ** 2 * r, a * b + (b - a) ** 2 * s

    def mean(self, phi: Rectified, q: Tensor) -> Tensor:
        return (phi.high - phi.low) / math.sqrt(2 * math.pi) * safe_sqrt(q)

    def difference(self, phi: Rectified, pair: Pair) -> Tensor:
        """Return ab h + (b - a)^2 (h / 2 - s1 s2 (sin psi - psi cos psi) / (2 pi)), rho = cos psi.

        Nothing cancels where psi is small, if h is exact there. With a ratio r, u is r times itself, and so is phi(u).
        """
        a, b = phi.slopes()
        h = pair.h
        assert h is not None
        psi = torch.atan2(pair.c, pair.rho)
        square = torch.where(psi < 1, psi, 0.0) ** 2
        series = torch.zeros_like(psi)  # sin psi - psi cos psi = sum over n > 0 of (-1)^(n+1) 2n psi^(2n+1) / (2n+1)!
        for n in range(9, 0, -1):
            series = 2 * n / math.factorial(2 * n + 1) - square * series
        beyond = torch.where(psi < 1, psi * square * series, torch.sin(psi) - psi * torch.cos(psi))
        product = pair.product if pair.ratio is None else pair.ratio * pair.product
        return a * b * h + (b - a) ** 2 * (h / 2 - product * beyond / (2 * math.pi))


@register(Erf)
class _Erf(Expectations[Erf]):
    """E = 2/pi asin(2k / sqrt((1 + 2 q1)(1 + 2 q2))), E' = dE/dk (Williams 1997)."""

    def dual(self, phi: Erf, pair: Pair, tangent: bool) -> Both:
        # (1 + 2 q1)(1 + 2 q2) - 4 k^2 without its cancellation; the arc sine as an arc tangent for the same reason.
        root = torch.sqrt(1 + 2 * pair.v1 + 2 * pair.v2 + 4 * pair.v1 * pair.v2 * pair.c_squared)
        return (2 / math.pi) * torch.atan2(2 * pair.k, root), (4 / math.pi) / root


@register(GELU)
class _GELU(Expectations[GELU]):
    """z Phi(z), with A = 1 + q1, B = 1 + q2, D = AB - k^2 = 1 + q1 + q2 + det, det = q1 q2 - k^2.

    E = k P + (q1 q2 sqrt(D) + k^2 / sqrt(D)) / (2 pi AB) with P = 1/4 + asin(k / sqrt(AB)) / (2 pi): two uses of Stein's
    lemma on E[u v Phi(u) Phi(v)], and Phi2(0, 0; k / sqrt(AB)). E' = dE/dk
    = P + k / (2 pi sqrt(D)) [(1 + q1 + q2)(1 + 2 / D) + (q1 q2 + det) / D] / (AB), where every term is non-negative but for
    the sign of k: nothing cancels, however large the variances.
    """

    def dual(self, phi: GELU, pair: Pair, tangent: bool) -> Both:
        k = pair.k
        ab = (1 + pair.v1) * (1 + pair.v2)
        q, sums = pair.v1 * pair.v2, 1 + pair.v1 + pair.v2
        det = q * pair.c_squared
        d = sums + det
        root = torch.sqrt(d)
        both = torch.atan2(root, -k) / (2 * math.pi)  # P, accurate where it is near zero too
        square = k * k / ab
        value = k * both + (q / ab * root + square / root) / (2 * math.pi)
        opposite = k < -4 * root
        if bool(
            opposite.any()
        ):  # t = sqrt(D) / |k| is small: k (atan t - t) replaces the first two terms, which cancel
            t = root / torch.where(opposite, -k, 4 * root)
            rest = torch.zeros_like(t)
            for n in range(14, -1, -1):
                rest = 1 / (2 * n + 3) - t * t * rest
            small = -k * t**3 * rest + (square - sums / ab * d) / root
            value = torch.where(opposite, small / (2 * math.pi), value)
        bracket = (sums / ab) * (1 + 2 / d) + (q / ab + det / ab) / d
        return value, both + k / root * bracket / (2 * math.pi)

    def mean(self, phi: GELU, q: Tensor) -> Tensor:
        return q / torch.sqrt(2 * math.pi * (1 + q))  # Stein: E[u Phi(u)] = q E[density(u)]


@register(NormalCDF)
class _NormalCDF(Expectations[NormalCDF]):
    """E = P(x < u, y < v) = 1/4 + asin(k / sqrt((1 + q1)(1 + q2))) / (2 pi), E' = 1 / (2 pi sqrt((1 + q1)(1 + q2) - k^2)).

    x and y are independent standard Gaussians, so that x - u and y - v have the covariance k (Williams 1997).
    """

    def dual(self, phi: NormalCDF, pair: Pair, tangent: bool) -> Both:
        root = torch.sqrt(1 + pair.v1 + pair.v2 + pair.v1 * pair.v2 * pair.c_squared)  # nothing cancels
        return torch.atan2(root, -pair.k) / (2 * math.pi), 1 / (2 * math.pi * root)

    def mean(self, phi: NormalCDF, q: Tensor) -> Tensor:
        return torch.full_like(q, 0.5)


@register(Sin, Cos)
class _Wave(Expectations[Sin | Cos]):
    """E = exp(-(q1 + q2) / 2) sinh k, E' = exp(-(q1 + q2) / 2) cosh k for the sine, exchanged for the cosine."""

    def dual(self, phi: Sin | Cos, pair: Pair, tangent: bool) -> Both:
        # With |k| split off, neither factor overflows and small k loses no digits; |k| has derivative 1 at 0 here.
        sign = torch.where(pair.k >= 0, 1.0, -1.0).to(pair.k)
        size = sign * pair.k
        exponent = size - (pair.v1 + pair.v2) / 2
        # The same without cancellation: at large variances the difference would be rounding error, even of an input with itself.
        apart = (safe_sqrt(pair.v1) - safe_sqrt(pair.v2)) ** 2 / 2 + pair.product * pair.gap
        exponent = exponent + torch.where(pair.product > 0, -apart - exponent, 0.0).detach()
        largest = torch.exp(exponent) / 2
        sine, cosine = -sign * largest * torch.expm1(-2 * size), largest * (1 + torch.exp(-2 * size))
        return (sine, cosine) if phi.odd else (cosine, sine)

    def mean(self, phi: Sin | Cos, q: Tensor) -> Tensor:
        return torch.zeros_like(q) if phi.odd else torch.exp(-q / 2)


@register(Sinh, Cosh)
class _Hyperbolic(Expectations[Sinh | Cosh]):
    """E = exp((q1 + q2) / 2) sinh k, E' = exp((q1 + q2) / 2) cosh k for the sine, exchanged for the cosine."""

    def dual(self, phi: Sinh | Cosh, pair: Pair, tangent: bool) -> Both:
        half = (pair.v1 + pair.v2) / 2
        both, apart = torch.exp(half + pair.k) / 2, torch.exp(half - pair.k) / 2
        small = torch.exp(half) * torch.sinh(pair.k.clamp(-1, 1))  # loses no digits
        sine, cosine = torch.where(pair.k.abs() < 1, small, both - apart), both + apart
        return (sine, cosine) if phi.odd else (cosine, sine)

    def mean(self, phi: Sinh | Cosh, q: Tensor) -> Tensor:
        return torch.zeros_like(q) if phi.odd else torch.exp(q / 2)


@register(Exp)
class _Exp(Expectations[Exp]):
    """E = E' = exp((q1 + q2) / 2 + k)."""

    def dual(self, phi: Exp, pair: Pair, tangent: bool) -> Both:
        value = torch.exp((pair.v1 + pair.v2) / 2 + pair.k)
        return value, value

    def mean(self, phi: Exp, q: Tensor) -> Tensor:
        return torch.exp(q / 2)


@register(Expm1)
class _Expm1(Expectations[Expm1]):
    """E = exp((q1 + q2) / 2) (exp(k) - 1) + (exp(q1 / 2) - 1)(exp(q2 / 2) - 1), E' = exp((q1 + q2) / 2 + k)."""

    def dual(self, phi: Expm1, pair: Pair, tangent: bool) -> Both:
        half = (pair.v1 + pair.v2) / 2
        own = torch.expm1(pair.v1 / 2) * torch.expm1(pair.v2 / 2)
        return torch.exp(half) * torch.expm1(pair.k) + own, torch.exp(half + pair.k)

    def mean(self, phi: Expm1, q: Tensor) -> Tensor:
        return torch.expm1(q / 2)


def odd_factorial(n: int) -> int:
    """(n - 1)!! = E z^n for even n and a standard Gaussian z."""
    return math.prod(range(1, n, 2))


def derivative_coefficients(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(i * c for i, c in enumerate(coefficients))[1:]


@register(Polynomial)
class _Polynomial(Expectations[Polynomial]):
    """E[p(u) p(v)] = sum_j k^j j! h_j(q1) h_j(q2), h_j(q) = sum_m c_m C(m, j) (m - j - 1)!! q^((m - j) / 2).

    From E[u^m v^n] = sum_j j! C(m, j) C(n, j) k^j E[w1^(m - j)] E[w2^(n - j)] over j with m - j and n - j even.
    """

    def dual(self, phi: Polynomial, pair: Pair, tangent: bool) -> Both:
        return self._value(pair, phi.coefficients), self._value(pair, derivative_coefficients(phi.coefficients))

    def mean(self, phi: Polynomial, q: Tensor) -> Tensor:
        even = phi.coefficients[::2]
        return sum((c * odd_factorial(2 * i) * q**i for i, c in enumerate(even)), torch.zeros_like(q))

    @staticmethod
    def _value(pair: Pair, coefficients: tuple[float, ...]) -> Tensor:
        total = torch.zeros_like(pair.k)
        for j in range(len(coefficients)):
            sides = []
            for q in (pair.v1, pair.v2):
                side = torch.zeros_like(q)
                for m in range(j, len(coefficients), 2):
                    side = side + coefficients[m] * math.comb(m, j) * odd_factorial(m - j) * q ** ((m - j) // 2)
                sides.append(side)
            total = total + math.factorial(j) * pair.k**j * sides[0] * sides[1]
        return total


@register(Sign)
class _Sign(Expectations[Sign]):
    """E = 2/pi asin(rho), with sign(0) = 0."""

    def dual(self, phi: Sign, pair: Pair, tangent: bool) -> tuple[Tensor, None]:
        return (2 / math.pi) * pair.theta, None


@register(Step)
class _Step(Expectations[Step]):
    """E = P(u > 0, v > 0) = 1/4 + asin(rho) / (2 pi); a variable without variance contributes the value at zero."""

    def dual(self, phi: Step, pair: Pair, tangent: bool) -> tuple[Tensor, None]:
        return self.mean(phi, pair.v1) * self.mean(phi, pair.v2) + pair.theta / (2 * math.pi), None

    def mean(self, phi: Step, q: Tensor) -> Tensor:
        return torch.where(q > 0, 0.5, torch.full_like(q, phi.at_zero))
