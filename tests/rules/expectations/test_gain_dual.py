"""E[u phi'(u) v phi'(v)] against two-dimensional Gauss-Hermite quadrature, for smooth functions, and by hand for others."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.rules.expectations.functions import f64

from ntkit._src.program import GELU, AnyFunction, Cos, Erf, Exp, Polynomial, Rectified, Sin
from ntkit._src.rules.expectations import gain_dual

NODES, WEIGHTS = np.polynomial.hermite_e.hermegauss(80)
WEIGHTS = WEIGHTS / math.sqrt(math.tau)


@pytest.mark.parametrize(
    "phi",
    [
        Polynomial((0.3, -1.0, 0.5, 0.2)),
        Erf(),
        GELU(),
        Sin(),
        Cos(),
        Exp(),
        AnyFunction(torch.tanh, label="tanh"),
    ],
    ids=str,
)
def test_against_quadrature(phi):
    k, q1, q2 = f64([0.3, -0.2, 0.0, 0.4], [0.5, 0.5, 0.3, 0.4], [0.4, 0.6, 0.2, 0.4])
    found = gain_dual(phi, k, q1, q2)
    for value, covariance, one, two in zip(found.tolist(), k.tolist(), q1.tolist(), q2.tolist(), strict=True):
        x, y = np.meshgrid(NODES, NODES, indexing="ij")
        u = math.sqrt(one) * x
        v = covariance / math.sqrt(one) * x + math.sqrt(max(two - covariance**2 / one, 0)) * y
        slopes = []
        for z in (torch.from_numpy(u), torch.from_numpy(v)):
            z.requires_grad_()
            slopes.append((z.detach() * torch.autograd.grad(phi(z).sum(), z)[0]).numpy())
        exact = WEIGHTS @ (slopes[0] * slopes[1]) @ WEIGHTS
        assert value == pytest.approx(exact, rel=1e-8, abs=1e-10)


def test_homogeneous_functions_are_their_own():
    """z phi'(z) = phi(z) for a ReLU, whose dual at rho = 1 is q / 2."""
    q = f64([0.5, 2.0])[0]
    torch.testing.assert_close(gain_dual(Rectified(0.0, 1.0), q, q, q), q / 2)
    torch.testing.assert_close(gain_dual(Rectified(-1.0, 1.0), q, q, q), q)


def test_derivatives():
    k, q = f64([0.3, -0.1], [0.5, 0.7])
    for phi in (Erf(), Polynomial((0.0, 1.0, 2.0))):
        assert torch.autograd.gradcheck(
            lambda k, q, phi=phi: gain_dual(phi, k, q, q), (k.clone().requires_grad_(), q.clone().requires_grad_())
        )
