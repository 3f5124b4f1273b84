"""Kernels of random networks, one by one and in the mean, approach the exact ones at the rate width^-1/2, for every family."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.power_law import fit_rate
from tests.rules.every_family import ACTIVATIONS, LAYERS
from tests.rules.families import Vectors

import ntkit
from ntkit.testing import RuleConformance

FAMILIES = {name: case for name, case in {**LAYERS, **ACTIVATIONS}.items() if case.gains.get("init", "ntk") == "ntk"}
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
    law = fit_rate(widths, errors)
    assert -0.75 < law.exponent < -0.3, (law, [sum(row) / DRAWS for row in errors])


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name, case in FAMILIES.items() if case.tangent])
def test_monte_carlo_rate(family):
    """The standard error falls like width^-1/2, and the mean is off by no more than it and a bias of order 1 / width."""
    case = FAMILIES[family]()
    widths = (32, 128, 512) if issubclass(FAMILIES[family], Vectors) else (16, 64, 256)
    x = case.inputs()[:4]
    errors = []
    for width in widths:
        net = case.module(width).double()
        exact = ntkit.infinite_width(net, **case.gains).ntk(x)
        sampled = ntkit.monte_carlo(net, 2 * DRAWS, generator=torch.Generator().manual_seed(1), **case.gains)
        mean, error = sampled.ntk.estimate(x)
        errors.append(float(error.norm() / exact.norm()))
        assert float((mean - exact).norm() / exact.norm()) < 4 * errors[-1] + 4 / width
    rate = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert -0.75 < rate < -0.3, errors


def empirical(case: RuleConformance, net: torch.nn.Module, x: torch.Tensor) -> torch.Tensor:
    """Give the tangent kernel; without one, the covariance of the outputs given all layers but the last."""
    if case.tangent:
        return ntkit.empirical(net).ntk(x)
    weight, bias = (net[-1].parametrizations[name][0] for name in ("weight", "bias"))
    features = net[:-1](x).detach()
    return weight.scale**2 * features @ features.T + bias.scale**2


def test_every_family_is_here():
    assert len(FAMILIES) > 25
