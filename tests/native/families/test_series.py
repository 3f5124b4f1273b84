"""Activations by Hermite series: tables, their reach, and both engines against each other."""

import math

import pytest
import torch
from tests.cases import mlp, normal
from tests.native.networks import compare, hard, network, phi_of
from torch import nn

import ntkit
from ntkit._src.native import BeyondRange, NativeEngine, tape_of
from ntkit._src.native._core import Kind
from ntkit._src.native.families._series import ORDERS, _coefficients, _expansion, series_table
from ntkit._src.program import AnyFunction

SMOOTH = {
    "tanh": (nn.Tanh(), 1, 2),
    "sigmoid": (nn.Sigmoid(), 1, 2),
    "silu": (nn.SiLU(), 1, 1),
    "softplus": (nn.Softplus(), 1, 1),
    "mish": (nn.Mish(), 1, 1),
    "mine": (ntkit.Elementwise(lambda z: torch.exp(-z * z)), 2, 2),
}


@pytest.mark.parametrize("name", SMOOTH)
def test_vectors_as_the_reference_engine(name):
    layer = SMOOTH[name][0]
    net = nn.Sequential(nn.Linear(5, 4), layer, nn.Linear(4, 4), layer, nn.Linear(4, 1))
    limit = ntkit.infinite_width(net, 0.9, 0.3)
    # Variances between 1/16 and 1, for which the reference engine has one table.
    x, z = (nn.functional.normalize(normal(n, 5, seed=n), dim=1) * 5**0.5 * 0.8 for n in (40, 3))
    native = compare(limit, hard(x))
    compare(limit, x, z)
    for kernel, gram in ((limit.ntk, native.ntk), (limit.nngp, native.nngp)):
        torch.testing.assert_close(kernel.diag(x), gram.diagonal(), rtol=1e-12, atol=1e-13)
    assert torch.equal(native.ntk, native.ntk.T)


IMAGES = {
    "flatten": lambda layer: [
        nn.Conv2d(2, 4, 3, padding=1), layer, nn.Conv2d(4, 4, 3), layer, nn.Flatten(), nn.Linear(24, 1)
    ],
    "average": lambda layer: [
        nn.Conv2d(2, 4, 3, padding=1), layer, nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(),
        nn.Conv2d(4, 4, 1), layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    ],
    "circular": lambda layer: [
        nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), layer, nn.Conv2d(4, 4, 3, padding=1, padding_mode="circular"),
        layer, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1),
    ],
}  # fmt: skip


@pytest.mark.parametrize("head", IMAGES)
@pytest.mark.parametrize("name", ["tanh", "silu", "mine"])
def test_images_as_the_reference_engine(name, head):
    limit = ntkit.infinite_width(nn.Sequential(*IMAGES[head](SMOOTH[name][0])), 1.2, 0.1)
    compare(limit, hard(0.6 * normal(8, 2, 4, 5)))


def test_float32_inputs_are_computed_in_float64():
    limit = ntkit.infinite_width(mlp(5, 4, 1, activation=nn.Tanh))
    x = normal(6, 5).float()
    found = limit.ntk(x, engine="native")
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, limit.ntk(x.double(), engine="native").float(), rtol=0, atol=0)


@pytest.mark.parametrize("name", SMOOTH)
def test_odd_and_even_functions_have_every_other_order(name):
    layer, first, step = SMOOTH[name]
    orders = series_table(phi_of(layer), ORDERS[0]).orders
    assert orders[0] == first and all((n - first) % step == 0 for n in orders) and len(orders) <= ORDERS[0] / 2


@pytest.mark.parametrize("name", ["sigmoid", "softplus", "mine"])
def test_a_constant_costs_no_digits_at_small_deviations(name):
    # Tables divide the coefficients by the deviation, and with them what rounding leaves of phi(0) in each. The true ones of
    # these orders are below 1e-30; with phi(0) in the sums, 4e-16 and more is left, depending on the BLAS.
    coefficients, _ = _coefficients(phi_of(SMOOTH[name][0]), torch.tensor([7e-4], dtype=torch.float64), 0.0)
    assert coefficients[0, 9:].norm() < 1e-16


