from __future__ import annotations

import pytest
import torch

from ntkit._src.common import _mirror, mirror_rows, mirror_upper


@pytest.mark.parametrize("n", [1, 5, 12, 13])
def test_upper_triangle_is_copied_below(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_mirror, "_BLOCK_ROWS", 4)
    matrix = torch.randn(n, n, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    upper = matrix.triu()
    assert mirror_upper(matrix) is matrix
    assert torch.equal(matrix, upper + upper.triu(1).T)


def test_rows_of_a_block() -> None:
    matrix = torch.arange(25.0).view(5, 5)
    expected = matrix.clone()
    mirror_rows(matrix, 1, 3)
    expected[2, 1], expected[3:, 1], expected[3:, 2] = expected[1, 2], expected[1, 3:], expected[2, 3:]
    assert torch.equal(matrix, expected)
