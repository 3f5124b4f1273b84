"""Factorisation in the memory of the matrix, against the dense inverse in float64."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from ntkit._src.solvers import _cholesky, factorize_in_place


def problem(n: int, dtype: torch.dtype = torch.float64) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(n)
    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    square = root @ root.T / n
    return ((square + square.T) / 2 + 0.1 * torch.eye(n, dtype=torch.float64)).to(dtype), torch.randn(
        n, 2, generator=generator
    ).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n", "block"), [(1, 4), (9, 4), (12, 4), (13, 1024)])
@pytest.mark.parametrize("ridge", [0.0, 0.5])
def test_solution_and_diagonal_of_the_inverse(
    n: int, block: int, ridge: float, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_cholesky, "_BLOCK_ROWS", block)
    gram, y = problem(n, dtype)
    whole = gram.double() + ridge * gram.double().trace() / n * torch.eye(n, dtype=torch.float64)
    memory = gram.clone()
    factor = factorize_in_place(memory, ridge)
    assert factor is not None and factor.memory.data_ptr() == memory.data_ptr()
    value, residual = factor.solve(y)
    tolerance = 1e-10 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(value.double(), torch.linalg.solve(whole, y.double()), rtol=tolerance, atol=tolerance)
    assert residual < (1e-13 if dtype == torch.float64 else 1e-6)
    found = factor.inverse_diagonal().double()
    torch.testing.assert_close(found, torch.linalg.inv(whole).diagonal(), rtol=tolerance, atol=tolerance)
    assert torch.equal(factor.restore(), gram) and torch.equal(memory, gram)


def test_singular_matrices_are_left_as_they_were() -> None:
    gram, _ = problem(8)
    gram[5], gram[:, 5] = gram[2], gram[:, 2]
    gram[5, 5] = gram[2, 2]
    memory = gram.clone()
    assert factorize_in_place(memory, 0.0) is None
    assert torch.equal(memory, gram)
    assert factorize_in_place(memory, 0.1) is not None
