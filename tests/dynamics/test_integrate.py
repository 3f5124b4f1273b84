"""Losses without closed form: the ODE against small steps and against real training of a linear model."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import normal
from tests.dynamics.problems import Features
from torch import Tensor
from torch.nn import functional as F

import ntkit
from ntkit import Descent, GradientFlow
from ntkit._src.dynamics._integrate import Integrator, KernelTraining, integrate
from ntkit.errors import InputError, InputTypeError
from ntkit.extending import find_loss

KERNEL, X, NEW = Features(), normal(12, 3), normal(4, 3, seed=2)
CLASSES = torch.arange(12) % 3
BINARY = (normal(12, seed=3) > 0).double()


def huber(f: Tensor, y: Tensor) -> Tensor:
    return F.huber_loss(f, y, reduction="sum")


def unbounded(f: Tensor, y: Tensor) -> Tensor:
    return -(f**4).sum()


def _trained(loss: Any, k: int, rate: float, steps: int, momentum: float, nesterov: bool, decay: float) -> Tensor:
    """Outputs at NEW of the model linear in its weights, trained by torch from zero."""
    weights = torch.zeros(40, k, dtype=torch.float64, requires_grad=True)
    optimizer = torch.optim.SGD([weights], lr=rate, momentum=momentum, nesterov=nesterov, weight_decay=decay)
    for _ in range(steps):
        optimizer.zero_grad()
        loss(KERNEL.features(X) @ weights).backward()
        optimizer.step()
    return (KERNEL.features(NEW) @ weights).detach()


CASES = {
    "cross_entropy": ("cross_entropy", CLASSES, 3, lambda f: F.cross_entropy(f, CLASSES, reduction="sum")),
    "probabilities": (
        "cross_entropy",
        torch.softmax(normal(12, 3, seed=6), 1),
        3,
        lambda f: F.cross_entropy(f, torch.softmax(normal(12, 3, seed=6), 1), reduction="sum"),
    ),
    "binary": (
        "binary_cross_entropy",
        BINARY,
        1,
        lambda f: F.binary_cross_entropy_with_logits(f[:, 0], BINARY, reduction="sum"),
    ),
    "own": (huber, 3 * normal(12, seed=4), 1, lambda f: huber(f[:, 0], 3 * normal(12, seed=4))),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize(("momentum", "nesterov", "ridge"), [(0.0, False, 0.0), (0.8, False, 0.1), (0.8, True, 0.0)])
def test_steps_equal_those_of_torch(name: str, momentum: float, nesterov: bool, ridge: float) -> None:
    loss, y, k, closure = CASES[name]
    decay = ridge * float(KERNEL(X).trace()) / 12
    flow = GradientFlow(KERNEL, loss, ridge).fit(X, y)
    found = flow.predict(NEW, [5, 40], descent=Descent(0.3, momentum, nesterov))
    for steps, outputs in zip((5, 40), found, strict=True):
        expected = _trained(closure, k, 0.3, steps, momentum, nesterov, decay)
        torch.testing.assert_close(outputs.reshape(4, k), expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_ode_is_the_limit_of_small_steps(name: str, ridge: float) -> None:
    loss, y, _, _ = CASES[name]
    flow = GradientFlow(KERNEL, loss, ridge, rtol=1e-8, atol=1e-10).fit(X, y)
    exact = flow.predict(NEW, 2.0)
    errors = [float((flow.predict(NEW, n, descent=Descent(2.0 / n)) - exact).norm()) for n in (400, 800)]
    # The error of Euler's method halves with the step; extrapolated, it is gone.
    assert errors[0] < 5e-3 * float(exact.norm())
    assert 1.9 < errors[0] / errors[1] < 2.1
    fine, coarse = (flow.predict(NEW, n, descent=Descent(2.0 / n)) for n in (800, 400))
    torch.testing.assert_close(2 * fine - coarse, exact, rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_integration_stops_at_a_loss(name: str) -> None:
    loss, y, _, closure = CASES[name]
    flow = GradientFlow(KERNEL, loss, rtol=1e-8, atol=1e-10).fit(X, y)
    first = float(flow.loss_at(0.0))
    assert first == pytest.approx(float(closure(torch.zeros(12, CASES[name][2], dtype=torch.float64))))
    value = 0.6 * first + 0.4 * float(flow.loss_at(50.0))
    t = flow.time_to_loss(value)
    assert float(flow.loss_at(t)) == pytest.approx(value, rel=1e-6)
    assert flow.time_to_loss(value, t_max=0.5 * t) == math.inf
    assert flow.time_to_loss(2 * first) == 0
    descent = Descent(0.01)
    steps = flow.time_to_loss(value, 100_000, descent)
    assert float(flow.loss_at(steps, descent)) <= value < float(flow.loss_at(steps - 1, descent))
    assert abs(0.01 * steps - t) < 0.05 * t
    assert flow.time_to_loss(value, 3, descent) == math.inf


def test_prediction_at_the_stop_costs_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    flow = GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES)
    t = flow.time_to_loss(8.0)
    monkeypatch.setattr("ntkit._src.dynamics._gradient_flow.integrate", None)
    assert flow.predict(NEW, t).shape == (4, 3)
    assert "RK45" in flow.status


def test_regularised_limit_is_stationary() -> None:
    """With a ridge the flow of cross-entropy ends where rho a = y - softmax(f)."""
    flow = GradientFlow(KERNEL, "cross_entropy", ridge=0.5, integrator="LSODA", rtol=1e-9, atol=1e-11).fit(X, CLASSES)
    f = flow.predict(None, 300.0)
    residual = F.one_hot(CLASSES).double() - torch.softmax(f, 1)
    shift = 0.5 * float(KERNEL(X).trace()) / 12
    torch.testing.assert_close(KERNEL(X) @ residual / shift, f, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("loss", ["cross_entropy", "binary_cross_entropy"])
def test_learning_rate_bound_is_sufficient(loss: str) -> None:
    y = CLASSES if loss == "cross_entropy" else BINARY
    flow = GradientFlow(KERNEL, loss).fit(X, y)
    history = flow.loss_at(list(range(60)), Descent(0.99 * flow.max_learning_rate()))
    assert (history.diff() < 0).all()
    scale = {"cross_entropy": 2, "binary_cross_entropy": 4}[loss]
    assert flow.max_learning_rate() == pytest.approx(scale * ntkit.max_learning_rate(KERNEL(X)), rel=1e-6)


def test_float32_and_progress() -> None:
    exact = GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES).predict(NEW, 1.0)
    flow = GradientFlow(KERNEL, "cross_entropy").fit(X.float(), CLASSES)
    found = flow.predict(NEW.float(), 1.0)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found.double(), exact, rtol=1e-4, atol=1e-4)
    seen: list[tuple[int, int]] = []
    flow.predict(NEW.float(), 4, descent=Descent(0.1), progress=lambda done, of: seen.append((done, of)))
    assert seen == [(1, 4), (2, 4), (3, 4), (4, 4)]


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES.double()), InputTypeError, "classes"),
        (lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES - 1), InputTypeError, "from 0 on"),
        (lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, normal(12, 3).abs()), InputError, "0 and 1"),
        (lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, torch.ones(12, 3).double()), InputError, "add up"),
        (lambda: GradientFlow(KERNEL, "binary_cross_entropy").fit(X, 2 * BINARY - 1), InputError, "0 and 1"),
        (lambda: GradientFlow(KERNEL, "binary_cross_entropy").fit(X, BINARY.numpy()), InputTypeError, "as_tensor"),
        (lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES).predict(NEW), InputError, "time_to_loss"),
        (
            lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES).learning_curves(1.0),
            InputError,
            "squared error",
        ),
        (
            lambda: GradientFlow(KERNEL, "cross_entropy", max_evaluations=20).fit(X, CLASSES).predict(NEW, 100.0),
            InputError,
            "max_evaluations",
        ),
        (
            lambda: GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES).time_to_loss(0.1, descent=Descent(0.1)),
            InputError,
            "t_max must be finite",
        ),
        (lambda: GradientFlow(KERNEL, "cross_entropy", integrator="Euler"), InputError, "'LSODA'"),
        (lambda: GradientFlow(KERNEL, "cross_entropy", rtol=0.0), InputError, "rtol must be finite and positive"),
        (lambda: GradientFlow(KERNEL, huber).fit(X, BINARY).max_learning_rate(), InputError, "curvature="),
        (lambda: GradientFlow(KERNEL, lambda f, y: 1.0).fit(X, BINARY).predict(X, 1.0), InputTypeError, "one element"),  # type: ignore[arg-type,return-value]
        (
            lambda: (
                GradientFlow(KERNEL, lambda f, y: -(f**4).sum())
                .fit(X, BINARY, BINARY)
                .predict(None, 99, descent=Descent(9.0))
            ),
            InputError,
            "diverged",
        ),
    ],
)
def test_bad_input_is_explained(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_numpy_times() -> None:
    flow = GradientFlow(KERNEL, "cross_entropy").fit(X, CLASSES)
    assert flow.predict(NEW, np.array([0.0, 0.5])).shape == (2, 4, 3)


def test_the_evaluations_that_are_allowed() -> None:
    calls = []

    def counted(f: Tensor, y: Tensor) -> Tensor:
        calls.append(len(f))
        return huber(f, y)

    def run(most: int) -> None:
        start = torch.zeros(12, 1, dtype=torch.float64)
        problem = KernelTraining(KERNEL(X), start, 3 * normal(12, 1, seed=4), find_loss(counted), 0.0)
        calls.clear()
        integrate(problem, [2.0], Integrator(max_evaluations=most))

    run(10**6)
    needed = len(calls)
    run(needed)
    with pytest.raises(InputError, match=f"more than {needed - 1} evaluations"):
        run(needed - 1)
