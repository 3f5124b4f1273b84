from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest
import torch

from ntkit._src.common import SERIAL_ENTRIES, on_threads, serial_product


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
