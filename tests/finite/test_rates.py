"""Empirical kernels of random networks approach the exact ones at the rate width^-1/2, for every family of operations."""

from __future__ import annotations

import inspect

import pytest
import torch
from tests.rules import test_activation_rules, test_rules
from tests.rules.families import Vectors

import ntkit
from ntkit.plots import fit_power_law
from ntkit.testing import RuleConformance

FAMILIES = {
    f"{name}": case
    for module in (test_rules, test_activation_rules)
    for name, case in inspect.getmembers(module, inspect.isclass)
    if issubclass(case, RuleConformance) and name.startswith("Test") and case.gains.get("init", "ntk") == "ntk"
}
DRAWS = 24


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_rate(family):
    """The root mean square over draws of the relative error, at three widths that quadruple."""
    case = FAMILIES[family]()
    widths = (32, 128, 512) if issubclass(FAMILIES[family], Vectors) else (16, 64, 256)
    x, draws = case.inputs()[:4], torch.Generator().manual_seed(0)
    errors = []
    for width in widths:
        net = case.module(width).double()
        limit = ntkit.infinite_width(net, **case.gains)
        exact = limit.ntk(x) if case.tangent else limit.nngp(x)
        ntkit.parametrize_ntk(net, **case.gains)
        row = []
        for _ in range(DRAWS):
            ntkit.initialize(net, generator=draws)
            row.append(float((empirical(case, net, x) - exact).norm() / exact.norm()))
        errors.append(row)
    law = fit_power_law(widths, errors)
    assert -0.75 < law.exponent < -0.3, (law, [sum(row) / DRAWS for row in errors])


def empirical(case: RuleConformance, net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Give the tangent kernel; without one, the covariance of the outputs given all layers but the last."""
    if case.tangent:
        return ntkit.empirical(net).ntk(x)
    weight, bias = (net[-1].parametrizations[name][0] for name in ("weight", "bias"))
    features = net[:-1](x).detach()
    return weight.scale**2 * features @ features.T + bias.scale**2


def test_every_family_is_here():
    assert len(FAMILIES) > 25
