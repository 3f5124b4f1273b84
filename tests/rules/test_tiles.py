"""The Gram matrix in tiles: what progress reports."""

import pytest
import torch
from torch import nn

from ntkit.rules import gram
from ntkit.trace import GainRule, Tracer


@pytest.mark.parametrize("budget", [1, 1 << 12, 1 << 30])
@pytest.mark.parametrize("n2", [None, 1, 5])
def test_progress_counts_the_entries(n2, budget):
    program = Tracer(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), GainRule()).program((3,))
    x = torch.randn(7, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    seen: list[tuple[int, int]] = []
    gram(
        program,
        x,
        None if n2 is None else x[:n2],
        ntk=True,
        nngp=True,
        byte_budget=budget,
        progress=lambda done, total: seen.append((done, total)),
    )
    there_are = 7 * 8 // 2 if n2 is None else 7 * n2  # a symmetric matrix is computed on and above its diagonal
    assert {total for _, total in seen} == {there_are}
    assert [done for done, _ in seen] == sorted({done for done, _ in seen})
    assert seen[-1][0] == there_are
