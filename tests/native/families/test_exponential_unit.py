"""ELU, SELU and CELU: coefficients, orders with weights, and both engines against each other."""

import math

import numpy as np
import pytest
import torch
from tests.cases import normal
from tests.native.networks import compare, hard, network, phi_of
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.native import BeyondRange, NativeEngine, tape_of
from ntkit._src.native._core import Kind
from ntkit._src.native.families._exponential_unit import (
    ExponentialUnitFamily,
    unit_coefficients,
    unit_mean,
    unit_series,
)
from ntkit._src.native.families._series import ORDERS
from ntkit._src.program import ExponentialUnit, Pointwise
from ntkit._src.rules.expectations import dual

UNITS = {
    "elu": nn.ELU(),
    "elu, 0.3": nn.ELU(0.3),
    "elu, 1.5": nn.ELU(1.5),
    "selu": nn.SELU(),
    "celu, 2": nn.CELU(2.0),
}


def test_torch_functions_are_recognised():
    for layer, numbers in ((nn.ELU(0.3), (1.0, 0.3, 1.0)), (nn.CELU(2.0), (1.0, 1.0, 0.5))):
        unit = phi_of(layer)
        assert (unit.scale, unit.a, unit.rate) == numbers
    for layer in (nn.CELU(-2.0), nn.Hardswish()):
        assert not isinstance(phi_of(layer), ExponentialUnit)
    x = torch.linspace(-4, 3, 15, dtype=torch.float64)
    for layer in (*UNITS.values(), ntkit.Elementwise(F.elu, kinks=(0.0,))):
        unit = phi_of(layer)
        assert isinstance(unit, ExponentialUnit)
        left = unit.scale * unit.a * torch.expm1(unit.rate * x) / unit.rate
        torch.testing.assert_close(torch.where(x > 0, unit.scale * x, left), layer(x), rtol=1e-13, atol=0)


@pytest.mark.parametrize("a", [1.0, 0.3, 2.5])
def test_coefficients_by_integration(a):
    """Against Gauss's rule on either side of zero."""
    nodes, weights = np.polynomial.legendre.leggauss(400)
    x = np.concatenate([7 * (nodes - 1), 7 * (nodes + 1)])
    weights = np.concatenate([weights, weights]) * 7 * np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    hermite = [np.ones_like(x), x]
    for n in range(1, 40):
        hermite.append((x * hermite[n] - math.sqrt(n) * hermite[n - 1]) / math.sqrt(n + 1))
    orders = np.arange(1, 41)
    for z in (1e-3, 0.4, 1.1, 3.2):
        f = np.where(x > 0, z * x, a * np.expm1(z * np.minimum(x, 0)))
        exact = (np.stack(hermite) * f) @ weights
        assert abs(unit_mean(a, np.array([z]))[0] - exact[0]) < 1e-14 * (1 + z)
        np.testing.assert_allclose(
            unit_coefficients(a, np.array([z]), orders)[0] * z, exact[1:], rtol=0, atol=2e-13 * z
        )


def test_weights_are_positive_and_orders_few():
    found = unit_series(1.0, 1.0)
    assert len(found.orders) < 60 and found.orders[0] == 1 and bool((found.weights > 0).all())
    assert found.orders.tolist() == sorted(found.orders.tolist())
    np.testing.assert_allclose(found.weights[:4], 1, rtol=1e-4)  # the first orders stand for themselves


@pytest.mark.parametrize("name", ["elu", "selu"])
def test_one_layer_as_the_reference_expectation(name):
    """Variances from 1e-3 to 10 and all correlations: two vectors with a chosen angle, through one activation."""
    layer = UNITS[name]
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(2, 4), layer, nn.Linear(4, 1)), 1.0, 0.0)
    phi = phi_of(layer)
    angles = torch.tensor(
        [1e-6, 1e-4, 0.0, 0.01, 0.1, 0.5, 1.2, math.pi / 2, 2.0, 2.8, 3.1, math.pi], dtype=torch.float64
    )
    for q1, q2 in ((1e-3, 1e-3), (1e-3, 10.0), (1.0, 1.0), (10.0, 10.0)):
        psi = angles if q1 == q2 else angles[2:]  # H of inputs of different size says little about small angles
        x = math.sqrt(2 * q1) * torch.tensor([[1.0, 0.0]], dtype=torch.float64)
        z = math.sqrt(2 * q2) * torch.stack([torch.cos(psi), torch.sin(psi)], 1)
        k = math.sqrt(q1 * q2) * torch.cos(psi)
        h = (q1 + q2) / 2 - math.sqrt(q1 * q2) + 2 * math.sqrt(q1 * q2) * torch.sin(psi / 2) ** 2
        own = [dual(phi, q, q, q, tangent=True) for q in (torch.tensor([v], dtype=torch.float64) for v in (q1, q2))]
        value, slope = dual(phi, k, torch.full_like(k, q1), torch.full_like(k, q2), tangent=True, h=h)
        found = limit.both(x, z, engine="native")
        size, slope_size = ((own[0][i] * own[1][i]).sqrt() for i in (0, 1))
        assert float(((found.nngp[0] - value) / size).abs().max()) < 1e-11
        assert (
            float(((found.ntk[0] - value - slope * k) / (size + slope_size * math.sqrt(q1 * q2))).abs().max()) < 2e-11
        )


