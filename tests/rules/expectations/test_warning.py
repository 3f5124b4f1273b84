"""Inaccurate expectations: every kernel warns, at the user's line, and says why."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import QuadratureWarning
from ntkit.program import Activation
from ntkit.rules.expectations import dual, mean
from ntkit.rules.expectations._warning import TOLERANCE, _is_kink, warn_inaccurate


def quadrature(function, kinks=()):
    return Activation("quadrature", function=function, kinks=kinks, label="f")


UNDECLARED = quadrature(lambda z: torch.tanh(z) + torch.relu(z - 1))


@pytest.mark.parametrize(
    ("phi", "q", "hint"),
    [
        (UNDECLARED, 2.0, r"Near z = 1 it is not smooth: declare its kinks"),
        (quadrature(lambda z: torch.tanh(z).clamp(max=0.5), (0.5,)), 2.0, r"Near z = 0\.549\d* it is not smooth"),
        (quadrature(torch.sin), 1e5, "varies too quickly for these variances"),
    ],
    ids=["undeclared", "misplaced", "wave"],
)
def test_every_call_warns(phi, q, hint):
    variance = torch.tensor(q, dtype=torch.float64)
    for correlation in (0.5, 0.3):
        with pytest.warns(QuadratureWarning, match=hint) as caught:
            dual(phi, correlation * variance, variance, variance, tangent=True)
        assert {warning.filename for warning in caught} == {__file__}


def test_means_warn():
    for phi, q in ((UNDECLARED, 2.0), (quadrature(torch.cos), 1e5)):
        for _ in range(2):
            with pytest.warns(QuadratureWarning):
                mean(phi, torch.tensor([q], dtype=torch.float64))


def test_every_kernel_warns():
    x = 1e3 * torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    net = nn.Sequential(nn.Linear(4, 8), ntkit.Elementwise(torch.sin), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net)
    for kernel in (limit.ntk, limit.nngp, limit.ntk):
        with pytest.warns(QuadratureWarning, match="varies too quickly"):
            kernel(x)
    with pytest.warns(QuadratureWarning, match="varies too quickly"):
        limit.nngp.diag(x)


def test_accurate_functions_do_not_warn():
    """A step of width 1/200 is integrated with panels of its own."""
    sharp = quadrature(lambda z: torch.tanh(200 * z))
    q = torch.tensor(2.0, dtype=torch.float64)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        value = dual(sharp, q / 2, q, q, tangent=False)[0]
        warn_inaccurate(sharp, (1.0, 16.0), TOLERANCE)
    assert abs(float(value) - 1 / 3) < 0.01  # of the sign: 2/pi asin(1/2)


def test_kinks_are_told_from_waves():
    assert _is_kink(quadrature(lambda z: (z - 0.3).abs()), 0.3001)
    assert not _is_kink(quadrature(lambda z: torch.sin(40 * z)), 0.3)
