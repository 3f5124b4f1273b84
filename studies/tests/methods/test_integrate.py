"""Weights integrated in time: against kernels, linearised networks and gradient descent."""

from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import integrate


def network(outputs: int, seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 24), nn.Tanh(), nn.Linear(24, outputs)).double()


def points(outputs: int, n: int = 7) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 3, dtype=torch.float64, generator=generator)
    return (
        x,
        torch.randn(n, outputs, dtype=torch.float64, generator=generator),
        torch.randn(4, 3, generator=generator).double(),
    )


def linear_prediction(module: nn.Module, moved: nn.Module, x: torch.Tensor) -> torch.Tensor:
    """What the network linearised at ``module`` gives with the weights of ``moved``."""
    expanded = ntkit.linearize(module)
    expanded.module.load_state_dict(moved.state_dict())
    return expanded(x).detach()


@pytest.mark.parametrize("outputs", [1, 2])
@pytest.mark.parametrize("t", [0.0, 0.3, 4.0, math.inf])
def test_equals_gradient_flow_of_the_empirical_kernel(outputs, t):
    module, (x, y, x_test) = network(outputs), points(outputs)
    found = integrate(module, x, y, t)
    kernel = ntkit.empirical(module, output="full").ntk
    start, start_test = module(x).detach(), module(x_test).detach()
    flow = ntkit.GradientFlow("precomputed").fit(kernel(x), y.flatten(), f0=start.flatten())
    expected = flow.predict(kernel(x_test, x), t, f0=start_test.flatten()).view(4, outputs)
    torch.testing.assert_close(linear_prediction(module, found.module, x_test), expected, rtol=1e-8, atol=1e-8)
    torch.testing.assert_close(linear_prediction(module, found.module, x), found.outputs, rtol=1e-8, atol=1e-8)


def test_the_end_of_training_is_kernel_regression():
    module, (x, y, x_test) = network(1), points(1)
    kernel = ntkit.empirical(module).ntk
    weights = ntkit.solve(kernel(x), y - module(x).detach()).value
    expected = module(x_test).detach() + kernel(x_test, x) @ weights
    found = linear_prediction(module, integrate(module, x, y).module, x_test)
    torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("loss", ["mse", "cross_entropy", "own"])
def test_refreshed_after_every_step_it_is_gradient_descent(loss):
    module, (x, y, _) = network(3), points(3)
    targets = torch.tensor([0, 1, 2, 0, 1, 2, 0]) if loss == "cross_entropy" else y

    def own(f, target):
        return (f - target).abs().pow(1.5).sum()

    value = {"mse": lambda f: (f - y).square().sum() / 2, "own": lambda f: own(f, y)}.get(
        loss, lambda f: F.cross_entropy(f, targets, reduction="sum")
    )
    rate, steps = 0.005, 9
    found = integrate(
        module, x, targets, steps, own if loss == "own" else loss, range(1, steps), descent=ntkit.Descent(rate)
    )
    assert found.refreshes == steps
    trained = network(3)
    optimizer = torch.optim.SGD(trained.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        value(trained(x)).backward()
        optimizer.step()
    for mine, theirs in zip(found.module.parameters(), trained.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    torch.testing.assert_close(next(module.parameters()), next(network(3).parameters()))  # the module is not changed


def test_never_refreshed_it_trains_the_linearised_network():
    module, (x, _, _) = network(3), points(3)
    classes = torch.tensor([0, 1, 2, 0, 1, 2, 0])
    rate, steps = 0.01, 30
    found = integrate(module, x, classes, steps, "cross_entropy", descent=ntkit.Descent(rate))
    linear = ntkit.linearize(module)
    optimizer = torch.optim.SGD(linear.parameters(), lr=rate)
    for _ in range(steps):
        optimizer.zero_grad()
        F.cross_entropy(linear(x), classes, reduction="sum").backward()
        optimizer.step()
    for mine, theirs in zip(found.module.parameters(), linear.module.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-9, atol=1e-11)
    # Gradient flow is the limit of small steps.
    flow = integrate(module, x, classes, 0.3, "cross_entropy")
    fine = integrate(module, x, classes, 3000, "cross_entropy", descent=ntkit.Descent(1e-4))
    torch.testing.assert_close(flow.outputs, fine.outputs, rtol=0, atol=2e-3)
    assert (flow.outputs - found.outputs).abs().max() > 3e-3  # steps of 0.01 are not that small


def test_more_refreshes_approach_the_trained_network():
    module, (x, y, _) = network(2), points(2)
    descent, steps = ntkit.Descent(8e-3), 128

    def reached(stops) -> torch.Tensor:
        return integrate(module, x, y, steps, refresh=stops, descent=descent).module(x).detach()

    exact = reached(range(1, steps))
    gaps = [float((reached(range(every, steps, every)) - exact).norm()) for every in (steps, 32, 8)]
    assert gaps[0] > 2 * gaps[1] > 4 * gaps[2]


def test_separate_outputs_use_the_kernel_averaged_over_them():
    module, (x, y, _) = network(2), points(2)
    found = integrate(module, x, y, 0.7, outputs="separate")
    kernel, start = ntkit.empirical(module).ntk(x), module(x).detach()
    flow = ntkit.GradientFlow("precomputed").fit(kernel, y, f0=start)
    torch.testing.assert_close(found.outputs, flow.predict(t=0.7), rtol=1e-9, atol=1e-9)
    one = network(1)
    apart, together = (integrate(one, x, y[:, :1], 0.7, outputs=way).module(x) for way in ("separate", "coupled"))
    torch.testing.assert_close(apart, together)


def test_frozen_parameters_stay():
    module, (x, y, _) = network(1), points(1)
    module[0].weight.requires_grad_(False)
    found = integrate(module, x, y, 1.0).module
    assert torch.equal(found[0].weight, module[0].weight) and not torch.equal(found[0].bias, module[0].bias)


BAD = [
    ({"t": -1.0}, InputError, "at least 0"),
    ({"t": [1.0, 2.0]}, InputError, "one time"),
    ({"t": 2.0, "refresh": [1.0, 1.0]}, InputError, "increasing"),
    ({"t": 2.0, "refresh": [3.0]}, InputError, "before t = 2"),
    ({"loss": "cross_entropy"}, InputError, "t must be finite"),
    ({"loss": "hinge"}, InputError, "loss must be one of"),
    ({"outputs": "both"}, InputError, "outputs must be"),
    ({"descent": 0.1}, InputTypeError, "descent must be a Descent"),
    ({"t": 2.5, "descent": ntkit.Descent(1e-3)}, InputError, "whole numbers"),
    ({"t": 10, "descent": ntkit.Descent(10.0)}, InputError, "it must be below"),
]


@pytest.mark.parametrize(("options", "error", "message"), BAD)
def test_bad_options(options, error, message):
    module, (x, y, _) = network(2), points(2)
    with pytest.raises(error, match=message):
        integrate(module, x, y, **options)


def test_bad_data():
    module, (x, y, _) = network(2), points(2)
    for data, message in (((x[:0], y[:0]), "at least one row"), ((x, y[:3]), "one target"), ((x, y[:, :1]), "shape")):
        with pytest.raises(InputError, match=message):
            integrate(module, *data, 1.0)
    with pytest.raises(InputError, match="finite"):
        integrate(module, x.index_fill(0, torch.tensor([1]), math.nan), y, 1.0)
    with pytest.raises(InputError, match="evaluation mode"):
        integrate(nn.Sequential(module, nn.Dropout()), x, y, 1.0)
