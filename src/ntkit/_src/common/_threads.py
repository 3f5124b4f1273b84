"""Distribution of work on tiles to threads."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import numpy as np
import torch
from torch import Tensor

__all__ = ["SERIAL_ENTRIES", "on_threads", "serial_product"]

Item = TypeVar("Item")
Result = TypeVar("Result")

SERIAL_ENTRIES = 30_000
"""torch operations on up to this many entries stay in their thread: below 32768 torch starts no threads of its own."""

_thread = threading.local()
"""Marks our own threads, which start no further ones."""


def on_threads(function: Callable[[Item], Result], items: Sequence[Item]) -> list[Result]:
    """Return the function of each item, without gradients, computed by as many threads as torch would use.

    Each thread takes whole items. Threads inside each operation would wait for one another at its end, often far longer
    than the operation takes if another program occupies one of the cores.
    """
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
