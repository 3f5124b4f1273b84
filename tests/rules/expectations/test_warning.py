"""Inaccurate expectations: every kernel warns, at the user's line, and says why."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.program import Activation
from ntkit._src.rules.expectations import dual, mean
from ntkit._src.rules.expectations._partition import partition
from ntkit._src.rules.expectations._warning import TOLERANCE, _find_kink, _zoom, warn_inaccurate
from ntkit.errors import QuadratureWarning


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
    jump = quadrature(lambda z: torch.where(z > 0.71, torch.sin(z), 1 + z))
    for phi, q in ((jump, 2.0), (quadrature(torch.cos), 1e5)):
        for _ in range(2):
            with pytest.warns(QuadratureWarning):
                mean(phi, torch.tensor([q], dtype=torch.float64))


def test_every_kernel_warns():
    x = torch.randn(2, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    x *= 500 / x.norm(dim=1, keepdim=True)
    net = nn.Sequential(nn.Linear(4, 8), ntkit.Elementwise(torch.sin), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net)
    for kernel in (limit.ntk, limit.nngp, limit.ntk):
        with pytest.warns(QuadratureWarning, match="varies too quickly"):
            kernel(x)
    with pytest.warns(QuadratureWarning, match="varies too quickly"):
        limit.nngp.diag(x)


def test_accurate_functions_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warn_inaccurate(UNDECLARED, (1.0, 16.0), TOLERANCE)
    with pytest.warns(QuadratureWarning, match="error of 1.1e-10 for variances between 1 and 16, more than 1e-10"):
        warn_inaccurate(UNDECLARED, (1.0, 16.0), 1.1e-10)


@pytest.mark.parametrize(
    ("function", "kinks", "found"),
    [
        (lambda z: torch.sin(z) + (z - 0.3).abs(), (), 0.3),
        (lambda z: torch.where(z > 0.71, torch.sin(z), 1 + z), (), 0.71),
        (lambda z: torch.tanh(z) + torch.relu(z - 1), (1.0,), None),
        (lambda z: torch.sin(40 * z), (), None),
        (torch.tanh, (), None),
    ],
)
def test_kinks_are_told_from_waves(function, kinks, found):
    phi = quadrature(function, kinks)
    kink = _find_kink(phi, partition(phi, 4))
    assert kink is None if found is None else kink == pytest.approx(found, abs=1e-6)


@pytest.mark.parametrize(
    ("kink", "bend", "found"),
    [(5e-4, 1.0, True), (1.5e-3, 1.0, False), (5e-4, 1.5e-8, True), (5e-4, 5e-9, False)],
    ids=["near", "far", "weak", "rounding"],
)
def test_how_far_and_how_weak_a_kink_is_looked_for(kink, bend, found):
    """Within a thousandth, and where the slope changes by more than 1e-8 of one and itself."""
    place = _zoom(quadrature(lambda z: bend * torch.relu(z - kink)), 0.0)
    assert place == pytest.approx(kink, abs=1e-6) if found else place is None
