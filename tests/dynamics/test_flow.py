"""Squared error: the closed form against the matrix exponential, an ODE, gradient steps and kernel regression."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from tests.dynamics.problems import Features, Linearised, OneOutput, normal, small_net
from torch import Tensor

import ntkit
from ntkit import Descent, GradientFlow
from ntkit.errors import InputError, InputTypeError, JitterWarning, SingularKernelError

INF = math.inf
KERNEL, X, Y, NEW = Features(), normal(15, 3), normal(15, 2, seed=1), normal(4, 3, seed=2)


def start(x: Tensor) -> Tensor:
    return torch.stack([x.sum(1).sin(), x[:, 0]], dim=1)


def oracle(x: Tensor, t: float, ridge: float) -> Tensor:
    """Eq. (9) as it is written, with the matrix exponential and an inverse."""
    gram, eye = KERNEL(X), torch.eye(15, dtype=torch.float64)
    matrix = gram + ridge * gram.trace() / 15 * eye
    decay = torch.zeros_like(eye) if math.isinf(t) else torch.linalg.matrix_exp(-matrix * t)
    return start(x) + KERNEL(x, X) @ torch.linalg.inv(matrix) @ (eye - decay) @ (Y - start(X))


@pytest.mark.parametrize("ridge", [0.0, 0.1])
@pytest.mark.parametrize("t", [0.0, 0.01, 1.0, 100.0, INF])
def test_equals_the_formula(t: float, ridge: float) -> None:
    flow = GradientFlow(KERNEL, ridge=ridge).fit(X, Y, start)
    for x in (X, NEW):
        torch.testing.assert_close(flow.predict(x, t), oracle(x, t, ridge), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(flow.predict(None, t), oracle(X, t, ridge), rtol=1e-9, atol=1e-9)
    gram = KERNEL(X)
    given = GradientFlow("precomputed", ridge=ridge).fit(gram, Y, start(X))
    found = given.predict(KERNEL(NEW, X), t, f0=start(NEW))
    torch.testing.assert_close(found, oracle(NEW, t, ridge), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(given.predict(None, t), oracle(X, t, ridge), rtol=1e-9, atol=1e-9)
    torch.testing.assert_close(gram, KERNEL(X), rtol=0, atol=0)  # a matrix that is not ours is not overwritten


@pytest.mark.parametrize("order", [[1.0, INF], [INF, 1.0]])
@pytest.mark.parametrize("overwrite", [False, True])
def test_times_in_any_order_share_the_work(order: list[float], overwrite: bool) -> None:
    flow = GradientFlow(KERNEL).fit(X, Y[:, 0], overwrite=overwrite)
    assert flow.status == "Nothing was computed yet."
    one_by_one = torch.stack([flow.predict(NEW, t) for t in order])
    together = GradientFlow(KERNEL).fit(X, Y[:, 0]).predict(NEW, order)
    assert together.shape == (2, 4)
    torch.testing.assert_close(one_by_one, together, rtol=1e-9, atol=1e-9)


def test_infinite_time_needs_no_eigendecomposition(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*arguments: Any, **options: Any) -> None:
        raise AssertionError("an eigendecomposition")

    monkeypatch.setattr("ntkit.dynamics._training.decompose", refuse)
    flow = GradientFlow(KERNEL, ridge=0.01).fit(X, Y)
    expected = KERNEL(NEW, X) @ ntkit.solve(KERNEL(X), Y, ridge=0.01).value
    torch.testing.assert_close(flow.predict(NEW), expected, rtol=1e-12, atol=1e-12)
    assert "Cholesky" in flow.status
    with pytest.raises(AssertionError):
        flow.predict(NEW, 1.0)


@pytest.mark.parametrize("ridge", [0.0, 0.1])
def test_equals_the_ode(ridge: float) -> None:
    def half_squares(f: Tensor, y: Tensor) -> Tensor:
        return ((f - y) ** 2).sum() / 2

    times = [0.0, 0.3, 3.0, 20.0]
    exact = GradientFlow(KERNEL, ridge=ridge).fit(X, Y, start)
    for method in ("RK45", "LSODA"):
        ode = GradientFlow(KERNEL, half_squares, ridge, integrator=method, rtol=1e-9, atol=1e-11).fit(X, Y, start)
        for x in (None, NEW):
            torch.testing.assert_close(ode.predict(x, times), exact.predict(x, times), rtol=1e-6, atol=1e-6)
        value = float(exact.loss_at(1.0))
        assert exact.time_to_loss(value) == pytest.approx(1.0, rel=1e-9)
        assert ode.time_to_loss(value) == pytest.approx(1.0, rel=1e-6)


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


def test_linearised_module_trained_by_torch() -> None:
    net, x, new, y = small_net(), normal(8, 2), normal(3, 2, seed=4), normal(8, seed=3)
    model, linear = Linearised(net), ntkit.linearize(net)
    flow = GradientFlow(OneOutput(model)).fit(x, y, lambda points: model.start(points)[:, 0])
    descent = Descent(0.5 * flow.max_learning_rate(0.9), 0.9)
    optimizer = torch.optim.SGD(linear.parameters(), lr=descent.learning_rate, momentum=descent.momentum)
    for _ in range(100):
        optimizer.zero_grad()
        (((linear(x)[:, 0] - y) ** 2).sum() / 2).backward()
        optimizer.step()
    expected = linear(new)[:, 0].detach()
    torch.testing.assert_close(flow.predict(new, 100, descent=descent), expected, rtol=1e-9, atol=1e-9)


def test_learning_curves() -> None:
    flow = GradientFlow(KERNEL).fit(X, Y, start)
    curves = flow.learning_curves([0.0, 0.7, INF])
    values, vectors = torch.linalg.eigh(KERNEL(X))
    values, vectors = values.flip(0), vectors.flip(1)
    torch.testing.assert_close(curves.eigenvalues, values, rtol=1e-9, atol=1e-12)
    targets, first = vectors.T @ Y, vectors.T @ start(X)
    expected = targets - torch.exp(-values * 0.7)[:, None] * (targets - first)  # eq. (108)
    torch.testing.assert_close(curves.targets.abs(), targets.abs())  # eigenvectors have no sign
    torch.testing.assert_close(curves.values[1].abs(), expected.abs())
    torch.testing.assert_close(curves.values[0].abs(), first.abs())
    torch.testing.assert_close(curves.values[2], curves.targets)
    rate = 0.5 * flow.max_learning_rate()
    steps = flow.learning_curves(3, Descent(rate)).values[0]
    expected = targets + ((1 - rate * values) ** 3)[:, None] * (first - targets)  # eq. (99)
    torch.testing.assert_close(steps.abs(), expected.abs())


@pytest.mark.parametrize("ridge", [0.0, 0.05])
def test_time_to_loss(ridge: float) -> None:
    flow = GradientFlow(KERNEL, ridge=ridge).fit(X, Y)
    first, last = float(flow.loss_at(0.0)), float(flow.loss_at(INF))
    assert first == pytest.approx(float((Y**2).sum()) / 2)
    for share in (1e-3, 0.5, 0.99):
        value = last + share * (first - last)
        t = flow.time_to_loss(value)
        assert float(flow.loss_at(t)) == pytest.approx(value, rel=1e-9)
        for descent in (Descent(0.3 * flow.max_learning_rate()), Descent(0.9 * flow.max_learning_rate(0.8), 0.8)):
            step = flow.time_to_loss(value, descent=descent)
            history = flow.loss_at(list(range(min(int(step), 200) + 1)), descent)
            if step <= 200:
                assert float(history[-1]) <= value
                assert (history[:-1] > value).all()
    assert flow.time_to_loss(1.0001 * first) == 0
    assert flow.time_to_loss(last * 0.99 if ridge else 0.0) == INF
    assert flow.time_to_loss(last + 0.01 * (first - last), t_max=1e-3) == INF


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repeated_points(dtype: torch.dtype) -> None:
    x, y = X.repeat(2, 1).to(dtype), torch.cat([Y, Y + 1]).to(dtype)
    flow = GradientFlow(KERNEL).fit(x, y)
    with pytest.warns(JitterWarning):
        limit = flow.predict(x)
    assert "jitter of" in flow.status
    tolerance = 0.05 if dtype == torch.float32 else 1e-3
    torch.testing.assert_close(limit[:15], (Y + 0.5).to(dtype), rtol=0, atol=tolerance)
    late = flow.predict(x, 1e30)
    assert "15 of 30 eigenvalues are rounding" in flow.status
    torch.testing.assert_close(late[:15], (Y + 0.5).to(dtype), rtol=0, atol=tolerance)
    torch.testing.assert_close(flow.predict(NEW.to(dtype), 1e30), flow.predict(NEW.to(dtype)), rtol=0, atol=tolerance)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_more_points_than_the_kernel_has_rank(dtype: torch.dtype) -> None:
    kernel, x, y = Features(features=6), normal(120, 3, seed=8), normal(120, 2, seed=9)
    weights = torch.linalg.lstsq(kernel.features(x), y).solution
    expected = kernel.features(NEW) @ weights
    flow = GradientFlow(kernel).fit(x.to(dtype), y.to(dtype))
    for t in (1e6, 1e12, 1e30):
        torch.testing.assert_close(
            flow.predict(NEW.to(dtype), t).double(), expected, rtol=0, atol=1e-3 if dtype == torch.float32 else 1e-9
        )
    assert "114 of 120 eigenvalues are rounding" in flow.status
    fresh = GradientFlow(kernel).fit(x.to(dtype), y.to(dtype))
    with pytest.warns(JitterWarning):
        limit = fresh.predict(NEW.to(dtype))
    torch.testing.assert_close(limit.double(), expected, rtol=0, atol=0.05 if dtype == torch.float32 else 1e-4)


def test_limit_from_the_spectrum_where_cholesky_gives_up() -> None:
    """Noise of float32 makes the matrix slightly indefinite, more than the largest jitter mends."""
    kernel, x, y = Features(features=4), 1e3 * normal(400, 3, seed=8), normal(400, 1, seed=9)
    gram = kernel(x).float()
    noise = 3e-6 * normal(400, 400, seed=10).float()
    gram = gram + (noise + noise.T) / 2
    flow = GradientFlow("precomputed").fit(gram, y.float())
    found = flow.predict(None)
    expected = kernel.features(x) @ torch.linalg.lstsq(kernel.features(x), y).solution
    assert "Cholesky" not in flow.status and "are rounding" in flow.status
    assert torch.isfinite(found).all()
    torch.testing.assert_close(found.double(), expected, rtol=0, atol=0.05)


def test_indefinite_matrix_is_refused_or_mended_by_a_ridge() -> None:
    gram = torch.tensor([[1.0, 2.0], [2.0, 1.0]], dtype=torch.float64)
    y = torch.ones(2, dtype=torch.float64)
    flow = GradientFlow("precomputed").fit(gram, y)
    for t in (1.0, INF):
        with pytest.raises(SingularKernelError, match="Pass a ridge above"):
            flow.predict(None, t)
    mended = GradientFlow("precomputed", ridge=2.0).fit(gram, y)
    torch.testing.assert_close(mended.predict(None, 50.0), mended.predict(None), rtol=1e-9, atol=1e-9)


def test_zero_kernel_is_refused() -> None:
    with pytest.raises(SingularKernelError, match="inputs zero"):
        GradientFlow("precomputed").fit(torch.zeros(3, 3), torch.ones(3)).predict(None, 1.0)


GRAM = KERNEL(X)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda: GradientFlow("rbf"), InputTypeError, "precomputed"),  # type: ignore[arg-type]
        (lambda: GradientFlow(KERNEL, "hinge"), InputError, "cross_entropy"),
        (lambda: GradientFlow(KERNEL, 3), InputTypeError, "function of outputs"),  # type: ignore[arg-type]
        (lambda: GradientFlow(KERNEL, ridge=-1.0), InputError, "not negative"),
        (lambda: GradientFlow(KERNEL).predict(X), InputError, "fit"),
        (lambda: GradientFlow(KERNEL).fit(X, Y[:3]), InputError, "n = 15"),
        (lambda: GradientFlow(KERNEL).fit(X, Y.float()), InputTypeError, "y.to"),
        (lambda: GradientFlow(KERNEL).fit(X, Y * float("nan")), InputError, "NaN"),
        (lambda: GradientFlow(KERNEL).fit(X, Y, Y[:3]), InputError, r"shape \(15, 2\)"),
        (lambda: GradientFlow(KERNEL).fit(X, Y, Y.float()), InputError, "float64"),
        (lambda: GradientFlow(KERNEL).fit(X, Y, 0.0), InputTypeError, "function of points"),  # type: ignore[arg-type]
        (lambda: GradientFlow("precomputed").fit(GRAM, Y, start), InputError, "no points"),
        (lambda: GradientFlow("precomputed").fit(X, Y), InputError, r"\(n, n\)"),
        (lambda: GradientFlow("precomputed").fit(GRAM, Y).predict(X), InputError, "15"),
        (lambda: GradientFlow(KERNEL).fit(X, Y, Y).predict(NEW), InputError, "those at x"),
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, f0=start), InputError, "starts from zero"),
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, -1.0), InputError, "negative"),
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, float("nan")), InputError, "NaN"),
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, []), InputError, "empty"),
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, "late"), InputTypeError, "a time"),  # type: ignore[arg-type]
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, 1.5, descent=Descent(0.1)), InputError, "whole numbers"),
        (lambda: GradientFlow(KERNEL).fit(X, Y).predict(NEW, 1, descent=0.1), InputTypeError, "Descent"),  # type: ignore[arg-type]
        (lambda: GradientFlow(KERNEL).fit(X, Y).time_to_loss(-1.0), InputError, "loss"),
        (lambda: Descent(0.0), InputError, "positive"),
        (lambda: Descent(0.1, 1.0), InputError, "below 1"),
        (lambda: Descent("big"), InputTypeError, "number"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_explained(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()
