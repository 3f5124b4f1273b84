"""Mehler's expansion: its parts by their definitions, and sums that have a closed form."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ntkit._src.program import AnyFunction
from ntkit._src.rules.expectations import _mehler
from ntkit._src.rules.expectations._mehler import BANDS, mehler_fields, mehler_reaches

ABS = AnyFunction(torch.abs, kinks=(0.0,), label="abs")


def test_hermite_functions():
    x = torch.linspace(-5, 5, 11, dtype=torch.float64)
    found = _mehler.hermite_functions(x, 9)
    for n, row in enumerate(found):
        he = np.polynomial.hermite_e.hermeval(x.numpy(), [0] * n + [1]) * np.exp(-(x.numpy() ** 2) / 4)
        np.testing.assert_allclose(row, he / math.sqrt(math.factorial(n)), rtol=1e-12, atol=1e-13)
    assert torch.equal(_mehler.hermite_functions(x, 1), found[:1])


@pytest.mark.parametrize("terms", [2, 3, 7, 8, 21])
def test_powers(terms):
    rho = torch.tensor([-0.9, 0.0, 0.4], dtype=torch.float64)
    torch.testing.assert_close(_mehler._powers(rho, terms), rho[:, None] ** torch.arange(terms), rtol=1e-13, atol=0)


def test_every_band_has_enough_terms():
    for band, rho in enumerate(BANDS):
        assert rho ** _mehler._terms(band) <= 1e-13 < rho ** (_mehler._terms(band) - 1)


@pytest.mark.parametrize("kinks", [(), (-0.4,), (0.3, 0.31, 2.0)])
def test_coefficients(kinks):
    """h_n of f(z) = sum of (z - k)_+ and exp(-z): integrals between the kinks, for several deviations."""

    def function(z):
        return torch.exp(-z / 2) + sum(((z - k).relu() for k in kinks), torch.zeros_like(z))

    phi = AnyFunction(function, kinks=kinks, label=f"with kinks at {kinks}")
    s = torch.tensor([0.01, 0.6, 1.7], dtype=torch.float64)
    found = _mehler._all_coefficients(phi, s, 6)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    for row, deviation in enumerate(s.tolist()):
        edges = np.unique(np.clip([*np.linspace(-11, 11, 23), *(k / deviation for k in kinks)], -11, 11))
        half = np.diff(edges)[:, None] / 2
        x = (edges[:-1, None] + half * (nodes + 1)).ravel()
        w = (half * weights).ravel() * np.exp(-x * x / 2) / math.sqrt(math.tau)
        z = torch.from_numpy(deviation * x).requires_grad_()
        y = function(z)
        (slope,) = torch.autograd.grad(y.sum(), z)
        for n in range(6):
            he = np.polynomial.hermite_e.hermeval(x, [0] * n + [1]) / math.sqrt(math.factorial(n))
            for which, values in enumerate((y.detach(), slope)):
                assert found[which, row, n].item() == pytest.approx(w @ (values.numpy() * he), rel=1e-11, abs=1e-13)


def test_absolute_value():
    """E|u||v| = (2 / pi) s1 s2 (c + rho asin rho) with c = sqrt(1 - rho^2), E[sign sign] = (2 / pi) asin rho, and slopes."""
    rho = torch.tensor([-0.95, -0.3, 0.0, 0.29, 0.6, 0.601, 0.97], dtype=torch.float64)
    s1, s2 = torch.linspace(0.02, 3, 7, dtype=torch.float64), torch.full((7,), 1.3, dtype=torch.float64)
    value, slope = mehler_fields(ABS, s1, s2, rho, graded=True)
    exact = (2 / math.pi) * s1 * s2 * (torch.sqrt(1 - rho**2) + rho * torch.asin(rho))
    torch.testing.assert_close(value[0], exact, rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(value[1:3], exact.expand(2, -1), rtol=1e-10, atol=1e-12)  # s dE/ds, homogeneous
    torch.testing.assert_close(value[3], (2 / math.pi) * s1 * s2 * torch.asin(rho), rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(slope[0], (2 / math.pi) * torch.asin(rho), rtol=1e-11, atol=1e-12)
    torch.testing.assert_close(slope[1:3], torch.zeros(2, 7, dtype=torch.float64), rtol=0, atol=1e-9)
    plain = mehler_fields(ABS, s1, s2, rho, graded=False)
    torch.testing.assert_close(plain[:, 0], torch.stack([value[0], slope[0]]), rtol=1e-13, atol=1e-15)
    assert not plain[:, 1:].any()


def test_reach():
    quick = AnyFunction(lambda z: torch.where(z > 0.3, torch.sin(40 * z), 12 * z), kinks=(0.3,), label="quick")
    assert mehler_reaches(quick, torch.tensor([1e-3, 40.0], dtype=torch.float64)).tolist() == [True, False]
    assert mehler_reaches(ABS, torch.tensor([1e-6, 1.0, 1e3], dtype=torch.float64)).all()
