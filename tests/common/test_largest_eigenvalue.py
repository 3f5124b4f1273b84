from __future__ import annotations

import pytest
import torch

from ntkit._src.common import largest_eigenvalue


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("n", [1, 2, 3, 40])
def test_is_that_of_the_dense_matrix(n: int, dtype: torch.dtype) -> None:
    root = torch.randn(n, n, generator=torch.Generator().manual_seed(n), dtype=torch.float64)
    matrix = root @ root.T
    found = largest_eigenvalue(lambda vector: matrix.to(dtype) @ vector, n, matrix.to(dtype))
    expected = torch.linalg.eigvalsh(matrix)[-1].item()
    assert found == pytest.approx(expected, rel=1e-9 if dtype == torch.float64 else 1e-5)
