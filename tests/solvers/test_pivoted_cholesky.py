"""Partial pivoted Cholesky: exact at full rank, near the best approximation before."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from ntkit.gram import DenseGram
from ntkit.solvers import pivoted_cholesky


@pytest.mark.parametrize("pivoting", ["random", "greedy", "uniform"])
def test_full_rank_is_exact(case: Any, pivoting: Any) -> None:
    found = pivoted_cholesky(DenseGram(case.dense), 150, pivoting, torch.Generator().manual_seed(0))
    torch.testing.assert_close(found.factor @ found.factor.T, case.dense, rtol=1e-8, atol=1e-8)
    assert len(found.pivots.unique()) == len(found.pivots) and found.left < 1e-8


@pytest.mark.parametrize("pivoting", ["random", "greedy", "uniform"])
def test_is_the_schur_complement_of_its_pivots(case: Any, pivoting: Any) -> None:
    found = pivoted_cholesky(DenseGram(case.dense), 30, pivoting, torch.Generator().manual_seed(1))
    rows = found.pivots
    inner = torch.linalg.solve(case.dense[rows][:, rows], case.dense[rows])
    torch.testing.assert_close(found.factor @ found.factor.T, case.dense[:, rows] @ inner, rtol=1e-7, atol=1e-7)
    left = (case.dense - found.factor @ found.factor.T).trace() / case.dense.trace()
    assert abs(found.left - float(left)) < 1e-8


def test_random_pivots_are_near_the_best_rank(case: Any) -> None:
    values = torch.linalg.eigvalsh(case.dense).flip(0)
    best = float(values[30:].sum() / values.sum())
    draws = [
        pivoted_cholesky(DenseGram(case.dense), 30, "random", torch.Generator().manual_seed(seed)).left
        for seed in range(20)
    ]
    assert best < sum(draws) / 20 < 3 * best


def test_stops_when_the_matrix_is_used_up() -> None:
    points = torch.randn(40, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    found = pivoted_cholesky(DenseGram(points @ points.T), 20, "random", torch.Generator().manual_seed(0))
    assert found.factor.shape == (40, 5) and found.left < 1e-12
