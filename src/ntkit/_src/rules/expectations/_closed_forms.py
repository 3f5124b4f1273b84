"""Gaussian expectations E[phi(u) phi(v)] and E[phi'(u) phi'(v)] that have closed forms.

Price's theorem (1958), dE[phi(u) phi(v)]/dk = E[phi'(u) phi'(v)], gives the second expectation from the first.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ntkit._src.program import Activation
from ntkit.errors import InputError

from ._pair import Pair, safe_sqrt

__all__ = [
    "closed_dual",
    "closed_mean",
    "derivative_coefficients",
    "jump_message",
    "odd_factorial",
    "rectified_difference",
]


def _rectified(pair: Pair, parameters: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = ab k + (b - a)^2 R, E' = ab + (b - a)^2 S for a min(z, 0) + b max(z, 0) (Cho and Saul 2009).

    S = P(u > 0, v > 0) = 1/4 + theta / (2 pi) and R = s1 s2 (c / (2 pi) + rho S).
    """
    a, b = parameters
    if a == b:
        return a * b * pair.k, torch.full_like(pair.k, a * b)
    s = 0.25 + pair.theta / (2 * math.pi)
    r = pair.product * torch.addcmul(pair.c / (2 * math.pi), pair.rho, s)
    if (a, b) == (0.0, 1.0):
        return r, s
    return a * b * pair.k + (b - a) ** 2 * r, a * b + (b - a) ** 2 * s


def rectified_difference(pair: Pair, parameters: tuple[float, ...]) -> Tensor:
    """E[(phi(u) - phi(v))^2] / 2 = ab h + (b - a)^2 (h / 2 - s1 s2 (sin psi - psi cos psi) / (2 pi)), rho = cos psi.

    Nothing cancels where psi is small, if h is exact there. With a ratio r, u is r times itself, and so is phi(u).
    """
    a, b = parameters
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