def reach(table):
    return table.piece * len(table.coefficients) / (table.degree * (1 + len(table.orders)))


def test_more_orders_reach_further():
    tables = [series_table(phi_of(nn.Tanh()), count) for count in ORDERS]
    reaches = [reach(table) for table in tables]
    assert reaches == sorted(reaches) and reaches[-1] >= 2 > reaches[1] and reaches[0] >= 1
    assert len(tables[0].orders) < len(tables[-1].orders) < 30


def cache_numbers(table, s):
    """a_0 and the weighted alpha at a deviation, by the Chebyshev series of the table."""
    values = torch.tensor(table.coefficients, dtype=torch.float64).reshape(-1, table.degree, 1 + len(table.orders))
    piece = min(int(s / table.piece), len(values) - 1)
    x = torch.tensor(2 * (s / table.piece - piece) - 1, dtype=torch.float64)
    return torch.cos(torch.arange(table.degree) * torch.acos(x)) @ values[piece]


def test_coefficients_of_a_sine():
    """sin(s x) = sum over odd n of (-1)^((n - 1) / 2) s^n exp(-s^2 / 2) / sqrt(n!) He_n(x) / sqrt(n!)."""
    table = series_table(AnyFunction(torch.sin, label="mine"), ORDERS[0])
    s = 0.6625
    found = cache_numbers(table, s)
    assert table.orders[:4] == [1, 3, 5, 7] and abs(found[0]) < 1e-15
    for j in range(4):  # the first orders have weights of about one
        n = 1 + 2 * j
        exact = (-1) ** j * s ** (n - 1) * math.exp(-s * s / 2) / math.sqrt(math.factorial(n))
        assert abs(found[1 + j] - exact) < 2e-3 * abs(exact) + 1e-13


@pytest.mark.parametrize("name", ["tanh", "silu", "mish"])
@pytest.mark.parametrize("count", ORDERS)
def test_fewer_orders_give_the_same_sums(name, count):
    """Against a dense double integral of phi phi and phi' phi' over the two Gaussians."""
    phi = phi_of(SMOOTH[name][0])
    table = series_table(phi, count)
    z = torch.arange(-9, 9, 0.05, dtype=torch.float64)
    weight = torch.exp(-z * z / 2) * 0.05 / math.sqrt(2 * math.pi)
    orders = torch.tensor(table.orders, dtype=torch.float64)
    largest = reach(table)
    for s1, s2, rho in ((0.97, 0.96, 0.999), (0.3, 0.99, 0.7), (0.55, 0.9, -0.8), (0.05, 0.06, 0.2), (1.0, 1.0, 1.0)):
        s1, s2 = s1 * largest, s2 * largest
        u = s1 * z[:, None]
        v = s2 * (rho * z[:, None] + math.sqrt(1 - rho**2) * z)
        both = weight[:, None] * weight
        moments = []
        for function in (phi.function, torch.func.vmap(torch.func.vmap(torch.func.grad(phi.function)))):
            a, b = function(u).expand_as(v), function(v)
            size = ((function(u)[:, 0] ** 2 @ weight) * (function(s2 * z[:, None])[:, 0] ** 2 @ weight)).sqrt()
            moments.append(((both * a * b).sum(), size))
        first, second = cache_numbers(table, s1), cache_numbers(table, s2)
        t = first[1:] * second[1:] * rho ** (orders - 1)
        found = first[0] * second[0] + s1 * s2 * rho * t.sum(), (orders * t).sum()
        for value, (exact, size) in zip(found, moments, strict=True):
            assert abs(value - exact) < 4e-12 * size


