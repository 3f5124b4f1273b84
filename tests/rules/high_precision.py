"""Kernels of fully connected networks in 80 digits: the oracle where float64 cancels."""

from __future__ import annotations

from collections.abc import Callable

from mpmath import asin, atan2, cosh, exp, matrix, mp, mpf, pi, sinh, sqrt

__all__ = ["Dual", "duals", "kernels"]

Dual = Callable[[mpf, mpf, mpf], tuple[mpf, mpf]]
"""E[phi phi] and E[phi' phi'] from k, q1 and q2."""


def _rectified(low: str) -> Dual:
    def dual(k: mpf, q1: mpf, q2: mpf) -> tuple[mpf, mpf]:
        a, b = mpf(low), mpf(1)
        root = sqrt(max(q1 * q2 - k * k, 0))
        s = mpf(1) / 4 + atan2(k, root) / (2 * pi)
        return a * b * k + (b - a) ** 2 * (root / (2 * pi) + k * s), a * b + (b - a) ** 2 * s

    return dual


def _erf(k: mpf, q1: mpf, q2: mpf) -> tuple[mpf, mpf]:
    ab = (1 + 2 * q1) * (1 + 2 * q2)
    return 2 / pi * asin(2 * k / sqrt(ab)), 4 / pi / sqrt(ab - 4 * k * k)


def _gelu(k: mpf, q1: mpf, q2: mpf) -> tuple[mpf, mpf]:
    ab = (1 + q1) * (1 + q2)
    root = sqrt(ab - k * k)
    both = mpf(1) / 4 + asin(k / sqrt(ab)) / (2 * pi)
    n = q1 * q2 + k * k * (1 - q1 * q2) / ab
    return k * both + n / (2 * pi * root), both + k / (2 * pi * root) * (1 + 2 * (1 - q1 * q2) / ab + n / root**2)


def _sin(k: mpf, q1: mpf, q2: mpf) -> tuple[mpf, mpf]:
    factor = exp(-(q1 + q2) / 2)
    return factor * sinh(k), factor * cosh(k)


def _cos(k: mpf, q1: mpf, q2: mpf) -> tuple[mpf, mpf]:
    value, slope = _sin(k, q1, q2)
    return slope, value


duals: dict[str, Dual] = {
    "relu": _rectified("0"),
    "leaky": _rectified(str(0.1)),
    "erf": _erf,
    "gelu": _gelu,
    "sin": _sin,
    "cos": _cos,
}


def kernels(
    phi: Dual,
    depth: int,
    x1: list[float],
    x2: list[float],
    w_std: float,
    b_std: float,
    residual: bool = False,
    first_bias: bool = True,
) -> tuple[mpf, mpf]:
    """NTK and NNGP kernel of ``depth`` hidden layers, or of that many branches h + Linear(phi(h)) after a first layer."""
    with mp.workdps(80):
        w, b = mpf(w_std) ** 2, mpf(b_std) ** 2
        rows = [matrix([mpf(value) for value in x]) for x in (x1, x2)]
        pairs = ((rows[0], rows[0]), (rows[1], rows[1]), (rows[0], rows[1]))
        q1, q2, k = (w * (u.T * v)[0] / len(x1) + (b if first_bias else 0) for u, v in pairs)
        theta = k
        for _ in range(depth):
            value, slope = phi(k, q1, q2)
            own = [w * phi(q, q, q)[0] + b for q in (q1, q2)]
            new, new_theta = w * value + b, w * value + b + w * slope * theta
            if residual:
                q1, q2, k, theta = q1 + own[0], q2 + own[1], k + new, theta + new_theta
            else:
                q1, q2, k, theta = own[0], own[1], new, new_theta
        return theta, k