def _erf(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = 2/pi asin(2k / sqrt((1 + 2 q1)(1 + 2 q2))) E' = dE/dk (Williams 1997)."""
    # (1 + 2 q1)(1 + 2 q2) - 4 k^2 without its cancellation; the arc sine as an arc tangent for the same reason.
    root = torch.sqrt(1 + 2 * pair.v1 + 2 * pair.v2 + 4 * pair.v1 * pair.v2 * pair.c_squared)
    return (2 / math.pi) * torch.atan2(2 * pair.k, root), (4 / math.pi) / root


def _gelu(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """z Phi(z), with A = 1 + q1, B = 1 + q2, D = AB - k^2 = 1 + q1 + q2 + det, det = q1 q2 - k^2.

    E = k P + (q1 q2 sqrt(D) + k^2 / sqrt(D)) / (2 pi AB) with P = 1/4 + asin(k / sqrt(AB)) / (2 pi): two uses of Stein's
    lemma on E[u v Phi(u) Phi(v)], and Phi2(0, 0; k / sqrt(AB)). E' = dE/dk
    = P + k / (2 pi sqrt(D)) [(1 + q1 + q2)(1 + 2 / D) + (q1 q2 + det) / D] / (AB), where every term is non-negative but for
    the sign of k: nothing cancels, however large the variances.
    """
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
    if bool(opposite.any()):  # t = sqrt(D) / |k| is small: k (atan t - t) replaces the first two terms, which cancel
        t = root / torch.where(opposite, -k, 4 * root)
        rest = torch.zeros_like(t)
        for n in range(14, -1, -1):
            rest = 1 / (2 * n + 3) - t * t * rest
        small = -k * t**3 * rest + (square - sums / ab * d) / root
        value = torch.where(opposite, small / (2 * math.pi), value)
    bracket = (sums / ab) * (1 + 2 / d) + (q / ab + det / ab) / d
    return value, both + k / root * bracket / (2 * math.pi)


def _sin(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = exp(-(q1 + q2) / 2) sinh k, E' = exp(-(q1 + q2) / 2) cosh k."""
    # With |k| split off, neither factor overflows and small k loses no digits; |k| has derivative 1 at 0 here.
    sign = torch.where(pair.k >= 0, 1.0, -1.0).to(pair.k)
    size = sign * pair.k
    exponent = size - (pair.v1 + pair.v2) / 2
    # The same without cancellation: at large variances the difference would be rounding error, even of an input with itself.
    apart = (safe_sqrt(pair.v1) - safe_sqrt(pair.v2)) ** 2 / 2 + pair.product * pair.gap
    exponent = exponent + torch.where(pair.product > 0, -apart - exponent, 0.0).detach()
    largest = torch.exp(exponent) / 2
    return -sign * largest * torch.expm1(-2 * size), largest * (1 + torch.exp(-2 * size))


def _cos(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E and E' of the sine, exchanged."""
    value, slope = _sin(pair, ())
    return slope, value


def _exp(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = E' = exp((q1 + q2) / 2 + k)."""
    value = torch.exp((pair.v1 + pair.v2) / 2 + pair.k)
    return value, value


def _sinh(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = exp((q1 + q2) / 2) sinh k, E' = exp((q1 + q2) / 2) cosh k."""
    half = (pair.v1 + pair.v2) / 2
    both, apart = torch.exp(half + pair.k) / 2, torch.exp(half - pair.k) / 2
    # Small k loses no digits.
    return torch.where(pair.k.abs() < 1, torch.exp(half) * torch.sinh(pair.k.clamp(-1, 1)), both - apart), both + apart


def _cosh(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E and E' of the hyperbolic sine, exchanged."""
    value, slope = _sinh(pair, ())
    return slope, value


def _expm1(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E = exp((q1 + q2) / 2) (exp(k) - 1) + (exp(q1 / 2) - 1)(exp(q2 / 2) - 1), E' = exp((q1 + q2) / 2 + k)."""
    half = (pair.v1 + pair.v2) / 2
    own = torch.expm1(pair.v1 / 2) * torch.expm1(pair.v2 / 2)
    return torch.exp(half) * torch.expm1(pair.k) + own, torch.exp(half + pair.k)


def odd_factorial(n: int) -> int:
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
                side = side + coefficients[m] * math.comb(m, j) * odd_factorial(m - j) * q ** ((m - j) // 2)
            sides.append(side)
        total = total + math.factorial(j) * pair.k**j * sides[0] * sides[1]
    return total


def derivative_coefficients(coefficients: tuple[float, ...]) -> tuple[float, ...]:
    return tuple(i * c for i, c in enumerate(coefficients))[1:]


def _polynomial(pair: Pair, coefficients: tuple[float, ...]) -> tuple[Tensor, Tensor]:
    """E and E' of a polynomial, its coefficients from the constant term up."""
    return _polynomial_value(pair, coefficients), _polynomial_value(pair, derivative_coefficients(coefficients))


def _sign(pair: Pair, _: tuple[float, ...]) -> tuple[Tensor, None]:
    """E = 2/pi asin(rho), with sign(0) = 0."""
    return (2 / math.pi) * pair.theta, None


def _step_mean(q: Tensor, at_zero: float) -> Tensor:
    return torch.where(q > 0, 0.5, torch.full_like(q, at_zero))


def _step(pair: Pair, parameters: tuple[float, ...]) -> tuple[Tensor, None]:
    """E = P(u > 0, v > 0) = 1/4 + asin(rho) / (2 pi); a variable without variance contributes the value at zero."""
    means = [_step_mean(v, parameters[0]) for v in (pair.v1, pair.v2)]
    return means[0] * means[1] + pair.theta / (2 * math.pi), None


_RULES: dict[str, Callable[[Pair, tuple[float, ...]], tuple[Tensor, Tensor | None]]] = {
    "rectified": _rectified,
    "erf": _erf,
    "gelu": _gelu,
    "sin": _sin,
    "cos": _cos,
    "exp": _exp,
    "sinh": _sinh,
    "cosh": _cosh,
    "expm1": _expm1,
    "polynomial": _polynomial,
    "sign": _sign,
    "step": _step,
}


def closed_dual(phi: Activation, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """E[phi phi] and, if ``tangent``, E[phi' phi'] of a named activation."""
    if phi.name not in _RULES:
        raise InputError(f"Activation name must be 'quadrature' or one of {sorted(_RULES)}. Got {phi.name!r}.")
    value, slope = _RULES[phi.name](pair, phi.parameters)
    if tangent and slope is None:
        raise InputError(jump_message(str(phi)))
    return value, slope if tangent else None


def jump_message(label: str) -> str:
    return (
        f"Activation {label} jumps, so E[phi' phi'] and the NTK do not exist. Ask only for the NNGP kernel "
        "(tangent=False), or use a continuous activation such as erf in place of sign."
    )


def closed_mean(phi: Activation, pair: Pair) -> Tensor:
    """E phi(u) for u ~ N(0, q), q being the first variance of the pair."""
    q = pair.v1
    match phi.name:
        case "rectified":
            return (phi.parameters[1] - phi.parameters[0]) / math.sqrt(2 * math.pi) * safe_sqrt(q)
        case "gelu":  # Stein: E[u Phi(u)] = q E[density(u)]
            return q / torch.sqrt(2 * math.pi * (1 + q))
        case "cos":
            return torch.exp(-q / 2)
        case "exp" | "cosh":
            return torch.exp(q / 2)
        case "expm1":
            return torch.expm1(q / 2)
        case "polynomial":
            even = phi.parameters[::2]
            return sum((c * odd_factorial(2 * i) * q**i for i, c in enumerate(even)), torch.zeros_like(q))
        case "step":
            return _step_mean(q, phi.parameters[0])
        case "erf" | "sin" | "sinh" | "sign":
            return torch.zeros_like(q)
    raise InputError(f"Activation name must be 'quadrature' or one of {sorted(_RULES)}. Got {phi.name!r}.")