def test_kinks_are_left_to_the_reference_engine():
    for layer in (
        nn.Hardswish(),
        ntkit.Elementwise(lambda z: z.abs() * torch.tanh(z), kinks=(0.0,)),
    ):
        limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 4), layer, nn.Linear(4, 1)))
        assert limit.explain((3,)).rows[0].engine == "reference"
        with pytest.raises(
            ntkit.errors.EngineError,
            match=r"no instruction for 1: .* \(its kinks would need more than 256 Hermite orders\)",
        ):
            limit.ntk(normal(2, 3), engine="native")


def test_the_version_with_fewest_orders_that_covers_all_inputs():
    """Larger inputs take more orders, and the engine refuses those beyond the last version."""
    limit = ntkit.infinite_width(mlp(3, 4, 1, activation=nn.Tanh), w_std=1.0)
    engine = NativeEngine(limit.program((3,)))
    x = normal(4, 3)
    x = x / x.norm(dim=1, keepdim=True) * math.sqrt(3)  # deviations of one
    tiers = []
    for size in (0.2, 0.9, 1.2, 1.4, 1.9):
        exact = limit.both(size * x, engine="reference")
        for a, b in zip(engine.gram(size * x, None, True, True), exact, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-10 * float(b.max()))
        tiers.append(max(engine._runners))
    assert tiers == [0, 0, 1, 2, 4]
    for both in ((x, 1.9 * x), (1.9 * x, x)):  # one version for both batches
        last = engine.runner(tiers[-1])
        assert torch.equal(engine.gram(*both, True, False).ntk, last.gram(*both, True, False).ntk)
    for runner in (engine.runner(tier) for tier in range(len(ORDERS))):
        with pytest.raises(BeyondRange):
            runner.gram(3 * x, None, True, False)
    for compute in (lambda: engine.gram(3 * x, None, True, False), lambda: engine.diag(3 * x, True)):
        with pytest.raises(
            BeyondRange, match=r"1 \(tanh\): the native engine covers standard deviations up to 2\. Got up to 3\."
        ):
            compute()


def test_functions_that_the_reference_engine_refuses_are_refused():
    mixing = ntkit.Elementwise(lambda z: torch.softmax(z, 0))
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 4), mixing, nn.Linear(4, 1)))
    with pytest.raises(ValueError, match="each element alone"):
        limit.ntk(normal(3, 3))


def test_the_tape_of_a_series():
    program = network(nn.Sequential(nn.Linear(3, 4), nn.Tanh(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)), 3).program
    own = tape_of(program, "cache")
    stored = [own.operations[step.operation].what.name for step in own.instructions if step.kind == Kind.STORE]
    assert stored.count("SERIES") == 1
    between = tape_of(program)
    (step,) = [step for step in between.instructions if step.kind == Kind.SERIES]
    operation = between.operations[step.operation]
    count = len(operation.table.orders)
    assert count < ORDERS[0] / 2 and operation.half_at > 0
    assert not step.covariance_in and not step.covariance_out and step.theta_in and step.theta_out
    assert f"({count} terms up to {operation.table.orders[-1]}, s up to 1" in str(between)


def test_no_table_where_orders_are_too_few_for_any_deviation():
    """sin(10 z) can be expanded, but at deviations up to 1/4 it has more orders than the first version."""
    phi = AnyFunction(lambda z: torch.sin(10 * z), label="wave")
    assert _expansion(phi) is not None and all(series_table(phi, count) is None for count in ORDERS)


def test_expansions_end_where_the_rule_is_too_coarse():
    """E[phi'(s x)^2] = 800 (1 + exp(-3200 s^2)) for sin(40 z), wherever a piece is kept; beyond, the nodes are too few."""
    pieces = _expansion(AnyFunction(lambda z: torch.sin(40 * z), label="fast wave")).pieces
    assert 4 < len(pieces) < 32
    for *_, squares in pieces:
        exact = 800 * (1 + torch.exp(-3200 * squares.s**2))
        torch.testing.assert_close(squares.slope, exact, rtol=1e-10, atol=0)
