"""Leave-one-out in closed form against models that are really refitted without the point."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ntkit import leave_one_out
from ntkit.errors import InputError, InputTypeError, SingularKernelError

INF = math.inf


def _problem(n: int = 25, k: int = 2, decay: float = 1.5, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    basis = torch.linalg.qr(torch.randn(n, n, generator=generator, dtype=torch.float64))[0]
    gram: Tensor = 3 * (basis * torch.arange(1, n + 1, dtype=torch.float64) ** -decay) @ basis.T
    y = torch.randn(n, k, generator=generator, dtype=torch.float64)
    return ((gram + gram.T) / 2).to(dtype), y.to(dtype)


def _refitted(gram: Tensor, y: Tensor, ridge: float, t: float) -> Tensor:
    """The oracle: n eigendecompositions, each without one point."""
    predictions = torch.empty_like(y)
    shift = ridge * float(gram.trace()) / len(gram)
    for i in range(len(gram)):
        rest = [j for j in range(len(gram)) if j != i]
        values, vectors = torch.linalg.eigh(gram[rest][:, rest])
        mu = values + shift
        weights = 1 / mu if math.isinf(t) else -torch.expm1(-mu * t) / mu
        predictions[i] = gram[i, rest] @ (vectors * weights) @ vectors.T @ y[rest]
    return predictions


@pytest.mark.parametrize("ridge", [0.0, 1e-3, 1.0])
@pytest.mark.parametrize("t", [1e-3, 0.1, 1.0, 30.0, 1e4, INF])
def test_equals_refitting_without_the_point(ridge: float, t: float) -> None:
    gram, y = _problem()
    found = leave_one_out(gram, y, [ridge], [t])
    torch.testing.assert_close(found.predictions[0], _refitted(gram, y, ridge, t), rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(found.errors[0], ((_refitted(gram, y, ridge, t) - y) ** 2).mean(), rtol=1e-8, atol=0)


def test_grid_and_best() -> None:
    gram, y = _problem(k=1)
    found = leave_one_out(gram, y[:, 0], [0.01, 1.0], [0.0, 2.0, INF])
    assert found.predictions.shape == (6, 25)
    assert found.ridges.tolist() == [0.01] * 3 + [1.0] * 3
    assert found.times.tolist() == [0.0, 2.0, INF] * 2
    assert found.best == int(found.errors.argmin())
    assert (found.ridge, found.time) == (float(found.ridges[found.best]), float(found.times[found.best]))
    assert not found.predictions[0].any()
    for index in range(6):
        single = leave_one_out(gram, y[:, 0], float(found.ridges[index]), float(found.times[index]))
        torch.testing.assert_close(single.predictions[0], found.predictions[index])


def test_one_ridge_by_cholesky_equals_the_grid() -> None:
    gram, y = _problem()
    before = gram.clone()
    one, many = leave_one_out(gram, y, 0.3), leave_one_out(gram, y, torch.tensor([0.3, 0.5], dtype=torch.float64))
    assert "Cholesky" in one.status and "Eigendecomposition" in many.status
    torch.testing.assert_close(one.predictions[0], many.predictions[0], rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(gram, before, rtol=0, atol=0)


def test_generalised_formula_would_be_wrong_for_the_flow() -> None:
    """Why the contour: (y - S y)_i / (1 - S_ii), exact for a ridge, errs by percents for a stopped flow."""
    gram, y = _problem()
    values, vectors = torch.linalg.eigh(gram)
    smoother = (vectors * -torch.expm1(-values * 2.0)) @ vectors.T
    shortcut = y - (y - smoother @ y) / (1 - smoother.diagonal())[:, None]
    exact = _refitted(gram, y, 0.0, 2.0)
    assert float((shortcut - exact).norm() / exact.norm()) > 0.01
    assert float((leave_one_out(gram, y, times=2.0).predictions[0] - exact).norm() / exact.norm()) < 1e-10


def test_repeated_point_is_predicted_by_its_twin() -> None:
    gram, y = _problem(12, 1, decay=1.0)
    found = leave_one_out(gram.repeat(2, 2), torch.cat([y, y + 1]))
    assert "12 of 24 eigenvalues are rounding" in found.status
    torch.testing.assert_close(found.predictions[0], torch.cat([y + 1, y]), rtol=0, atol=1e-6)


def test_float32_is_computed_in_float64() -> None:
    gram, y = _problem(dtype=torch.float32)
    found = leave_one_out(gram, y, 0.01, [1.0, INF])
    assert found.predictions.dtype == torch.float32
    for prediction, t in zip(found.predictions, (1.0, INF), strict=True):
        torch.testing.assert_close(prediction, _refitted(gram.double(), y.double(), 0.01, t).float())


GRAM, Y = _problem(4, 1)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ((GRAM, Y[:3]), InputError, "n = 4"),
        ((GRAM, Y.float()), InputTypeError, "y.to"),
        ((GRAM, Y, [-1.0]), InputError, "not negative"),
        ((GRAM, Y, []), InputError, "at least one"),
        ((GRAM, Y, "0.1"), InputTypeError, "number"),
        ((GRAM, Y, 0.1, [-1.0]), InputError, "must not be negative"),
        ((GRAM, Y, 0.1, [float("nan")]), InputError, "NaN"),
        ((GRAM, Y, 0.1, []), InputError, "empty"),
        ((GRAM, Y, 0.1, "soon"), InputTypeError, "a time"),
        ((GRAM[:1, :1], Y[:1]), InputError, "at least two"),
        ((0 * GRAM, Y), SingularKernelError, "trace"),
        ((GRAM - 0.5 * torch.eye(4).double(), Y), SingularKernelError, "pass a ridge above"),
    ],
)
def test_bad_input_is_explained(arguments: Any, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        leave_one_out(*arguments)
