from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from scipy.integrate import RK45
from tests.finite.training.problems import X, Y, network
from torch.nn import functional as F

import ntkit
from ntkit import Schedule
from ntkit._src.finite.training._steps import _ERROR, _STAGES, runge_kutta_step
from ntkit.errors import InputError


def test_tolerance_is_kept():
    exact = ntkit.train(network(), X, Y, Schedule("flow", time=1.0, rtol=1e-11, atol=1e-14)).state.theta
    for rtol in (1e-4, 1e-7):
        run = ntkit.train(network(), X, Y, Schedule("flow", time=1.0, rtol=rtol, atol=0.0))
        way = (run.state.theta - run.state.theta0).norm()
        assert (run.state.theta - exact).norm() < run.state.step * rtol * way


LOSSES = {
    "mse": (Y, lambda f, y: 0.5 * ((f - y) ** 2).sum()),
    "cross_entropy": (torch.arange(6) % 2, lambda f, y: F.cross_entropy(f, y, reduction="sum")),
    "binary_cross_entropy": ((Y > 0).double(), lambda f, y: F.binary_cross_entropy_with_logits(f, y, reduction="sum")),
}


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("method", ["gd", "momentum", "adam"])
def test_methods_are_those_of_torch(method, loss):
    y, function = LOSSES[loss]
    net, other = network(), network()
    options = {"momentum": 0.8} if method == "momentum" else {}
    optimizer = (
        torch.optim.Adam(other.parameters(), lr=0.02)
        if method == "adam"
        else torch.optim.SGD(other.parameters(), lr=0.02, **options)
    )
    losses = []
    for _ in range(30):
        optimizer.zero_grad()
        value = function(other(X), y)
        losses.append(value.item())
        value.backward()
        optimizer.step()
    schedule = Schedule(method, learning_rate=0.02, steps=30, **options)
    run = ntkit.train(net, X, y, schedule, loss=loss, record=range(30))
    torch.testing.assert_close(run.losses[:-1], torch.tensor(losses, dtype=torch.float64), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(net(X), other(X), rtol=1e-9, atol=1e-12)
    by_name = ntkit.train(network(), X, y, schedule, loss=function)
    torch.testing.assert_close(by_name.losses[-1], run.losses[-1], rtol=1e-12, atol=0)


def test_minibatches_cover_every_epoch_and_are_scaled():
    seen = []

    def loss(f, y):
        seen.append(y)
        return 0.5 * (f - y).square().sum()

    generator = torch.Generator().manual_seed(0)
    schedule = Schedule("sgd", learning_rate=1e-3, steps=6, batch_size=4, generator=generator)
    ntkit.train(network(), X, Y, schedule, loss=loss)
    batches = [y for y in seen if len(y) < 6]
    assert [len(y) for y in batches] == [4, 2] * 3
    for epoch in range(3):
        rows = torch.cat(batches[2 * epoch : 2 * epoch + 2])
        assert torch.equal(rows[rows[:, 0].argsort()], Y[Y[:, 0].argsort()])
    schedule = Schedule("sgd", learning_rate=1e-2, steps=5, batch_size=6, generator=torch.Generator())
    whole = ntkit.train(network(), X, Y, schedule)
    plain = ntkit.train(network(), X, Y, Schedule(learning_rate=1e-2, steps=5))
    torch.testing.assert_close(whole.predictions, plain.predictions, rtol=1e-12, atol=1e-13)


def test_an_unreachable_tolerance_is_said():
    net = network().float()
    with pytest.raises(InputError, match="too small to change"):
        ntkit.train(net, X.float(), Y.float(), Schedule("flow", time=5.0, rtol=1e-15, atol=0.0))


def test_the_tableau_is_dormand_and_princes():
    """Against scipy's, and one step of a linear problem against its Taylor series: the fifth order is exact to h^5."""
    last = _STAGES[-1]
    np.testing.assert_allclose(last, RK45.B, rtol=1e-15)
    for row, expected in zip(_STAGES[:-1], RK45.A[1:], strict=True):
        np.testing.assert_allclose(row, expected[: len(row)], rtol=1e-15)
    np.testing.assert_allclose(_ERROR, -RK45.E, rtol=1e-12, atol=1e-16)


def _exponential(h, limit=math.inf, rtol=1e-6, atol=0.0, rate=1.0):
    """One step of theta' = -rate theta from 1, with theta0 = 1.5; the slopes asked for are counted."""
    calls = []

    def slope(theta):
        calls.append(theta)
        return -rate * theta

    one = torch.ones(1, dtype=torch.float64)
    new, taken, following = runge_kutta_step(slope, one, -rate * one, 1.5 * one, h, limit, rtol, atol)
    return float(new), taken, following, len(calls)


def test_step_control_by_hand():
    h = 0.01
    new, taken, following, calls = _exponential(h)
    assert taken == h and calls == 6 and following == 5 * h  # the error is far below: five times as long is tried next
    assert abs(new - math.exp(-h)) < 1e-15
    # a step that a record cuts short does not shorten the next
    new, taken, following, _ = _exponential(0.4, limit=0.1, rtol=1e-2)
    assert taken == 0.1 and following == 0.5
    assert _exponential(10.0, limit=0.1, rtol=1e-2)[2] == 10.0
    # the error of a step of the embedded pair for theta' = -theta, from the tableau, decides what is tried next
    for h in (0.5, 1.0, 2.0):
        slopes = [-1.0]
        for row in [*RK45.A[1:].tolist(), RK45.B.tolist()]:
            slopes.append(-(1 + h * sum(a * k for a, k in zip(row, slopes, strict=False))))
        new = -slopes[-1]
        error = h * abs(sum(e * k for e, k in zip(RK45.E, slopes, strict=True)))
        distance = max(abs(new - 1.5), abs(new - 1.0))
        for rtol, atol in ((1e-2, 0.0), (1e-3, 1e-3), (0.0, 1.0), (1.0, 0.0)):
            ratio = error / (rtol * distance + atol)
            _, taken, following, calls = _exponential(h, rtol=rtol, atol=atol)
            if ratio <= 1:
                assert taken == h and calls == 6
                assert following == pytest.approx(h * min(5.0, 0.9 * ratio**-0.2))
            else:
                assert taken <= h * max(0.2, 0.9 * ratio**-0.2) * (1 + 1e-12) and calls >= 12


def test_the_length_of_the_step_counts_when_it_is_the_longer():
    """Near theta0 errors are relative to the step itself, so that the first step is not refused for ever."""
    one = torch.ones(1, dtype=torch.float64)
    _, taken, following = runge_kutta_step(lambda t: -t, one, -one, one, 0.1, math.inf, 1e-4, 0.0)
    _, same, also = runge_kutta_step(lambda t: -t, one, -one, one + 1e-9, 0.1, math.inf, 1e-4, 0.0)
    assert taken == same == 0.1 and following == pytest.approx(also)


def test_a_slope_that_blows_up_shrinks_the_step():
    """Infinite errors shrink the step to a fifth, until it is within reach."""
    one = torch.ones(1, dtype=torch.float64)

    def slope(theta):
        return torch.where(theta > 0.9, -theta, torch.full_like(theta, math.inf))

    _, taken, _ = runge_kutta_step(slope, one, -one, one, 1.0, math.inf, 1e-3, 0.0)
    assert taken == pytest.approx(0.2**2)
