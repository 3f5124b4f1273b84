from __future__ import annotations

import pytest
import torch
from tests.cases import mlp, normal

import ntkit
from ntkit._src.common import _blocks
from ntkit.results import Solution
from ntkit.solvers import Outcome, Status, predict

KERNEL = ntkit.infinite_width(mlp(3, 8, 1)).ntk


@pytest.mark.parametrize("columns", [(), (2,)])
@pytest.mark.parametrize("centres", [None, [4, 1]])
def test_is_the_kernel_times_the_solution_whatever_the_blocks(
    columns: tuple[int, ...], centres: list[int] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_blocks, "_BLOCK_BYTES", 1)  # blocks of the least size, 64
    x, train = normal(150, 3), normal(6, 3, seed=1)
    rows = None if centres is None else torch.tensor(centres)
    value = normal(6 if rows is None else 2, *columns, seed=2)
    found = predict(KERNEL, x, train, Solution(value, Status(Outcome.SOLVED, "Solved."), {}, rows))
    expected = KERNEL(x, train if rows is None else train[rows]) @ value
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
