"""Gradient descent in closed form against the steps of torch, and the largest stable learning rate."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal
from tests.dynamics.problems import Features, Linearised, OneOutput, small_net, start

import ntkit
from ntkit import Descent, GradientFlow
from ntkit.errors import InputError

INF = math.inf
KERNEL, X, Y, NEW = Features(), normal(15, 3), normal(15, 2, seed=1), normal(4, 3, seed=2)


@pytest.mark.parametrize(
    ("momentum", "nesterov"), [(0.0, False), (0.9, False), (0.9, True), (0.5, True)], ids=["gd", "heavy", "nag", "nag5"]
)
@pytest.mark.parametrize("share", [0.3, 0.95])
def test_descent_equals_torch_on_a_linear_model(momentum: float, nesterov: bool, share: float) -> None:
    flow = GradientFlow(KERNEL).fit(X, Y, start)
    rate = share * flow.max_learning_rate(momentum, nesterov)
    weights = torch.zeros(40, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=rate, momentum=momentum, nesterov=nesterov)
    descent, checked = Descent(rate, momentum, nesterov), (0, 1, 2, 7, 60)
    found = flow.predict(NEW, checked, descent=descent)
    for step in range(61):
        if step in checked:
            expected = (start(NEW) + KERNEL.features(NEW) @ weights).detach()
            torch.testing.assert_close(found[checked.index(step)], expected, rtol=1e-9, atol=1e-9)
        loss = ((start(X) + KERNEL.features(X) @ weights - Y) ** 2).sum() / 2
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


def test_descent_with_ridge_is_weight_decay() -> None:
    flow = GradientFlow(KERNEL, ridge=0.2).fit(X, Y)
    shift = 0.2 * float(KERNEL(X).trace()) / 15
    rate = 0.5 * flow.max_learning_rate(0.6)
    weights = torch.zeros(40, 2, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=rate, momentum=0.6, weight_decay=shift)
    for _ in range(30):
        optimizer.zero_grad()
        (((KERNEL.features(X) @ weights - Y) ** 2).sum() / 2).backward()
        optimizer.step()
    expected = (KERNEL.features(NEW) @ weights).detach()
    torch.testing.assert_close(flow.predict(NEW, 30, descent=Descent(rate, 0.6)), expected, rtol=1e-9, atol=1e-9)


def test_ten_thousand_steps_of_a_linearised_network() -> None:
    model, x, new = Linearised(small_net()), normal(8, 2), normal(3, 2, seed=4)
    y = normal(8, seed=3)
    flow = GradientFlow(OneOutput(model)).fit(x, y, lambda points: model.start(points)[:, 0])
    jacobian, first = model.jacobian(x)[:, 0], model.start(x)[:, 0]
    rate, steps = 1e-3 * flow.max_learning_rate(), 10_000
    change = torch.zeros(jacobian.shape[1], dtype=torch.float64)
    for _ in range(steps):
        change -= rate * jacobian.T @ (first + jacobian @ change - y)
    expected = model.start(new)[:, 0] + model.jacobian(new)[:, 0] @ change
    torch.testing.assert_close(flow.predict(new, steps, descent=Descent(rate)), expected, rtol=1e-9, atol=1e-9)
    # A flow followed in steps of h errs by h lambda/2 of the distance it still goes: here at most 1e-3.
    error = float((flow.predict(new, rate * steps) - expected).norm())
    assert 0 < error < 1e-3 * float((expected - model.start(new)[:, 0]).norm())
    coarse = flow.predict(new, steps // 10, descent=Descent(10 * rate))
    assert 9 < float((flow.predict(new, rate * steps) - coarse).norm()) / error < 11


@pytest.mark.parametrize(("momentum", "nesterov"), [(0.0, False), (0.7, False), (0.7, True)])
def test_largest_learning_rate_is_the_border(momentum: float, nesterov: bool) -> None:
    flow = GradientFlow(KERNEL, ridge=0.1).fit(X, Y)
    rate = flow.max_learning_rate(momentum, nesterov)
    assert rate == pytest.approx(ntkit.max_learning_rate(KERNEL(X), 0.1, momentum, nesterov))
    inside = flow.predict(None, 100_000, descent=Descent(0.999 * rate, momentum, nesterov))
    torch.testing.assert_close(inside, flow.predict(None), rtol=1e-6, atol=1e-6)
    with pytest.raises(InputError, match="diverges"):
        flow.predict(None, 10, descent=Descent(1.001 * rate, momentum, nesterov))
    assert flow.max_learning_rate(momentum, nesterov) == pytest.approx(rate)  # now from the eigenvalues
