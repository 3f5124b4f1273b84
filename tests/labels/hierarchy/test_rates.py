"""Theorem 2.1 of Chen et al. 2020 and eqs (39)-(51) of Golikov et al. 2022, as rates in the width of trained networks."""

from __future__ import annotations

import itertools

import pytest
import torch
from numpy.polynomial import legendre
from tests.power_law import Rate, fit_rate
from torch import nn

import ntkit
from ntkit.labels import ModuleHierarchy

WIDTHS = (32, 64, 128, 256, 512)
DRAWS = 6
TIME = 1.0


def data() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    draws = torch.Generator().manual_seed(7)
    x = nn.functional.normalize(torch.randn(7, 4, generator=draws, dtype=torch.float64), dim=1) * 2
    return x[:4], torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64), x[4:]


def network(depth: int, width: int, seed: int) -> nn.Module:
    """No biases, a smooth activation, Gaussian weights: the family of the theorem."""
    sizes = [4, *[width] * depth]
    hidden = [layer for a, b in itertools.pairwise(sizes) for layer in (nn.Linear(a, b, bias=False), nn.Tanh())]
    net = nn.Sequential(*hidden, nn.Linear(width, 1, bias=False)).double()
    return ntkit.initialize(ntkit.parametrize_ntk(net, w_std=1.2), generator=torch.Generator().manual_seed(seed))


def expanded_kernel(
    net: nn.Module, x: torch.Tensor, y: torch.Tensor, points: torch.Tensor, time: float
) -> torch.Tensor:
    """Give Proposition A.2's kernel at a time by plain quadrature; training starts at zero, the loss is a sum over points."""
    source = ModuleHierarchy(net, x)
    values, vectors = torch.linalg.eigh(source.second(x))
    nodes, weights = (torch.tensor(found) for found in legendre.leggauss(24))

    def residual(s):
        return -vectors @ (torch.exp(-values * s) * (vectors.T @ y))

    def summed(s):
        return -vectors @ (-torch.expm1(-values * s) / values * (vectors.T @ y))

    times = (1 + nodes) * time / 2
    r, a = (torch.stack([function(s) for s in times]) for function in (residual, summed))
    fourth = source.fourth(points, None, r * (weights * time / 2)[:, None], a)
    return source.second(points) - source.third(points, None, summed(time)) + fourth


def law(errors: dict[int, list[float]]) -> Rate:
    return fit_rate(list(errors), list(errors.values()))


def test_expanded_kernel_is_that_of_the_class():
    x, y, x_test = data()
    net, points = network(2, 8, 0), torch.cat([x, x_test])
    nth = ntkit.TangentHierarchy(module=net, n_samples=0, linear_term=True, time=TIME).fit(x, y)
    expected = expanded_kernel(net, x, y, points, TIME)
    torch.testing.assert_close(nth(points), expected, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(nth.diag(points), expected.diagonal(), rtol=1e-9, atol=1e-10)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("depth", [1, 2])
def test_expanded_kernel(depth):
    """The kernel of the start is off by order 1 / width, that of the hierarchy by its square."""
    x, y, x_test = data()
    points = torch.cat([x, x_test])
    constant, expanded = {}, {}
    for width in WIDTHS:
        constant[width], expanded[width] = [], []
        for seed in range(DRAWS):
            net = network(depth, width, seed)
            start = ntkit.empirical(net).ntk(points)
            predicted = expanded_kernel(net, x, y, points, TIME)
            ntkit.train(net, x, y[:, None], ntkit.Schedule("flow", time=TIME, rtol=1e-9, atol=1e-12), centre=True)
            true = ntkit.empirical(net).ntk(points)
            constant[width].append(float((true - start).norm() / true.norm()))
            expanded[width].append(float((true - predicted).norm() / true.norm()))
    first, second = law(constant), law(expanded)
    print(f"depth {depth}: constant kernel {first}, expanded {second}")
    assert -1.25 < first.exponent < -0.75, first
    assert -2.4 < second.exponent < -1.6, second


def predictions(width: int, seed: int, centre: bool) -> tuple[torch.Tensor, torch.Tensor]:
    """Give the errors of the linearised and of the corrected prediction of a trained network, each of shape (n_test,)."""
    x, y, x_test = data()
    net = network(1, width, seed)
    found = ntkit.finite_width_correction(net, x, y, x_test, TIME, nodes=5, centre=centre)
    schedule = ntkit.Schedule("flow", time=TIME, rtol=1e-8, atol=1e-11)
    run = ntkit.train(net, x, y[:, None], schedule, record=ntkit.Record(x_test=x_test), centre=centre)
    assert run.test_predictions is not None
    true = run.test_predictions[-1][:, 0]
    return found.leading - true, found.prediction - true


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_corrected_predictions():
    """The linearised network is off by order 1 / width, the corrected prediction by its square; likewise their means.

    Networks start at zero: the errors grow with the third and fourth power of f_0 - y, so that random starts hide the rates.
    """
    linear, corrected = {}, {}
    for width in WIDTHS:
        errors = [predictions(width, 100 + seed, centre=True) for seed in range(10)]
        linear[width], corrected[width] = ([float(pair[k].norm()) for pair in errors] for k in range(2))
        mean = [sum(pair[k] for pair in errors).norm() for k in range(2)]
        assert mean[1] < mean[0] / 2, (width, mean)
    first, second = law(linear), law(corrected)
    print(f"linearised {first}, corrected {second}")
    assert -1.25 < first.exponent < -0.75, first
    assert -2.4 < second.exponent < -1.6, second


@pytest.mark.slow
@pytest.mark.parametrize("width", [32, 128])
def test_corrected_predictions_from_a_random_start(width):
    for seed in range(8):
        linear, corrected = predictions(width, seed, centre=False)
        assert corrected.norm() < linear.norm(), (seed, linear, corrected)
