"""Blocks of rows, mirrored triangles, threads, and progress."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from ntkit._src.common import (
    SERIAL_ENTRIES,
    _blocks,
    block_rows,
    mirror_rows,
    mirror_upper,
    on_threads,
    row_blocks,
    serial_product,
    shifted_progress,
    split_rows,
)


def test_part_of_a_larger_task() -> None:
    calls: list[tuple[int, int]] = []
    report = shifted_progress(lambda done, total: calls.append((done, total)), 10, 30)
    report(1)
    report(20)
    assert calls == [(11, 30), (30, 30)]
    shifted_progress(None, 10, 30)(5)  # nobody listens


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
    monkeypatch.setattr(_blocks, "_FEWEST_ROWS", 1)
    monkeypatch.setattr(_blocks, "_BLOCK_BYTES", 8 * 30)
    x = torch.arange(22.0, dtype=torch.float64).view(11, 2)
    parts = list(split_rows(x, 10))
    assert [len(part) for part in parts] == [3, 3, 3, 2] and torch.equal(torch.cat(parts), x)


@pytest.mark.parametrize("n", [1, 5, 12, 13])
def test_upper_triangle_is_copied_below(n: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_blocks, "_MIRRORED_ROWS", 4)
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


@pytest.fixture
def two_threads() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


def where(item: int) -> tuple[int, int, bool]:
    return item, threading.get_ident(), torch.is_grad_enabled()


def test_one_thread_is_this_one() -> None:
    """As for a single item: no thread is started; gradients are off, here too."""
    torch.set_num_threads(1)
    assert on_threads(where, [3, 1, 2]) == [(i, threading.get_ident(), False) for i in (3, 1, 2)]
    assert torch.is_grad_enabled()


@pytest.mark.usefixtures("two_threads")
def test_several_threads_keep_the_order() -> None:
    barrier = threading.Barrier(2, timeout=600)

    def together(item: int) -> tuple[int, int, bool]:
        barrier.wait()  # passes only where two items are computed at a time
        return where(item)

    found = on_threads(together, [5, 4, 3, 2])
    assert [item for item, _, _ in found] == [5, 4, 3, 2]
    assert threading.get_ident() not in {thread for _, thread, _ in found}
    assert not any(enabled for _, _, enabled in found)
    assert on_threads(where, [1]) == [(1, threading.get_ident(), False)]


@pytest.mark.usefixtures("two_threads")
def test_threads_start_no_threads() -> None:
    def inner(item: int) -> bool:
        return all(thread == threading.get_ident() for _, thread, _ in on_threads(where, [1, 2, item]))

    assert on_threads(inner, [1, 2, 3]) == [True] * 3


@pytest.mark.usefixtures("two_threads")
def test_errors_come_through() -> None:
    with pytest.raises(ZeroDivisionError):
        on_threads(lambda item: 1 / item, [1, 0])


def test_serial_product() -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = torch.randn(6, 3, generator=generator), torch.randn(4, 3, generator=generator)
    torch.testing.assert_close(serial_product(a, b), a @ b.T)
    assert SERIAL_ENTRIES < 32768
