"""Squared error: the closed form against the matrix exponential, an ODE and training by torch."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest
import torch
from linear_operator import to_linear_operator
from tests.cases import normal
from tests.dynamics.problems import Features, Linearised, OneOutput, small_net, start
from torch import Tensor

import ntkit
from ntkit import Descent, GradientFlow
from ntkit.errors import InputError, InputTypeError, MemoryLimitError

INF = math.inf
KERNEL, X, Y, NEW = Features(), normal(15, 3), normal(15, 2, seed=1), normal(4, 3, seed=2)


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

    monkeypatch.setattr("ntkit._src.dynamics._squared_error.decompose", refuse)
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
        (lambda: GradientFlow(KERNEL).fit(X, Y).time_to_loss(-1.0), InputError, "value must be"),
        (lambda: Descent(0.0), InputError, "positive"),
        (lambda: Descent(0.1, 1.0), InputError, "below 1"),
        (lambda: Descent("big"), InputTypeError, "number"),  # type: ignore[arg-type]
    ],
)
def test_bad_input_is_explained(call: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call()


def test_memory_is_asked_for_before_the_kernel_is_computed(free_memory: Callable[[int], None]) -> None:
    class Never(Features):
        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            raise AssertionError("the kernel was computed")

    free_memory(2 * 8 * 15**2 - 1)
    with pytest.raises(MemoryLimitError, match=r"n = 15 .*largest n that fits is 14"):
        GradientFlow(Never()).fit(X, Y)
    for x in (None, X.to("meta"), X.to_sparse(), X.to(torch.complex128)):
        with pytest.raises(InputTypeError, match="x must"):
            GradientFlow(KERNEL).fit(x, Y)  # type: ignore[arg-type]


def test_a_matrix_is_no_points() -> None:
    """A stored matrix is read only where the kernel is precomputed; a kernel needs the points."""
    operator = to_linear_operator(KERNEL(X))
    torch.testing.assert_close(
        GradientFlow("precomputed").fit(operator, Y).predict(KERNEL(NEW, X), 1.0),
        GradientFlow(KERNEL).fit(X, Y).predict(NEW, 1.0),
    )
    with pytest.raises(InputTypeError, match="x must be"):
        GradientFlow(KERNEL).fit(operator, Y)
