"""Functions that grow quickly: right where their expectations exist and float64 holds them, refused elsewhere."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from tests.cases import normal
from tests.rules.expectations.functions import quadrature
from torch import nn

import ntkit
from ntkit._src.rules.expectations import dual, mean
from ntkit._src.rules.expectations._limits import RADIUS, finite_reach, reach, tail
from ntkit._src.rules.expectations._mehler import mehler_reaches
from ntkit._src.rules.expectations._table import tabulated
from ntkit.errors import InputError, QuadratureError

RATE = 0.1


SQUARED = quadrature("squared", lambda z: torch.exp(RATE * z * z))
STEEP = quadrature("steep", lambda z: torch.exp(3 * z))
TANH = quadrature("tanh", torch.tanh)


def f64(values):
    return torch.tensor(values, dtype=torch.float64)


def squared(k, q1, q2):
    """E exp(a u^2 + a v^2) = det(1 - 2 a S)^(-1/2) =: E, and E[4 a^2 u v ...] = 4 a^2 k E / det, S the covariance of u and v."""
    det = (1 - 2 * RATE * q1) * (1 - 2 * RATE * q2) - (2 * RATE * k) ** 2
    value = det**-0.5
    return value, 4 * RATE**2 * k * value / det


def steep(k, q1, q2):
    value = torch.exp(9 * (q1 + q2 + 2 * k) / 2)
    return value, 9 * value


# variances, both of a pair; correlations on both sides of those from which panels take over from series
PAIRS = [(1.0, 1.0), (1.0, 0.4), (0.995, 0.9), (0.9, 1.0), (-0.6, 0.4), (-1.0, 1.0)]


@pytest.mark.parametrize(
    ("phi", "exact", "variance"),
    [(SQUARED, squared, q) for q in (0.01, 0.9, 1.0, 2.0, 2.37)] + [(STEEP, steep, q) for q in (0.1, 1.0)],
)
def test_equals_closed_forms(phi, exact, variance):
    q1 = torch.full((len(PAIRS),), variance, dtype=torch.float64)
    rho, ratio = f64(PAIRS).T
    q2 = q1 * ratio
    k = rho * torch.sqrt(q1 * q2)
    scales = [torch.sqrt(a * b) for a, b in zip(exact(q1, q1, q1), exact(q2, q2, q2), strict=True)]
    for found, expected, scale in zip(dual(phi, k, q1, q2, tangent=True), exact(k, q1, q2), scales, strict=True):
        assert ((found - expected).abs() <= 1e-11 * scale).all()
    average = (1 - 2 * RATE * variance) ** -0.5 if phi is SQUARED else math.exp(9 * variance / 2)
    assert float(mean(phi, f64([variance]))[0]) == pytest.approx(average, rel=1e-12)
    if variance not in (0.01, 1.0):
        return
    k.requires_grad_()
    (slope,) = torch.autograd.grad(dual(phi, k, q1, q2, tangent=False)[0].sum(), k)
    torch.testing.assert_close(slope, exact(k.detach(), q1, q2)[1], rtol=1e-9, atol=1e-9 * float(scales[1].max()))


def test_kernel_of_an_elementwise_layer():
    """The variances at hand count: at 1 the square's expectation is 1 / sqrt(1 - 0.4) although at 2.5 it is infinite."""
    x = normal(3, 4)
    x *= 2 / x.norm(dim=1, keepdim=True)
    net = nn.Sequential(nn.Linear(4, 8, bias=False), ntkit.Elementwise(SQUARED.function), nn.Linear(8, 1, bias=False))
    limit = ntkit.infinite_width(net, w_std=1.0, b_std=0.0)
    k = x @ x.T / 4
    value, slope = squared(k, torch.ones_like(k), torch.ones_like(k))
    torch.testing.assert_close(limit.nngp(x), value, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(limit.ntk(x), value + k * slope, rtol=1e-12, atol=1e-12)
    assert limit.nngp.diag(x).tolist() == pytest.approx([0.6**-0.5] * 3, rel=1e-12)
    with pytest.raises(
        QuadratureError, match=r"variance of 4, .*up to a variance of about 2\.[34]\d*\. Scale the inputs"
    ):
        limit.nngp(2 * x)


@pytest.mark.parametrize("q", [2.45, 2.5, 3.0, 30.0])
def test_divergence_is_refused(q):
    q = f64([q, 0.1])
    for k in (q, q / 2, 0 * q):
        with pytest.raises(QuadratureError, match="grows too quickly"):
            dual(SQUARED, k, q, q, tangent=False)
    with pytest.raises(QuadratureError, match="grows too quickly"):
        mean(SQUARED, q)


def test_growth_with_kinks():
    """exp(z^2 / 10) for z > 1 and a line before it, which meets it there, against Gauss-Legendre on both sides of the kink."""
    height = math.exp(RATE)
    phi = quadrature(
        "kinked", lambda z: torch.where(z > 1, torch.exp(RATE * z.clamp_min(1) ** 2), height * (0.5 + 0.5 * z)), (1.0,)
    )
    q = 2.2
    x, w = np.polynomial.legendre.leggauss(400)
    edges = (-14.0, 1 / math.sqrt(q), 40.0)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        z = torch.from_numpy(low + (high - low) * (x + 1) / 2)
        density = torch.exp(-z * z / 2) / math.sqrt(2 * math.pi)
        total += float((phi.function(math.sqrt(q) * z) ** 2 * density * torch.from_numpy(w)).sum()) * (high - low) / 2
    found = dual(phi, f64([q]), f64([q]), f64([q]), tangent=False)[0]
    assert float(found[0]) == pytest.approx(total, rel=1e-12)


def test_reach():
    s = f64([1e-3, 0.5, 1.0, 30.0])
    assert reach(TANH, s).tolist() == [RADIUS] * 4
    wide = reach(SQUARED, f64([0.1, 1.0, 1.5, 1.6]))
    assert wide[0] == RADIUS and wide[0] < wide[1] < wide[2] < wide[3] == math.inf
    for deviation, radius in ((1.0, wide[1]), (1.5, wide[2])):
        # exp(-(1 - 4 a s^2) x^2 / 2) has less than 1e-13 of its mass beyond, and more than that half as far out
        root = math.sqrt((1 - 4 * RATE * deviation**2) / 2)
        assert math.erfc(root * float(radius)) < 1e-13 < math.erfc(root * float(radius) / 2)
    assert finite_reach(SQUARED, s[:2]).tolist() == [RADIUS] * 2
    # each deviation has its own answer, whatever the others are
    assert reach(SQUARED, f64([[1.5], [1.0]])).tolist() == [[wide[2]], [wide[1]]]
    zero = quadrature("zero", lambda z: 0 * z)
    assert reach(zero, s).tolist() == [RADIUS] * 4


def test_reach_up_to_where_a_bucket_ends():
    """1.543 and the largest deviation of its bucket, 1.544, are on either side of where float64 no longer suffices."""
    s = f64([1.50, 1.53, 1.541, 1.5425])
    alone = [float(reach(SQUARED, t[None])) for t in s]
    assert reach(SQUARED, s).tolist() == alone and alone == sorted(alone)


def test_tail():
    for radius in (1.0, 2.0, 3.0):
        share = math.erfc(radius * math.sqrt(0.3))  # of exp(-0.6 x^2 / 2), that of f'^2 being larger
        assert share < tail(SQUARED, 1.0, radius) < 1
    line = quadrature("line", lambda z: torch.exp(0.0 * z) + z)
    assert tail(line, 1e-9, 1.0) == pytest.approx(math.erfc(math.sqrt(0.5)), abs=0.02)
    log = quadrature("log", lambda z: torch.log(5 + z))
    assert tail(log, 1.0, 4.9) < 1 and tail(log, 1.0, 5.1) == math.inf


def test_who_serves():
    """Tables where a cell's largest variance is no problem, series within their range, panels as far as float64 goes."""
    assert tabulated(SQUARED, f64([0.01]), f64([0.01])).all() and not tabulated(SQUARED, f64([1.0]), f64([0.01])).any()
    assert mehler_reaches(SQUARED, f64([0.5, 1.0, 1.54])).tolist() == [True, True, False]


def test_functions_that_end():
    """A logarithm of 5 + z serves as long as no Gaussian reaches -5; nan is refused by name where one does."""
    log = quadrature("log", lambda z: torch.log(5 + z))
    x = np.arange(-9, 9, 0.02)
    for q in (0.05, 0.2):
        values = np.log(5 + math.sqrt(q) * x) ** 2 @ np.exp(-x * x / 2) * 0.02 / math.sqrt(2 * math.pi)
        assert float(dual(log, *f64([[q], [q], [q]]), tangent=True)[0][0]) == pytest.approx(float(values), rel=1e-12)
    with pytest.raises(InputError, match=r"activation log .*must be finite.*at z = -5\.\d"):
        dual(log, *f64([[0.5], [0.5], [0.5]]), tangent=False)
    plain = quadrature("ln", torch.log)
    for call in (lambda q: dual(plain, q, q, q, tangent=True), lambda q: mean(plain, q)):
        with pytest.raises(InputError, match=r"activation ln .*must be finite.*at z = -0\.0"):
            call(f64([1.0]))


def test_what_is_beyond_float64_is_refused():
    quartic = quadrature("quartic", lambda z: torch.exp(0.01 * z**4))
    q = f64([0.5])
    with pytest.raises(QuadratureError, match="activation quartic"):
        dual(quartic, q, q, q, tangent=False)
