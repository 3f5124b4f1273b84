"""Indefinite systems against dense solutions in float64, on matrices of known eigenvalues."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import ntkit
from ntkit.errors import InputError, SingularKernelError
from ntkit.gram import DenseGram
from ntkit.solvers import LDL, Outcome
from ntkit.solvers._ldl import ldl_bytes


def with_eigenvalues(values: Tensor, seed: int = 0) -> Tensor:
    """Return a symmetric matrix of random eigenvectors."""
    draws = torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    q = torch.linalg.qr(draws)[0]
    matrix = q * values.double() @ q.T
    return (matrix + matrix.T) / 2


def targets(n: int, k: int = 2) -> Tensor:
    return torch.randn(n, k, generator=torch.Generator().manual_seed(1), dtype=torch.float64)


@pytest.mark.parametrize("negative", [0, 1, 17, 60])
@pytest.mark.parametrize("ridge", [0.0, 0.3])
def test_solution_is_that_of_the_matrix_as_it_is(negative: int, ridge: float) -> None:
    values = torch.linspace(0.5, 3, 60, dtype=torch.float64)
    values[:negative] *= -1
    gram, y = with_eigenvalues(values), targets(60)
    scale = float(values.mean())
    if ridge and not scale > 0:
        with pytest.raises(SingularKernelError, match="which must be positive. Got -"):
            ntkit.solve(gram, y, method="ldl", ridge=ridge)
        return
    found = ntkit.solve(gram, y, method="ldl", ridge=ridge)
    expected = np.linalg.solve(gram.numpy() + ridge * scale * np.eye(60), y.numpy())
    np.testing.assert_allclose(found.value, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    lifted = values + ridge * scale
    assert found.stats["negative"] == int((lifted < 0).sum()) and found.stats["rank"] == 60
    assert found.stats["residual"] < 1e-13 and found.stats["jitter"] == 0 and found.stats["ridge"] == ridge
    assert found.stats["scale"] == pytest.approx(scale, rel=1e-6)
    assert found.status.outcome is Outcome.SOLVED
    assert (f"indefinite ({negative} of 60 eigenvalues are negative)" in found.status) == bool((lifted < 0).any())
    assert ("positive semidefinite" in found.status) == (not bool((lifted < 0).any()))


@pytest.mark.parametrize("kind", ["tensor", "stored", "kernel"])
def test_every_kind_of_matrix(case: Any, kind: str, tmp_path: Any) -> None:
    notes: list[str] = []
    gram: Any = {"tensor": case.dense, "kernel": case.kernel}.get(kind)
    gram = case.operator("stored", tmp_path) if gram is None else gram
    arguments = {"x": case.x} if kind == "kernel" else {}
    found = ntkit.solve(gram, case.y[:, 0], method=LDL(), ridge=1e-3, progress=notes.append, **arguments)
    torch.testing.assert_close(found.value, case.exact(1e-3)[:, 0], rtol=1e-9, atol=1e-9)
    assert notes[0].startswith("LDL(): about") and "memory" in notes[0]


@pytest.mark.parametrize("condition", [1e2, 1e6, 1e10])
def test_condition_number_is_estimated_within_a_factor(condition: float) -> None:
    values = torch.logspace(0, -np.log10(condition), 40, dtype=torch.float64)
    values[::3] *= -1
    gram = with_eigenvalues(values)
    found = ntkit.solve(gram, targets(40), method="ldl").stats["condition"]
    exact = float(np.linalg.cond(gram.numpy(), 1))
    assert 0.3 * exact < found < 1.001 * exact


def test_condition_number_of_a_matrix_on_which_the_ascent_stops_at_once() -> None:
    """Ones are mapped to equal numbers, so the steepest direction is the one already taken: only the probe sees the rest."""
    n = 30
    gram = 1e-3 * (torch.eye(n) - torch.full((n, n), 1 / n)) + torch.full((n, n), 1 / n)
    found = ntkit.solve(gram.double(), targets(n), method="ldl").stats["condition"]
    assert found > 0.2 * float(np.linalg.cond(gram.double().numpy(), 1))


def test_single_precision_is_refined() -> None:
    values = torch.logspace(0, -4, 50, dtype=torch.float64)
    values[::2] *= -1
    gram, y = with_eigenvalues(values).float(), targets(50).float()
    found = ntkit.solve(gram, y, method="ldl")
    assert found.value.dtype == torch.float32 and found.stats["refinements"] >= 1 and found.stats["residual"] < 1e-4  # eps times the condition number is 6e-4
    exact = np.linalg.solve(gram.double().numpy(), y.double().numpy())
    np.testing.assert_allclose(found.value, exact, rtol=0, atol=2e-5 * np.abs(exact).max())


@pytest.mark.parametrize("sign", [1, -1])
def test_a_singular_matrix_gets_the_shortest_least_squares_solution(sign: int) -> None:
    values = torch.cat([torch.linspace(0.5, 2, 20), torch.zeros(4)])
    values[:3] *= sign
    gram, y = with_eigenvalues(values), targets(24)
    found = ntkit.solve(gram, y, method="ldl")
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
    found = ntkit.solve(gram, torch.tensor([3.0, 5.0, 4.0], dtype=torch.float64), method="ldl")
    assert found.value.tolist() == pytest.approx([3, 0, -2])
    assert found.status.outcome is Outcome.TRUNCATED and found.stats["condition"] == float("inf")


def test_nearly_singular_but_not_rounding() -> None:
    """The estimate of the condition number asks for eigenvalues, and they say that all of them count."""
    values = torch.ones(100, dtype=torch.float64)
    values[0], values[1:40] = 5e-15, -1
    gram, y = with_eigenvalues(values), targets(100)
    found = ntkit.solve(gram, y, method="ldl")
    assert found.status.outcome is Outcome.SOLVED and "eigendecomposition" in found.status
    assert found.stats["rank"] == 100 and found.stats["negative"] == 39 and found.stats["residual"] < 1e-2


def test_refusals() -> None:
    y = torch.ones(3, dtype=torch.float64)
    with pytest.raises(SingularKernelError, match="the Gram matrix is zero"):
        ntkit.solve(torch.zeros(3, 3, dtype=torch.float64), y, method="ldl")
    with pytest.raises(InputError, match="must be symmetric"):
        ntkit.solve(torch.eye(3, dtype=torch.float64) + torch.ones(3, 3).triu(), y, method="ldl")
    indefinite = torch.tensor([[1.0, 2.0, 0.0], [2.0, 1.0, 0.0], [0.0, 0.0, 1.0]], dtype=torch.float64)
    with pytest.raises(SingularKernelError, match="method='ldl'"):  # the default says what to write
        ntkit.solve(indefinite, y)
    with pytest.raises(SingularKernelError, match="smallest eigenvalue is -1.*gradient flow diverges.*method='ldl'"):
        ntkit.GradientFlow("precomputed").fit(indefinite, y).predict(None, 1.0)


def test_one_factorisation_serves_several_right_hand_sides() -> None:
    gram = with_eigenvalues(torch.tensor([-1.0, 2.0, 3.0]))
    system = LDL().set_up(DenseGram(gram), 0.0)
    for y in (targets(3), targets(3)[:, 0]):
        assert system.solve(y).value.shape == y.shape
        torch.testing.assert_close(gram @ system.solve(y).value, y, rtol=1e-12, atol=1e-12)
    assert system.solve(targets(3)).stats["bytes"] == ldl_bytes(3, 8) == 3 * 9 * 8
