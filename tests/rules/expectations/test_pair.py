"""Two Gaussians in the coordinates of the rules, where they coincide and where they vanish."""

from __future__ import annotations

import math

import pytest
import torch
from tests.rules.expectations.functions import f64

from ntkit._src.rules.expectations._pair import Pair, safe_sqrt


def test_coordinates():
    k, q1, q2 = f64([[0.6, -1.0]], [[2.0]], [[0.5, 3.0]])
    pair = Pair(k, q1, q2)
    torch.testing.assert_close(pair.rho, k / (q1 * q2).sqrt())
    torch.testing.assert_close(pair.c_squared, 1 - pair.rho**2)
    torch.testing.assert_close(pair.c, (1 - pair.rho**2).sqrt())
    torch.testing.assert_close(pair.theta, torch.asin(pair.rho))
    torch.testing.assert_close(pair.s1 * pair.s2, pair.product)
    assert not pair.graded


@pytest.mark.parametrize("excess", [0.0, 1e-15, -1e-15])
def test_rounding_near_coincidence_is_taken_off(excess):
    k, q = f64([2 + excess, -2 - excess], [2.0, 2.0])
    pair = Pair(k, q, q)
    assert pair.rho.tolist() == [1.0, -1.0]
    assert pair.c.tolist() == [0.0, 0.0]
    torch.testing.assert_close(pair.theta, torch.tensor([1.0, -1.0], dtype=torch.float64) * math.pi / 2)
    assert Pair(k * (1 - 1e-12), q, q).c.min() > 1e-6  # no more than rounding


def test_vanishing_variances():
    k, q1, q2 = f64([0.0, 0.0], [0.0, 1e-40], [1.0, 1.0])
    pair = Pair(k, q1, q2)
    assert pair.rho.tolist() == [0.0, 0.0]
    assert (pair.s1 > 0).all()


def test_square_root_without_infinite_derivative():
    x = torch.tensor([0.0, 4.0], dtype=torch.float64, requires_grad=True)
    root = safe_sqrt(x)
    assert root.tolist() == [0.0, 2.0]
    assert torch.autograd.grad(root.sum(), x)[0].tolist() == [0.0, 0.25]


def test_price():
    k = torch.tensor([0.3, 0.0], dtype=torch.float64, requires_grad=True)
    (q,) = f64([1.0, 0.0])
    pair = Pair(k, q, q)
    assert pair.graded
    value, slope = f64([5.0, 6.0], [0.7, 0.2])
    found = pair.price(value, slope)
    assert found.tolist() == [5.0, 6.0]
    torch.testing.assert_close(torch.autograd.grad(found.sum(), k)[0], slope)


def test_derivatives_of_many_pairs_at_once():
    """Under torch.func.vmap no value can be looked at, so derivatives do not depend on a look at the variances."""
    k, q1, q2 = f64([0.3, -0.2, 0.9], [1.0, 2.0, 1.5], [0.7, 1.1, 1.2])
    found = torch.func.vmap(torch.func.grad(lambda *one: Pair(*one).rho))(k, q1, q2)
    torch.testing.assert_close(found, 1 / (q1 * q2).sqrt())
