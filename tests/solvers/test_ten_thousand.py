"""Ten thousand points: every iterative method against the exact solution, and Nystrom on its way there."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit.gram import DenseGram
from ntkit.solvers import CG, BlockedCholesky, EigenPro, Falkon, Nystrom, Outcome

pytestmark = pytest.mark.slow


def test_iterative_methods_agree_with_the_exact_solution() -> None:
    n, ridge = 10_000, 1e-2
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 10, generator=generator, dtype=torch.float64)
    y = torch.stack(
        [torch.sin(x[:, 0]) + x[:, 1] * x[:, 2], torch.randn(n, generator=generator, dtype=torch.float64)], 1
    )
    net = nn.Sequential(nn.Linear(10, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    gram = DenseGram(ntkit.infinite_width(net, b_std=0.3).ntk(x))
    exact = ntkit.solve(gram.matrix, y, ridge=ridge).value

    def distance(value: torch.Tensor) -> float:
        return float((value - exact).norm() / exact.norm())

    assert distance(BlockedCholesky(in_memory=True).set_up(gram, ridge).solve(y).value) < 1e-9
    assert distance(CG().set_up(gram, ridge).solve(y).value) < 1e-6
    first = EigenPro(epochs=10, rtol=1e-8, rank=400, batch=1000).set_up(gram, ridge).solve(y)
    assert first.status.outcome is Outcome.NOT_CONVERGED
    needed = int(str(first.status).split("epochs=")[1].split(",")[0])
    found = EigenPro(epochs=3 * needed, rtol=1e-8, rank=400, batch=1000).set_up(gram, ridge).solve(y)
    assert found.status.outcome is Outcome.SOLVED and distance(found.value) < 1e-6

    fitted, errors = gram.matrix @ exact, []
    for m in (300, 1200, 4800):
        near = Nystrom(m).set_up(gram, ridge).solve(y)
        errors.append(float((gram.matrix[:, near.centres] @ near.value - fitted).norm() / fitted.norm()))
    assert errors[0] > 1.5 * errors[1] > 2 * errors[2]
    centres = torch.arange(0, n, 10)
    near = Nystrom(centres=centres).set_up(gram, ridge).solve(y)
    iterated = Falkon(centres=centres).set_up(gram, ridge).solve(y)
    assert iterated.status.outcome is Outcome.APPROXIMATED
    apart = gram.matrix[:, centres] @ (near.value - iterated.value)
    assert float(apart.norm() / fitted.norm()) < 1e-6
