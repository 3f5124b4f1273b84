"""Blocks of rows, and mirrored triangles."""

from __future__ import annotations

import pytest
import torch
from tests.cases import normal

from ntkit._src.common import _row_blocks, block_rows, mirror_rows, mirror_upper, row_blocks, split_rows


@pytest.mark.parametrize(("rows", "size"), [(0, 3), (2, 3), (3, 3), (7, 3), (9, 3)])
def test_blocks_cover_every_row_once(rows: int, size: int) -> None:
    covered = [index for block in row_blocks(rows, size) for index in range(rows)[block]]
    assert covered == list(range(rows))
    assert all(block.stop - block.start <= size for block in row_blocks(rows, size))


def test_a_block_is_64_mebibytes_or_64_rows() -> None:
    assert block_rows(2**10, 8) == 2**13
    assert block_rows(2**10, 4) == 2**14
    assert block_rows(10**9, 8) == 64


def test_points_are_split_by_the_size_of_their_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_row_blocks, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(_row_blocks, "_BLOCK_BYTES", 8 * 30)
    x = torch.arange(22.0, dtype=torch.float64).view(11, 2)
    parts = list(split_rows(x, 10))
    assert [len(part) for part in parts] == [3, 3, 3, 2] and torch.equal(torch.cat(parts), x)


@pytest.mark.parametrize("n", [1, 5, 12, 13])
def test_upper_triangle_is_copied_below(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_row_blocks, "_MIRRORED_ROWS", 4)
    matrix = normal(n, n)
    upper = matrix.triu()
    assert mirror_upper(matrix) is matrix
    assert torch.equal(matrix, upper + upper.triu(1).T)


def test_rows_of_a_block() -> None:
    matrix = torch.arange(25.0).view(5, 5)
    expected = matrix.clone()
    mirror_rows(matrix, 1, 3)
    expected[2, 1], expected[3:, 1], expected[3:, 2] = expected[1, 2], expected[1, 3:], expected[2, 3:]
    assert torch.equal(matrix, expected)
