"""Partial pivoted Cholesky: exact at full rank, near the best approximation before."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from tests.cases import normal

from ntkit._src.gram import DenseGram
from ntkit._src.solvers import pivoted_cholesky
from ntkit._src.solvers._centres import _choose


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
    points = normal(40, 5)
    found = pivoted_cholesky(DenseGram(points @ points.T), 20, "random", torch.Generator().manual_seed(0))
    assert found.factor.shape == (40, 5) and found.left < 1e-12


@pytest.mark.parametrize("pivoting", ["greedy", "random"])
def test_rows_without_remainder_are_not_chosen(pivoting: Any) -> None:
    left, taken = torch.tensor([0.0, 2.0, 0.0, 1.0]).double(), torch.tensor([True, False, True, False])
    assert sorted(_choose(left, taken, 4, pivoting, torch.Generator().manual_seed(0)).tolist()) == [1, 3]
    assert len(_choose(0 * left, taken, 4, pivoting, torch.Generator().manual_seed(0))) == 0
