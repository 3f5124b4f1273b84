"""Tiles computed locally or on a cluster, and written while the next ones are computed."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Literal

import torch
from numpy.typing import NDArray
from torch import Tensor

from ._plan import Tile, TilePlan
from ._progress import GramProgress, OnProgress
from ._store import TileStore
from ._task import Task

if TYPE_CHECKING:
    from distributed import Client

__all__ = ["Reporter", "run"]


class Reporter:
    """Reports the progress of a run to a callback: once before it begins, and after each tile."""

    def __init__(self, progress: OnProgress | None, plan: TilePlan, missing: Sequence[Tile], itemsize: int) -> None:
        self._progress, self._plan = progress, plan
        self._total = plan.entries
        self._before = self._total - sum(map(plan.tile_entries, missing))
        self._computed = 0
        self._start = time.perf_counter()
        self._stored = itemsize * self._total
        self._tell()

    def __call__(self, tile: Tile) -> None:
        """Count a finished tile."""
        self._computed += self._plan.tile_entries(tile)
        self._tell()

    def _tell(self) -> None:
        if self._progress is not None:
            seconds = time.perf_counter() - self._start
            done = self._before + self._computed
            self._progress(GramProgress(done, self._total, self._computed, seconds, self._stored))


def run(
    task: Task,
    tiles: Sequence[Tile],
    target: TileStore | Tensor,
    client: Client | Literal["local"] | None,
    report: Reporter,
) -> None:
    """Compute tiles and put them into a store, or into a tensor of shape (n1, n2)."""
    if client is not None and tiles:
        from ._cluster import run_on_cluster

        run_on_cluster(task, tiles, target, client, report)
        return
    put = writer(task, target)
    with ThreadPoolExecutor(1) as thread:
        writing: Future[None] | None = None
        for number, tile in enumerate(tiles):
            values = task.compute(tile)
            if writing is not None:
                writing.result()
                report(tiles[number - 1])
            writing = thread.submit(put, tile, values)
        if writing is not None:
            writing.result()
            report(tiles[-1])


def writer(task: Task, target: TileStore | Tensor) -> Callable[[Tile, Tensor], None]:
    """Return the function that puts a tile where it belongs."""
    if isinstance(target, TileStore):
        return lambda tile, values: target.write(tile, as_array(values))

    def put(tile: Tile, values: Tensor) -> None:
        rows, columns = task.plan.rows(tile), task.plan.columns(tile)
        target[rows, columns] = values
        if task.plan.symmetric:
            target[columns, rows] = values.T

    return put


def as_array(values: Tensor) -> NDArray[Any]:
    """Return a tile as an array of the tile's shape."""
    return torch.Tensor.numpy(values.cpu())
