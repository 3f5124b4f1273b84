"""Work in parts: blocks of rows of large matrices, threads that take them, and progress callbacks."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = [
    "SERIAL_ENTRIES",
    "Progress",
    "block_rows",
    "mirror_rows",
    "mirror_upper",
    "on_threads",
    "part_of",
    "row_blocks",
    "serial_product",
    "shifted_progress",
    "split_rows",
]

Progress = Callable[[int, int], None]
"""Called with the number of work units done and their total."""


def part_of(progress: Progress | None, number: int, parts: int) -> Progress | None:
    """Return the callback for part ``number`` (from 0) of several parts with equally many units.

    Examples
    --------
    >>> part_of(lambda done, total: print(done, "of", total), 1, 3)(5, 10)
    15 of 30
    """
    if progress is None:
        return None
    return lambda done, total: progress(number * total + done, parts * total)


def shifted_progress(progress: Progress | None, before: int, total: int) -> Callable[[int], None]:
    """Return the callback for one part of a larger task, of which ``before`` of ``total`` units are done when it starts."""
    if progress is None:
        return lambda done: None
    return lambda done: progress(before + done, total)


_BLOCK_BYTES = 2**26
_FEWEST_ROWS = 64
_MIRRORED_ROWS = 512  # a block and its image fit into the cache


def block_rows(columns: int, itemsize: int) -> int:
    """Return how many rows with this many columns fill a block of 64 MiB, but never fewer than 64."""
    return max(_FEWEST_ROWS, _BLOCK_BYTES // (columns * itemsize))


def row_blocks(rows: int, size: int) -> Iterator[slice]:
    """Yield the slices of 0, ..., rows - 1, each of ``size`` rows except perhaps the last."""
    for start in range(0, rows, size):
        yield slice(start, min(start + size, rows))


def split_rows(x: Tensor, columns: int) -> Iterator[Tensor]:
    """Split points, shape (m, ...), into batches whose kernel with ``columns`` others fills one block."""
    for rows in row_blocks(len(x), block_rows(columns, x.element_size())):
        yield x[rows]


def mirror_upper(matrix: Tensor) -> Tensor:
    """Copy the upper triangle of a square matrix, shape (n, n), below the diagonal, in place, and return the matrix."""
    for rows in row_blocks(len(matrix), _MIRRORED_ROWS):
        mirror_rows(matrix, rows.start, rows.stop)
    return matrix


def mirror_rows(matrix: Tensor, start: int, stop: int) -> None:
    """Make rows and columns ``start`` to ``stop`` symmetric, from what these rows hold right of the diagonal."""
    square = matrix[start:stop, start:stop]
    square.copy_(square.triu() + square.triu(1).mT)
    if stop < matrix.shape[0]:
        matrix[stop:, start:stop] = matrix[start:stop, stop:].mT


Item = TypeVar("Item")
Result = TypeVar("Result")

SERIAL_ENTRIES = 30_000
"""torch operations on up to this many entries stay in their thread: below 32768 torch starts no threads of its own."""

_thread = threading.local()
"""Marks our own threads, which start no further ones."""


def on_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the function of each item, without gradients, computed by as many threads as torch would use."""
    # Each thread takes whole items. Threads inside each operation would wait for one another at its end, often far longer
    # than the operation takes if another program occupies one of the cores.
    if len(items) == 1 or torch.get_num_threads() == 1 or getattr(_thread, "ours", False):
        with torch.no_grad():
            return [function(item) for item in items]

    def compute(item: Item) -> Result:
        with torch.no_grad():  # every thread has its own gradient mode
            return function(item)

    with ThreadPoolExecutor(torch.get_num_threads(), initializer=_mark) as threads:
        return list(threads.map(compute, items))


def serial_product(a: Tensor, b: Tensor) -> Tensor:
    """Return a b^T for two narrow matrices, without the threads of a matrix product."""
    if a.device.type != "cpu":
        return a @ b.T
    return torch.from_numpy(np.einsum("id,jd->ij", a.numpy(), b.numpy()))


def _mark() -> None:
    _thread.ours = True
