"""Dual coefficients and leave-one-out predictions of one factorisation, against refits without each point."""

from __future__ import annotations

import math

import pytest
import torch
from tests.estimators.problems import Laplace, regression_data

import ntkit
from ntkit._src.estimators import _regression
from ntkit._src.estimators._regression import fit_dual
from ntkit.errors import JitterWarning

X, Y = (torch.from_numpy(one) for one in regression_data())
GRAM = Laplace()(X)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("time", [math.inf, 2.0])
@pytest.mark.parametrize("columns", [slice(None), 0])
def test_left_out_predictions_are_those_of_refits(dtype: torch.dtype, time: float, columns: slice | int) -> None:
    y = Y[:, columns]
    fit = fit_dual(GRAM.to(dtype), y.to(dtype), 0.1, time, left_out=True)
    assert fit.left_out is not None and fit.left_out.dtype == dtype and fit.jitter == 0
    for point in range(0, 60, 7):
        rest = [index for index in range(60) if index != point]
        alone = fit_dual(GRAM[rest][:, rest], y[rest], 0.1, time, left_out=False)
        expected = GRAM[point, rest] @ alone.dual
        tolerance = 1e-8 if dtype == torch.float64 else 1e-4
        torch.testing.assert_close(fit.left_out[point].double(), expected, rtol=0, atol=tolerance)


def test_singular_matrix_counts_its_jitter() -> None:
    twice = torch.cat([X, X])
    gram, y = Laplace()(twice), torch.cat([Y, Y + 0.1])
    with pytest.warns(JitterWarning, match="the rows of 60 pairs are the same input"):
        fit = fit_dual(gram, y, 0.0, math.inf, left_out=True)
    expected = ntkit.leave_one_out(gram, y, fit.jitter).predictions[0]
    assert fit.jitter > 0 and fit.left_out is not None
    torch.testing.assert_close(fit.left_out, expected)


def test_calibration_takes_the_factor_of_the_fit(monkeypatch: pytest.MonkeyPatch) -> None:
    """One factorisation serves the coefficients and the leave-one-out scores; no eigendecomposition, no second one."""
    from ntkit._src.solvers import _cholesky

    calls, original = [], _cholesky.cholesky
    monkeypatch.setattr(_cholesky, "cholesky", lambda *given: calls.append(1) or original(*given))
    monkeypatch.setattr("ntkit._src.estimators._tuner.leave_one_out", None)
    ntkit.NTKClassifier(b_std=0.1).fit(X.numpy(), [0, 1, 2] * 20)
    assert len(calls) == 1


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("ridge", [0.1, 0.0])
def test_one_matrix_suffices(dtype: torch.dtype, ridge: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large matrix that is owned is factorised in its own memory, and nothing of its size is copied."""
    expected = fit_dual(GRAM.to(dtype), Y.to(dtype), ridge, math.inf, left_out=True)
    monkeypatch.setattr(_regression, "_LARGE", 60)
    monkeypatch.setattr(_regression, "best_factor", None)
    found = fit_dual(GRAM.to(dtype, copy=True), Y.to(dtype), ridge, math.inf, left_out=True, owned=True)
    tolerance = 1e-9 if dtype == torch.float64 else 1e-3
    torch.testing.assert_close(found.dual, expected.dual, rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(found.left_out, expected.left_out, rtol=tolerance, atol=tolerance)
    assert "in place" in found.status


def test_singular_matrix_in_place_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    gram = Laplace()(torch.cat([X, X]))
    y = torch.cat([Y, Y])
    with pytest.warns(JitterWarning):
        expected = fit_dual(gram, y, 0.0, math.inf, left_out=True)
    monkeypatch.setattr(_regression, "_LARGE", 60)
    with pytest.warns(JitterWarning):
        found = fit_dual(gram.clone(), y, 0.0, math.inf, left_out=True, owned=True)
    # The matrix is restored to its bits (tests/solvers/test_in_place.py) before the other way is taken with it.
    assert torch.equal(found.dual, expected.dual) and found.jitter == expected.jitter
