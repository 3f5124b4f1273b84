"""Threads of experiments that distribute their cells to Python threads."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]

__all__ = ["one_thread_per_operation"]


@contextmanager
def one_thread_per_operation() -> Iterator[None]:
    """Keep torch and BLAS from using their own threads.

    Cells are distributed to Python threads. Threads inside each operation would wait for one another at its end, which
    costs more than the operation itself if another program occupies one of the cores.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        with threadpool_limits(1):
            yield
    finally:
        torch.set_num_threads(before)
