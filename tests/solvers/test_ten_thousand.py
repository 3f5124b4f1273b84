"""Ten thousand points: every iterative method against the exact solution, and Nystrom on its way there."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
import torch
from tests.cases import mlp
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram
from ntkit.solvers import CG, BlockedCholesky, EigenPro, Falkon, Nystrom, Outcome

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200)]

N, RIDGE = 10_000, 1e-2


@dataclass(frozen=True)
class Problem:
    gram: DenseGram
    y: Tensor
    exact: Tensor

    def distance(self, value: Tensor) -> float:
        return float((value - self.exact).norm() / self.exact.norm())


@pytest.fixture(scope="module")
def problem() -> Problem:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 10, generator=generator, dtype=torch.float64)
    y = torch.stack(
        [torch.sin(x[:, 0]) + x[:, 1] * x[:, 2], torch.randn(N, generator=generator, dtype=torch.float64)], 1
    )
    net = mlp(10, 8, 8, 1)
    gram = DenseGram(ntkit.infinite_width(net, b_std=0.3).ntk(x))
    return Problem(gram, y, ntkit.solve(gram.matrix, y, ridge=RIDGE).value)


def test_conjugate_gradients(problem: Problem) -> None:
    found = CG().set_up(problem.gram, RIDGE).solve(problem.y)
    assert found.status.outcome is Outcome.SOLVED and problem.distance(found.value) < 1e-6


def test_blocked_cholesky(problem: Problem) -> None:
    found = BlockedCholesky(in_memory=True).set_up(problem.gram, RIDGE).solve(problem.y)
    assert problem.distance(found.value) < 1e-9


def test_falkon_is_nystrom_which_approaches_the_exact_solution(problem: Problem) -> None:
    fitted = problem.gram.matrix @ problem.exact
    errors = []
    for m in (300, 1200, 4800):
        near = Nystrom(m).set_up(problem.gram, RIDGE).solve(problem.y)
        errors.append(float((problem.gram.matrix[:, near.centres] @ near.value - fitted).norm() / fitted.norm()))
    assert errors[0] > 1.2 * errors[1] and errors[1] > 1.2 * errors[2]
    centres = torch.arange(0, N, 10)
    near = Nystrom(centres=centres).set_up(problem.gram, RIDGE).solve(problem.y)
    iterated = Falkon(centres=centres).set_up(problem.gram, RIDGE).solve(problem.y)
    assert iterated.status.outcome is Outcome.APPROXIMATED
    apart = problem.gram.matrix[:, centres] @ (near.value - iterated.value)
    assert float(apart.norm() / fitted.norm()) < 1e-6


def test_eigenpro_given_the_epochs_it_asks_for(problem: Problem) -> None:
    settings = {"rtol": 1e-8, "rank": 400, "batch": 1000}
    first = EigenPro(epochs=10, **settings).set_up(problem.gram, RIDGE).solve(problem.y)  # type: ignore[arg-type]
    assert first.status.outcome is Outcome.NOT_CONVERGED
    needed = int(str(first.status).split("epochs=")[1].split(",")[0])
    found = EigenPro(epochs=3 * needed, **settings).set_up(problem.gram, RIDGE).solve(problem.y)  # type: ignore[arg-type]
    assert found.status.outcome is Outcome.SOLVED and problem.distance(found.value) < 1e-6
