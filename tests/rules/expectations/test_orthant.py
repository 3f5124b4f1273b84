"""Orthant probabilities against one-dimensional integrals, and where the correlation is one."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.special import ndtr, owens_t
from torch.autograd import gradcheck

from ntkit._src.rules.expectations import _piecewise
from ntkit._src.rules.expectations._piecewise import orthant


def grid(*axes: list[float]) -> tuple[torch.Tensor, ...]:
    mesh = torch.meshgrid(*(torch.tensor(a, dtype=torch.float64) for a in axes), indexing="ij")
    return tuple(m.reshape(-1) for m in mesh)


THRESHOLDS = [-6.0, -1.3, -1e-9, 0.0, 0.4, 2.0, 7.0]


def test_owen():
    h, a = grid(np.linspace(0, 9, 60).tolist(), np.linspace(0, 4, 60).tolist())
    found = _piecewise._owen(h, a * h)
    np.testing.assert_allclose(found[60:], owens_t(h.numpy(), a.numpy())[60:], rtol=0, atol=5e-16)


def test_against_an_integral_over_one_of_them():
    """P = int_{h1}^inf d(x) Phi((rho x - h2) / c) dx, by Gauss-Legendre on panels that are fine near the step."""
    h1, h2, rho = grid(THRESHOLDS, THRESHOLDS, [-0.999, -0.7, 0.0, 0.3, 0.95])
    nodes, weights = np.polynomial.legendre.leggauss(24)
    for a, b, r, found in zip(h1.tolist(), h2.tolist(), rho.tolist(), orthant(h1, h2, rho).tolist(), strict=True):
        c, step = math.sqrt((1 - r) * (1 + r)), b / r if r else 0.0
        around = [step + k * c for k in range(-40, 41)] if r else []
        edges = np.unique(np.clip([a, 11.0, *around, *np.linspace(a, 11, 30)], a, 11))
        half = np.diff(edges)[:, None] / 2
        x = edges[:-1, None] + half * (nodes + 1)
        exact = (half * weights * np.exp(-x * x / 2) * ndtr((r * x - b) / c)).sum() / math.sqrt(math.tau)
        assert found == pytest.approx(exact, rel=0, abs=2e-15), (a, b, r)


def test_equal_opposite_and_independent():
    h1, h2 = grid(THRESHOLDS, THRESHOLDS)
    one, upper = torch.ones_like(h1), torch.special.ndtr(-h1)
    torch.testing.assert_close(orthant(h1, h2, one), torch.special.ndtr(-torch.maximum(h1, h2)), rtol=0, atol=1e-15)
    both = (upper - torch.special.ndtr(h2)).clamp_min(0)
    torch.testing.assert_close(orthant(h1, h2, -one), both, rtol=0, atol=1e-15)
    torch.testing.assert_close(orthant(h1, h2, 0 * one), upper * torch.special.ndtr(-h2), rtol=0, atol=1e-15)
    rho = torch.linspace(-1, 1, 21, dtype=torch.float64)
    zero = torch.zeros_like(rho)
    torch.testing.assert_close(orthant(zero, zero, rho), 0.25 + torch.asin(rho) / math.tau, rtol=0, atol=1e-15)


def test_gradients_and_chunks(monkeypatch):
    h1, h2, rho = grid([-1.2, 0.3], [0.5, 2.0], [-0.8, 0.1, 0.9])
    whole = orthant(h1, h2, rho)
    monkeypatch.setattr(_piecewise, "_CHUNK", 5)
    torch.testing.assert_close(orthant(h1, h2, rho), whole, rtol=1e-14, atol=1e-16)
    assert gradcheck(orthant, tuple(t.clone().requires_grad_() for t in (h1, h2, rho)))
    ends = torch.tensor([1.0, -1.0], dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(orthant(h1[:1], h1[:1], ends).sum(), ends)
    assert slope.tolist() == [0.0, 0.0]  # it is infinite there, and zero keeps gradients finite
