from __future__ import annotations

import pytest
import torch
from tests.finite.training.problems import X, Y, network
from torch.nn import functional as F

import ntkit
from ntkit import Schedule
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
