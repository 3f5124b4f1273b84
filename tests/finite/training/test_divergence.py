"""Training that diverges stops, warns, and names the learning rate that is stable."""

from __future__ import annotations

import math

import pytest
import torch
from tests.finite.training.problems import X, Y, full_kernel, network
from torch.nn import functional as F

import ntkit
from ntkit import Record, Schedule
from ntkit._src.finite.training._divergence import has_diverged, stable_learning_rate
from ntkit._src.finite.training._trained_function import TrainedFunction
from ntkit.errors import DivergenceWarning

CASES = {
    "gd": Schedule(learning_rate=100.0, steps=50),
    "momentum": Schedule("momentum", learning_rate=100.0, steps=50, momentum=0.5),
    "sgd": Schedule("sgd", learning_rate=100.0, steps=50, batch_size=2, generator=torch.Generator()),
    "adam": Schedule("adam", learning_rate=1e6, steps=50),
    "beyond numbers": Schedule(learning_rate=1e300, steps=3),
}


@pytest.mark.parametrize("name", CASES)
def test_stops_warns_and_says_so(name):
    net = ntkit.linearize(network())
    with pytest.warns(DivergenceWarning, match="diverged") as caught:
        run = ntkit.train(net, X, Y, CASES[name])
    assert run.diverged and "diverged" in run.status and run.state.step < 50
    assert run.steps[-1] == run.state.step and not run.losses[-1] < 1e6 * run.losses[0]
    assert [one.filename for one in caught if one.category is DivergenceWarning] == [__file__]
    assert ("stable below" in run.status) == (name != "adam")


@pytest.mark.parametrize(("loss", "curvature"), [("mse", 1.0), ("binary_cross_entropy", 0.25)])
@pytest.mark.parametrize(("momentum", "kappa"), [(None, 1.0), (0.6, 2.0)])
def test_named_rate_is_that_of_the_dense_kernel(loss, curvature, momentum, kappa):
    net = network()
    method = "gd" if momentum is None else "momentum"
    schedule = Schedule(method, learning_rate=100.0, steps=1, momentum=momentum)
    y = Y if loss == "mse" else (Y > 0).double()
    function = TrainedFunction(net, X, y, schedule, loss, Record(), kappa, False, None)
    largest = torch.linalg.eigvalsh(full_kernel(net, X, X))[-1].item()
    expected = 2 * (1 + (momentum or 0)) / (curvature * kappa**2 * largest)
    assert stable_learning_rate(function) == pytest.approx(expected, rel=1e-3)


def test_named_rate_is_the_border():
    """The linearised network converges below the rate that the warning names and diverges above it.

    At 1.05 times the rate the loss grows by 1.1^2 per step, in 160 steps by thirteen digits.
    """
    net = ntkit.linearize(network())
    with pytest.warns(DivergenceWarning) as caught:
        ntkit.train(net, X, Y, CASES["gd"])
    rate = float(str(caught[0].message).split("learning_rate = ")[1].split(",")[0])
    run = ntkit.train(ntkit.linearize(network()), X, Y, Schedule(learning_rate=0.95 * rate, steps=160))
    assert run.losses[-1] < run.losses[0] and not run.diverged
    with pytest.warns(DivergenceWarning):
        assert ntkit.train(net, X, Y, Schedule(learning_rate=1.05 * rate, steps=160)).diverged


def test_own_losses_have_no_known_rate():
    with pytest.warns(DivergenceWarning, match="smaller learning_rate than 100"):
        ntkit.train(ntkit.linearize(network()), X, Y, CASES["gd"], loss=lambda f, y: F.mse_loss(f, y, reduction="sum"))


@pytest.mark.parametrize(
    ("value", "first", "diverged"),
    [
        (1.0, 1.0, False),
        (1e5, 1.0, False),
        (1e8, 1.0, True),
        (1e8, 1e3, False),
        (math.nan, 1.0, True),
        (math.inf, 1, True),
    ],
)
def test_growth_of_a_catapult_is_no_divergence(value, first, diverged):
    assert has_diverged(value, first, 6) is diverged
