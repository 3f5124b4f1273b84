"""Tiles computed locally or on a cluster, and written while the next ones are computed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Literal

from torch import Tensor

from ntkit._src.common import Progress

from ._plan import Task, Tile
from ._store import TileStore

if TYPE_CHECKING:
    from distributed import Client


def run(
    task: Task,
    tiles: Sequence[Tile],
    target: TileStore | Tensor,
    client: Client | Literal["local"] | None,
    progress: Progress | None,
) -> None:
    """Compute tiles and put them into a store, or into a tensor of shape (n1, n2); ``progress`` counts entries."""
    report = _reporter(task, tiles, progress)
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


def _reporter(task: Task, missing: Sequence[Tile], progress: Progress | None) -> Callable[[Tile], None]:
    """Report the entries that an earlier run has stored; return the function that counts each finished tile."""
    if progress is None:
        return lambda tile: None
    total = task.plan.entries
    done = total - sum(map(task.plan.tile_entries, missing))

    def report(tile: Tile) -> None:
        nonlocal done
        done += task.plan.tile_entries(tile)
        progress(done, total)

    progress(done, total)
    return report


def writer(task: Task, target: TileStore | Tensor) -> Callable[[Tile, Tensor], None]:
    """Return the function that puts a tile where it belongs."""
    if isinstance(target, TileStore):
        return lambda tile, values: target.write(tile, values.cpu().numpy())
    return lambda tile, values: task.plan.put(target, task.plan.rows(tile), task.plan.columns(tile), values)
