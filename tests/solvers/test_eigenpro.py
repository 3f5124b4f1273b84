"""EigenPro against the dense solution."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import ntkit
from ntkit._src.gram import DenseGram, KernelGram
from ntkit.solvers import EigenPro, Outcome


@pytest.mark.parametrize("kind", ["dense", "stored", "computed"])
def test_agrees_with_the_dense_solution(case: Any, kind: str, tmp_path: Path) -> None:
    ridge = 0.3
    method = EigenPro(epochs=400, rtol=1e-9, sample=100, rank=40, batch=20)
    found = method.set_up(case.operator(kind, tmp_path, tile=64), ridge).solve(case.y)
    assert found.status.outcome is Outcome.SOLVED, found.status
    torch.testing.assert_close(found.value, case.exact(ridge), rtol=1e-6, atol=1e-6)


def test_asks_for_the_epochs_it_needs(case: Any) -> None:
    gram = DenseGram(case.dense)
    short = EigenPro(epochs=20, rtol=1e-8, sample=100, rank=40, batch=20).set_up(gram, 0.1).solve(case.y[:, 0])
    assert short.status.outcome is Outcome.NOT_CONVERGED and short.value.shape == (150,)
    assert short.stats["jitter"] == 0.0
    assert short.stats["epochs"] == 20 and short.stats["iterations"] == 20 * 8  # 150 rows are eight batches of 20
    needed = int(str(short.status).split("epochs=")[1].split(",")[0])
    long = EigenPro(epochs=3 * needed, rtol=1e-8, sample=100, rank=40, batch=20).set_up(gram, 0.1).solve(case.y[:, 0])
    assert long.status.outcome is Outcome.SOLVED and long.stats["epochs"] < 3 * needed
    torch.testing.assert_close(long.value, case.exact(0.1)[:, 0], rtol=1e-6, atol=1e-6)


def test_slowing_leading_directions_down_pays(case: Any) -> None:
    gram = DenseGram(case.dense)
    left = [
        EigenPro(epochs=10, rank=rank, sample=150, batch=30).set_up(gram, 0.1).solve(case.y).stats["residual"]
        for rank in (1, 50)
    ]
    assert left[1] < 0.5 * left[0]


def test_a_sample_of_two_and_batches_of_one(case: Any) -> None:
    part = DenseGram(case.dense[:10, :10])
    found = EigenPro(epochs=3000, rtol=1e-8, sample=2, batch=1).set_up(part, 0.5).solve(case.y[:10])
    scale = part.matrix.trace() / 10
    exact = torch.linalg.solve(part.matrix + 0.5 * scale * torch.eye(10, dtype=torch.float64), case.y[:10])
    torch.testing.assert_close(found.value, exact, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(("n", "rows"), [(4, 1), (800, 100), (20_000, 838)])
def test_rows_of_a_step_take_at_most_a_quarter_of_a_gigabyte(n: int, rows: int) -> None:
    """An eighth of the rows, or 2^28 bytes at 16 n bytes per row."""
    gram = KernelGram(Overlap(), torch.linspace(0, 1, n, dtype=torch.float64)[:, None])
    assert EigenPro(sample=3).set_up(gram, 0.1).batch == rows


class Overlap(ntkit.Kernel):
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return torch.exp(-(torch.cdist(x1, x1 if x2 is None else x2) ** 2))

    def diag(self, x: Tensor) -> Tensor:
        return torch.ones_like(x[:, 0])
