from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.common import _row_blocks
from ntkit._src.solvers import Outcome, Solution, predict
from ntkit._src.solvers._method import Status

KERNEL = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))).ntk


def draw(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("centres", [None, [4, 1]])
def test_is_the_kernel_times_the_solution_whatever_the_blocks(
    columns: tuple[int, ...], centres: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_row_blocks, "_BLOCK_BYTES", 1)  # blocks of the least size, 64
    x, train = draw(150, 3), draw(6, 3, seed=1)
    rows = None if centres is None else torch.tensor(centres)
    value = draw(6 if rows is None else 2, *columns, seed=2)
    found = predict(KERNEL, x, train, Solution(value, Status(Outcome.SOLVED, "Solved."), {}, rows))
    expected = KERNEL(x, train if rows is None else train[rows]) @ value
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
