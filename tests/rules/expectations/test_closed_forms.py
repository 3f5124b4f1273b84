"""Closed forms where they could cancel: large variances, and inputs that nearly coincide, against many digits."""

from __future__ import annotations

import itertools

import pytest
import torch
from mpmath import mp, mpf

from ntkit._src.program import GELU, Cos, Sin
from ntkit._src.rules.expectations import dual, odd_factorial

mp.dps = 60
POWERS = [10.0**power for power in (-6, -3, 0, 2, 4, 6, 8, 10, 12)]


def gelu(k, q1, q2):
    """E and dE/dk as first derived: these cancel, which 60 digits survive."""
    k, q1, q2 = mpf(k), mpf(q1), mpf(q2)
    a, b = 1 + q1, 1 + q2
    d, n = a * b - k * k, q1 * q2 + k * k * (1 - q1 * q2) / (a * b)
    both = mpf(1) / 4 + mp.asin(k / mp.sqrt(a * b)) / (2 * mp.pi)
    root = 2 * mp.pi * mp.sqrt(d)
    return k * both + n / root, both + k / root * (1 + 2 * (1 - q1 * q2) / (a * b) + n / d)


def test_gelu_at_all_variances():
    """To 1e-14 of sqrt(E phi(u)^2 E phi(v)^2), and of the same of the slopes."""
    points = [(q1, q2, rho) for q1, q2 in itertools.product(POWERS, POWERS) for rho in (1, 0.999, 0.3, 0, -0.6, -1)]
    q1, q2, rho = torch.tensor(points, dtype=torch.float64).T
    k = rho * q1.sqrt() * q2.sqrt()
    found = dual(GELU(), k, q1, q2, tangent=True)
    for i, (one, two, r) in enumerate(points):
        exact = gelu(r * mp.sqrt(mpf(one) * mpf(two)) if abs(r) == 1 else mpf(float(k[i])), one, two)
        scales = [mp.sqrt(a * b) for a, b in zip(gelu(one, one, one), gelu(two, two, two), strict=True)]
        for value, truth, scale in zip(found, exact, scales, strict=True):
            assert abs(mpf(float(value[i])) - truth) < 1e-14 * scale, points[i]


def test_gelu_of_an_input_with_itself():
    """The tangent kernel's factor, relative to itself; it had the wrong sign at |x| = 1e6."""
    q = torch.tensor(POWERS, dtype=torch.float64)
    slope = dual(GELU(), q, q, q, tangent=True)[1]
    for value, variance in zip(slope, POWERS, strict=True):
        assert abs(mpf(float(value)) / gelu(mpf(variance), variance, variance)[1] - 1) < 1e-14
    single = dual(GELU(), q.float(), q.float(), q.float(), tangent=True)[1]
    torch.testing.assert_close(single.double(), slope, rtol=1e-6, atol=0)


@pytest.mark.parametrize("phi", [Sin(), Cos()], ids=str)
def test_waves_on_the_diagonal_at_huge_variances(phi):
    """E sin^2 = (1 - exp(-2 q)) / 2 and E cos^2 = (1 + exp(-2 q)) / 2."""
    q = torch.tensor([1e-6, 0.3, 20.0, 1e5, 3.3e9, 1.7e13], dtype=torch.float64)
    sine, cosine = -torch.expm1(-2 * q) / 2, (1 + torch.exp(-2 * q)) / 2
    value, slope = dual(phi, q, q, q, tangent=True)
    for found, exact in zip((value, slope), (sine, cosine) if phi.odd else (cosine, sine), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-14, atol=0)
    opposite = dual(phi, -q, q, q, tangent=True)
    torch.testing.assert_close(opposite[0], -sine if phi.odd else cosine, rtol=1e-14, atol=0)
    torch.testing.assert_close(opposite[1], cosine if phi.odd else -sine, rtol=1e-14, atol=0)


def test_waves_of_different_variances():
    """E sin(u) sin(v) = exp(-(q1 + q2) / 2) sinh k, with 60 digits."""
    points = [(20.0, 21.0, 0.999), (400.0, 401.0, 1.0), (3.0, 700.0, -0.5), (0.0, 5.0, 0.0), (0.2, 0.1, -1.0)]
    q1, q2, rho = torch.tensor(points, dtype=torch.float64).T
    k = rho * q1.sqrt() * q2.sqrt()
    found = dual(Sin(), k, q1, q2, tangent=False)[0]
    for i, (one, two, r) in enumerate(points):
        covariance = r * mp.sqrt(mpf(one) * mpf(two)) if abs(r) == 1 else mpf(float(k[i]))
        exact = mp.exp(-(mpf(one) + two) / 2) * mp.sinh(covariance)
        assert abs(mpf(float(found[i])) - exact) <= 2e-16 * abs(exact) * max(50, one, two) + 1e-300, points[i]


def test_moments_of_a_standard_normal():
    """E z^n = (n - 1)!! for even n."""
    assert [odd_factorial(n) for n in (0, 2, 4, 6, 8)] == [1, 1, 3, 15, 105]
