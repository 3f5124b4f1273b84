"""Training in the eigenbasis: curves, times to a loss, singular and indefinite matrices."""

from __future__ import annotations

import math
import re

import pytest
import torch
from tests.cases import normal
from tests.dynamics.problems import Features, start

from ntkit import Descent, GradientFlow
from ntkit.errors import JitterWarning, SingularKernelError

INF = math.inf
KERNEL, X, Y, NEW = Features(), normal(15, 3), normal(15, 2, seed=1), normal(4, 3, seed=2)


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


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_repeated_points(dtype: torch.dtype) -> None:
    x, y = X.repeat(2, 1).to(dtype), torch.cat([Y, Y + 1]).to(dtype)
    flow = GradientFlow(KERNEL).fit(x, y)
    with pytest.warns(JitterWarning):
        limit = flow.predict(x)
    found = re.search(r"jitter of (\S+) trace", flow.status)
    assert found is not None
    # The targets of a point differ, so coefficients grow like 1 / jitter, and so does the rounding of their sums. Which jitter
    # reproduces the targets best depends on the machine's rounding.
    tolerance = 20 * torch.finfo(dtype).eps / float(found[1])
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
        with pytest.raises(SingularKernelError, match="pass a ridge above"):
            flow.predict(None, t)
    mended = GradientFlow("precomputed", ridge=2.0).fit(gram, y)
    torch.testing.assert_close(mended.predict(None, 50.0), mended.predict(None), rtol=1e-9, atol=1e-9)


def test_zero_kernel_is_refused() -> None:
    with pytest.raises(SingularKernelError, match="inputs zero"):
        GradientFlow("precomputed").fit(torch.zeros(3, 3), torch.ones(3)).predict(None, 1.0)


def test_the_step_that_reaches_a_loss_exactly() -> None:
    """One direction: each step halves the error, and the loss after t steps is 2^(-2 t - 1) to the bit."""
    flow = GradientFlow("precomputed").fit(torch.ones(1, 1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    for step in range(1, 12):
        assert flow.time_to_loss(2.0 ** (-2 * step - 1), descent=Descent(0.5)) == step


def test_the_last_step_with_momentum_counts() -> None:
    flow = GradientFlow(KERNEL).fit(X, Y)
    descent = Descent(0.5 * flow.max_learning_rate(0.8), 0.8)
    value = 0.3 * float(flow.loss_at(0.0))
    step = flow.time_to_loss(value, descent=descent)
    assert 2 < step < 1000
    assert flow.time_to_loss(value, t_max=step, descent=descent) == step
    assert flow.time_to_loss(value, t_max=step - 1, descent=descent) == INF
