"""Indefinite systems against dense solutions in float64, on matrices of known eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from tests.cases import normal
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram
from ntkit._src.solvers._indefinite import indefinite_bytes
from ntkit.errors import InputError, SingularKernelError
from ntkit.solvers import Indefinite, Outcome


def with_eigenvalues(values: Tensor, seed: int = 0) -> Tensor:
    """Return a symmetric matrix of random eigenvectors."""
    draws = normal(len(values), len(values), seed=seed)
    q = torch.linalg.qr(draws)[0]
    matrix = q * values.double() @ q.T
    return (matrix + matrix.T) / 2


def targets(n: int, k: int = 2) -> Tensor:
    return normal(n, k, seed=1)


@pytest.mark.parametrize("negative", [0, 1, 17, 60])
def test_solution_is_that_of_the_matrix_as_it_is(negative: int) -> None:
    values = torch.linspace(0.5, 3, 60, dtype=torch.float64)
    values[:negative] *= -1
    gram, y = with_eigenvalues(values), targets(60)
    found = ntkit.solve(gram, y, method="indefinite")
    expected = np.linalg.solve(gram.numpy(), y.numpy())
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    assert found.stats["negative"] == negative and found.stats["rank"] == 60
    assert 0 < found.stats["seconds"] < 3600
    assert found.stats["residual"] < 1e-13 and found.stats["jitter"] == found.stats["ridge"] == 0
    assert found.stats["scale"] == pytest.approx(float(values.mean()), rel=1e-9)
    assert found.status.outcome is Outcome.SOLVED and "LDL^T" in found.status
    assert (f"indefinite ({negative} of 60 eigenvalues are negative)" in found.status) == (negative > 0)
    assert ("positive semidefinite" in found.status) == (negative == 0)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("negative", [0, 1, 17, 60])
def test_a_ridge_takes_eigenvalues_away_from_zero(negative: int, dtype: torch.dtype) -> None:
    values = torch.linspace(0.01, 3, 60, dtype=torch.float64)
    values[:negative] *= -1
    gram, y = with_eigenvalues(values).to(dtype), targets(60).to(dtype)
    found = ntkit.solve(gram, y, method="indefinite", ridge=0.3)
    scale = float(values.abs().mean())
    exact, vectors = np.linalg.eigh(gram.double().numpy())
    inverse = 1 / (exact + 0.3 * scale * np.sign(exact))
    expected = vectors @ (inverse[:, None] * (vectors.T @ y.double().numpy()))
    digits = 1e-11 if dtype == torch.float64 else 2e-6
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=digits * np.abs(expected).max())
    assert found.value.dtype == dtype and found.stats["negative"] == negative
    assert found.stats["residual"] < 10 * digits and found.stats["scale"] == pytest.approx(scale, rel=1e-5)
    # It is the minimum of ||K a - y||^2 + r scale a^T |K| a: the gradient vanishes.
    a, size = found.value.double().numpy(), vectors * np.abs(exact) @ vectors.T
    gradient = gram.double().numpy() @ (gram.double().numpy() @ a - y.double().numpy()) + 0.3 * scale * size @ a
    assert np.abs(gradient).max() < 100 * digits
    if negative == 0:
        plain = ntkit.solve(gram, y, ridge=0.3).value
        torch.testing.assert_close(found.value, plain, rtol=0, atol=digits * float(plain.abs().max()))
    else:
        assert found.stats["condition"] == pytest.approx((3 + 0.3 * scale) / (0.01 + 0.3 * scale), rel=1e-2)


def test_a_ridge_on_a_singular_matrix_is_the_usual_one() -> None:
    values = torch.cat([torch.linspace(0.5, 2, 20), torch.zeros(30)])
    gram, y = with_eigenvalues(values), targets(50)
    found = ntkit.solve(gram, y, method="indefinite", ridge=0.1)
    expected = ntkit.solve(gram, y, ridge=0.1).value
    torch.testing.assert_close(found.value, expected, rtol=0, atol=1e-10 * float(expected.abs().max()))
    assert found.stats["negative"] == 0 and found.status.outcome is Outcome.SOLVED and found.stats["rank"] == 50


@pytest.mark.parametrize("kind", ["tensor", "stored", "kernel"])
def test_every_kind_of_matrix(case: Any, kind: str, tmp_path: Any) -> None:
    notes: list[str] = []
    gram: Any = {"tensor": case.dense, "kernel": case.kernel}.get(kind)
    gram = case.operator("stored", tmp_path) if gram is None else gram
    arguments = {"x": case.x} if kind == "kernel" else {}
    found = ntkit.solve(gram, case.y[:, 0], method=Indefinite(), ridge=1e-3, note=notes.append, **arguments)
    torch.testing.assert_close(found.value, case.exact(1e-3)[:, 0], rtol=1e-9, atol=1e-9)
    if kind == "tensor":  # solved at once
        assert not notes
    else:
        assert notes[0].startswith("Indefinite(): about") and "memory" in notes[0]


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_condition_number_is_estimated_within_a_factor(condition: float) -> None:
    values = torch.logspace(0, -np.log10(condition), 40, dtype=torch.float64)
    values[::3] *= -1
    gram = with_eigenvalues(values)
    found = ntkit.solve(gram, targets(40), method="indefinite").stats["condition"]
    exact = float(np.linalg.cond(gram.numpy(), 1))
    assert 0.3 * exact < found < 1.001 * exact


def test_condition_number_of_a_matrix_on_which_the_ascent_stops_at_once() -> None:
    """Ones are mapped to equal numbers, so the steepest direction is the one already taken: only the probe sees the rest."""
    n = 30
    gram = 1e-3 * (torch.eye(n) - torch.full((n, n), 1 / n)) + torch.full((n, n), 1 / n)
    found = ntkit.solve(gram.double(), targets(n), method="indefinite").stats["condition"]
    assert found > 0.2 * float(np.linalg.cond(gram.double().numpy(), 1))


def test_single_precision_is_refined() -> None:
    values = torch.logspace(0, -4, 50, dtype=torch.float64)
    values[::2] *= -1
    gram, y = with_eigenvalues(values).float(), targets(50).float()
    found = ntkit.solve(gram, y, method="indefinite")
    assert (
        found.value.dtype == torch.float32 and found.stats["refinements"] >= 1 and found.stats["residual"] < 1e-4
    )  # eps times the condition number is 6e-4
    exact = np.linalg.solve(gram.double().numpy(), y.double().numpy())
    np.testing.assert_allclose(found.value, exact, rtol=0, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("sign", [1, -1])
def test_a_singular_matrix_gets_the_shortest_least_squares_solution(sign: int) -> None:
    values = torch.cat([torch.linspace(0.5, 2, 20), torch.zeros(4)])
    values[:3] *= sign
    gram, y = with_eigenvalues(values), targets(24)
    found = ntkit.solve(gram, y, method="indefinite")
    expected = np.linalg.lstsq(gram.numpy(), y.numpy(), rcond=1e-12)[0]
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-10 * np.abs(expected).max())
    assert found.status.outcome is Outcome.TRUNCATED and found.status.converged
    assert "singular" in found.status and "20 of 24 eigenvectors" in found.status
    assert found.stats["rank"] == 20 and found.stats["negative"] == (3 if sign < 0 else 0)
    assert ("indefinite (3 of 24" in found.status) == (sign < 0)
    left = np.linalg.norm(gram.numpy() @ expected - y.numpy(), axis=0) / np.linalg.norm(y.numpy(), axis=0)
    assert found.stats["residual"] == pytest.approx(left.max(), rel=1e-9)


def test_an_exact_zero_pivot() -> None:
    gram = torch.diag(torch.tensor([1.0, 0.0, -2.0], dtype=torch.float64))
    found = ntkit.solve(gram, torch.tensor([3.0, 5.0, 4.0], dtype=torch.float64), method="indefinite")
    assert found.value.tolist() == pytest.approx([3, 0, -2])
    assert found.status.outcome is Outcome.TRUNCATED and found.stats["condition"] == 2


def test_nearly_singular_but_not_rounding() -> None:
    """The estimate of the condition number asks for eigenvalues, and they say that all of them count."""
    values = torch.ones(100, dtype=torch.float64)
    values[0], values[1:40] = 5e-15, -1
    gram, y = with_eigenvalues(values), targets(100)
    found = ntkit.solve(gram, y, method="indefinite")
    assert found.status.outcome is Outcome.SOLVED and "by eigenvalues" in found.status
    assert found.stats["rank"] == 100 and found.stats["negative"] == 39 and found.stats["residual"] < 1e-2


def test_refusals() -> None:
    y = torch.ones(3, dtype=torch.float64)
    with pytest.raises(SingularKernelError, match="the Gram matrix is zero"):
        ntkit.solve(torch.zeros(3, 3, dtype=torch.float64), y, method="indefinite")
    with pytest.raises(InputError, match="must be symmetric"):
        ntkit.solve(torch.eye(3, dtype=torch.float64) + torch.ones(3, 3).triu(), y, method="indefinite")
    indefinite = torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    with pytest.raises(SingularKernelError, match="method='indefinite'"):  # the default says what to write
        ntkit.solve(indefinite, y)
    with pytest.raises(
        SingularKernelError, match="smallest eigenvalue is -1.*gradient flow diverges.*method='indefinite'"
    ):
        ntkit.GradientFlow("precomputed").fit(indefinite, y).predict(None, 1.0)


def test_one_factorisation_serves_several_right_hand_sides() -> None:
    gram = with_eigenvalues(torch.tensor([-1.0, 2.0, 3.0]))
    system = Indefinite().set_up(DenseGram(gram), 0.0)
    for y in (targets(3), targets(3)[:, 0]):
        assert system.solve(y).value.shape == y.shape
        torch.testing.assert_close(gram @ system.solve(y).value, y, rtol=1e-12, atol=1e-12)
    assert system.solve(targets(3)).stats["bytes"] == indefinite_bytes(3) == 4 * 9 * 8