@pytest.mark.parametrize("name", UNITS)
@pytest.mark.parametrize("b_std", [0.3, 0.0])
def test_vectors_as_the_reference_engine(name, b_std):
    layer = UNITS[name]
    net = nn.Sequential(nn.Linear(5, 4), layer, nn.Linear(4, 4), layer, nn.Linear(4, 1))
    limit = ntkit.infinite_width(net, 0.9, b_std)
    x, z = (nn.functional.normalize(normal(n, 5, seed=n), dim=1) * 5**0.5 * 0.8 for n in (20, 3))
    native = compare(limit, hard(x))
    compare(limit, x, z)
    for kernel, gram in ((limit.ntk, native.ntk), (limit.nngp, native.nngp)):
        torch.testing.assert_close(kernel.diag(x), gram.diagonal(), rtol=1e-11, atol=1e-13)
    assert torch.equal(native.ntk, native.ntk.T)


class Residual(nn.Module):
    def __init__(self, layer):
        super().__init__()
        self.first, self.second, self.last = (
            nn.Conv2d(2, 4, 3, padding=1),
            nn.Conv2d(4, 4, 3, padding=1),
            nn.Linear(4, 1),
        )
        self.layer = layer

    def forward(self, x):
        x = self.first(x)
        return self.last((x + self.second(self.layer(x))).mean((2, 3)))


IMAGES = {
    "flatten": lambda layer: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), layer, nn.Conv2d(4, 4, 3), layer, nn.Flatten(), nn.Linear(24, 1)
    ),
    "average": lambda layer: nn.Sequential(
        nn.Conv2d(2, 4, 3, padding=1), layer, nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
        nn.Conv2d(4, 4, 1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    ),
    "residual": lambda layer: Residual(layer),
}  # fmt: skip


@pytest.mark.parametrize("head", IMAGES)
@pytest.mark.parametrize("name", ["elu", "selu"])
def test_images_as_the_reference_engine(name, head):
    limit = ntkit.infinite_width(IMAGES[head](UNITS[name]), 1.2, 0.1)
    compare(limit, hard(0.6 * normal(8, 2, 4, 5)))


def test_larger_inputs_take_more_orders_and_the_largest_the_reference_engine():
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 4), nn.ELU(), nn.Linear(4, 1)), w_std=1.0)
    engine = NativeEngine(limit.program((3,)))
    x = nn.functional.normalize(normal(4, 3), dim=1) * math.sqrt(3)  # deviations of one
    tiers = []
    for size in (0.9, 1.4, 3.1):
        exact = limit.both(size * x, engine="reference")
        for a, b in zip(engine.gram(size * x, None, True, True), exact, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10 * float(b.max()))
        tiers.append(max(engine._runners))
    assert tiers == [0, 1, 3]
    for runner in (engine.runner(tier) for tier in range(len(ORDERS))):
        with pytest.raises(BeyondRange):
            runner.gram(5 * x, None, True, False)
    with pytest.raises(
        BeyondRange, match=r"1 \(elu\): the native engine covers standard deviations up to 4\. Got up to 5\."
    ):
        engine.gram(5 * x, None, True, False)
    assert torch.equal(limit.ntk(5 * x), limit.ntk(5 * x, engine="reference"))


def test_steep_exponentials_are_left_to_the_reference_engine():
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 4), nn.CELU(0.05), nn.Linear(4, 1)))
    assert limit.explain((3,)).rows[0].engine == "reference"
    with pytest.raises(
        ntkit.errors.EngineError, match=r"no instruction for 1: .*celu.* \(its exponential is too steep\)"
    ):
        limit.ntk(normal(2, 3), engine="native")


def test_the_tape_and_the_table():
    program = network(nn.Sequential(nn.Linear(3, 4), nn.SELU(), nn.Linear(4, 4), nn.SELU(), nn.Linear(4, 1)), 3).program
    between = tape_of(program)
    operations = [between.operations[step.operation] for step in between.instructions if step.kind == Kind.SERIES]
    assert [op.rounded for op in operations] == [False, True]
    table = operations[0].table
    scale, alpha = 1.0507009873554805, 1.6732632423543772
    assert table.jumps == pytest.approx([scale * (alpha - 1), scale * alpha, scale * alpha], rel=1e-15)
    assert len(table.closed) == 3 * len(table.orders) and not any(table.closed[:6])
    assert ExponentialUnitFamily().table(Pointwise(phi_of(nn.CELU(2.0))), 0).jumps == [0.0, 0.5, 0.25]
