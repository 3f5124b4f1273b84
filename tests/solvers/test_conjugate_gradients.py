"""Conjugate gradients against the dense solution, on every kind of operator."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

import ntkit
from ntkit._src.gram import DenseGram
from ntkit.errors import SingularKernelError
from ntkit.solvers import CG, Outcome


@pytest.mark.parametrize(
    ("kind", "pivoting"),
    [("dense", "random"), ("dense", "greedy"), ("dense", "uniform"), ("stored", "greedy"), ("computed", "random")],
)
def test_agrees_with_the_dense_solution(case: Any, kind: str, pivoting: Any, tmp_path: Path) -> None:
    ridge = 1e-4
    system = CG(pivoting=pivoting).set_up(case.operator(kind, tmp_path), ridge)
    found, one = system.solve(case.y), system.solve(case.y[:, 1])
    torch.testing.assert_close(found.value, case.exact(ridge), rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(one.value, found.value[:, 1], rtol=1e-6, atol=1e-6)
    assert found.status.outcome is Outcome.SOLVED and found.stats["residual"] <= 1e-10
    assert found.stats["iterations"] >= 1 and found.stats["seconds"] > 0


@pytest.mark.parametrize("rank", [0, 11])
def test_memory_that_it_holds(case: Any, rank: int, tmp_path: Path) -> None:
    """In float64 the factor and six vectors per target; two tiles of the matrix."""
    system = CG(rank=rank, max_iterations=3).set_up(case.operator("computed", tmp_path, tile=37), 1e-2)
    assert system.solve(case.y).stats["bytes"] == 8 * 150 * (rank + 6 * 3) + 2 * 37**2 * 8


def test_the_size_of_the_targets_changes_nothing(case: Any) -> None:
    system = CG(rank=0).set_up(DenseGram(case.dense), 1e-4)
    steps = [system.solve(case.y * factor).stats["iterations"] for factor in (1.0, 2.0**-20, 2.0**20)]
    assert max(steps) - min(steps) <= 1  # powers of two: but for under- and overflow, the same numbers


def test_the_preconditioner_saves_iterations(case: Any) -> None:
    gram = DenseGram(case.dense)
    steps = [CG(rank=rank).set_up(gram, 1e-4).solve(case.y).stats["iterations"] for rank in (0, 20, 80, 150)]
    assert steps[0] > 2 * steps[1] > 2 * steps[3] and steps[2] <= steps[1]
    assert steps[3] <= 6, "the whole matrix is its own preconditioner"


def test_says_how_many_iterations_are_needed(case: Any) -> None:
    gram = DenseGram(case.dense)
    short = CG(rank=0, max_iterations=60).set_up(gram, 1e-3).solve(case.y)
    assert short.status.outcome is Outcome.NOT_CONVERGED and not short.status.converged
    assert short.stats["residual"] > 1e-10
    needed = int(str(short.status).split("max_iterations=")[1].split(",")[0])
    assert 60 < needed < 3000
    long = CG(rank=0, max_iterations=needed).set_up(gram, 1e-3).solve(case.y)
    assert long.status.outcome is Outcome.SOLVED
    torch.testing.assert_close(long.value, case.exact(1e-3), rtol=1e-6, atol=1e-6)


def test_zero_targets_and_single_precision(case: Any) -> None:
    gram = DenseGram(case.dense.float())
    system = CG(rtol=1e-9).set_up(gram, 1e-2)
    zero = system.solve(torch.zeros(150))
    assert zero.value.dtype == torch.float32 and not zero.value.any() and zero.stats["iterations"] == 0
    found = system.solve(case.y.float())
    torch.testing.assert_close(found.value.double(), case.exact(1e-2), rtol=1e-4, atol=1e-4)


def test_an_indefinite_matrix_is_refused() -> None:
    gram = torch.diag(torch.tensor([1.0, 2.0, -0.5, 3.0], dtype=torch.float64))
    with pytest.raises(SingularKernelError, match="not positive definite"):
        CG(rank=0).set_up(DenseGram(gram), 0.0).solve(torch.ones(4, dtype=torch.float64))
    with pytest.raises(SingularKernelError, match="inputs zero"):
        CG().set_up(DenseGram(torch.zeros(3, 3)), 0.0)


def test_notes(case: Any) -> None:
    notes: list[str] = []
    ntkit.solve(case.dense, case.y, method="cg", ridge=1e-3, note=notes.append)
    assert "memory" in notes[0] and "rank" in notes[1] and "Iteration 1" in notes[2]


def test_draws_are_the_same_by_default() -> None:
    assert CG() == CG(seed=0)
