"""Inaccurate expectations: every kernel refuses or, where the error is small, warns at the user's line; and says why."""

from __future__ import annotations

import warnings

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit._src.program import AnyFunction
from ntkit._src.rules.expectations import dual, mean
from ntkit._src.rules.expectations._limits import REFUSED, TOLERANCE, _find_kink, _zoom, report_error
from ntkit._src.rules.expectations._partition import partition
from ntkit.errors import QuadratureError, QuadratureWarning


def quadrature(function, kinks=()):
    return AnyFunction(function, kinks=kinks, label="f")


UNDECLARED = quadrature(lambda z: torch.tanh(z) + torch.relu(z - 1))


@pytest.mark.parametrize(
    ("phi", "q", "hint"),
    [
        (UNDECLARED, 2.0, r"Near z = 1 it is not smooth: declare its kinks"),
        (quadrature(lambda z: 2 * torch.tanh(z).clamp(max=0.5), (0.5,)), 2.0, r"Near z = 0\.549\d* it is not smooth"),
        (quadrature(torch.sin), 1e5, "varies too quickly for these variances"),
    ],
    ids=["undeclared", "misplaced", "wave"],
)
def test_every_call_refuses(phi, q, hint):
    variance = torch.tensor(q, dtype=torch.float64)
    for correlation in (0.5, 0.3):
        with pytest.raises(QuadratureError, match=f"activation f .*refused.*{hint}"):
            dual(phi, correlation * variance, variance, variance, tangent=True)


def test_small_errors_warn_each_time():
    """The derivative jumps by a hundredth at an undeclared kink: the estimate is small, and not below the error."""
    weak = quadrature(lambda z: torch.tanh(z) + 0.01 * torch.relu(z - 1.1))
    declared = quadrature(weak.function, (1.1,))
    variance = torch.tensor(2.0, dtype=torch.float64)
    for correlation in (0.995, 0.3):
        arguments = (correlation * variance, variance, variance)
        with pytest.warns(QuadratureWarning, match=r"error of 1\.\de-08 for variances of 2, more than 1e-10") as caught:
            found = dual(weak, *arguments, tangent=True)[1]
        assert {warning.filename for warning in caught} == {__file__}
        assert float(abs(found - dual(declared, *arguments, tangent=True)[1])) < 1.5e-8
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dual(weak, *arguments, tangent=False)  # the derivative's error does not count where it is not computed


def test_means():
    jump = quadrature(lambda z: torch.where(z > 0.71, torch.sin(z), 1 + z))
    for _ in range(2):
        with pytest.warns(QuadratureWarning, match=r"Near z = 0\.71"):
            mean(jump, torch.tensor([2.0], dtype=torch.float64))
        with pytest.raises(QuadratureError, match="varies too quickly"):
            mean(quadrature(torch.cos), torch.tensor([1e5], dtype=torch.float64))


def test_every_kernel_refuses():
    x = normal(2, 4)
    x *= 500 / x.norm(dim=1, keepdim=True)
    net = nn.Sequential(nn.Linear(4, 8), ntkit.Elementwise(torch.sin), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net)
    for kernel in (limit.ntk, limit.nngp, limit.ntk):
        with pytest.raises(QuadratureError, match="varies too quickly"):
            kernel(x)
    with pytest.raises(QuadratureError, match="varies too quickly"):
        limit.nngp.diag(x)


def test_limits():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        report_error(UNDECLARED, (1.0, 16.0), TOLERANCE)
    for error, text in ((1.1e-10, "1.1e-10"), (REFUSED, "1.0e-06")):
        with pytest.warns(
            QuadratureWarning, match=f"error of {text} for variances between 1 and 16, more than 1e-10. Near"
        ):
            report_error(UNDECLARED, (1.0, 16.0), error)
    for error in (1.1e-6, float("inf"), float("nan")):
        with pytest.raises(QuadratureError, match="between 1 and 16, more than 1e-06, and are refused. Near z = 1"):
            report_error(UNDECLARED, (1.0, 16.0), error)


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
