"""Tiles computed here, written while the next ones are computed, or by the workers of a Dask cluster."""

from __future__ import annotations

import contextlib
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import torch
from torch import Tensor

from ntkit._src.common import Progress
from ntkit._src.native import build_info
from ntkit.errors import InputTypeError, MissingDependencyError, NtkitError, WorkerError

from ._files import plain_errors
from ._kinds import ZarrStore, write_chunk
from ._plan import Task, Tile
from ._store import TileStore, checksum

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


_AHEAD = 3  # tiles that each thread of the cluster is computing or has queued
_ATTEMPTS = 5  # at one tile, before lost workers are blamed on the tile


def run_on_cluster(
    task: Task,
    tiles: Sequence[Tile],
    target: TileStore | Tensor,
    client: Client | Literal["local"],
    report: Callable[[Tile], None],
) -> None:
    """Compute tiles on a cluster and put them into a store, or into a tensor of shape (n1, n2)."""
    # A worker that sees the store writes its tiles there itself; otherwise it sends them back. Losing a worker costs the tiles
    # that it was computing.
    put = writer(task, target)
    with _connected(client) as connection:
        _check_workers(connection)
        with _token(target) as place:
            for tile, result in _results(connection, task, tiles, place):
                if isinstance(result, int):
                    assert isinstance(target, TileStore)
                    target.record(tile, result)
                else:
                    put(tile, torch.from_numpy(result))
                report(tile)


def _results(
    client: Client, task: Task, tiles: Sequence[Tile], place: tuple[str, str] | None
) -> Iterator[tuple[Tile, Any]]:
    """Yield tiles as they are done, each with its checksum if a worker has stored it, otherwise with its values."""
    from distributed import as_completed
    from distributed.client import FutureCancelledError
    from distributed.scheduler import KilledWorker

    waiting = list(reversed(tiles))
    failures: dict[Tile, int] = {}
    data = client.scatter(task, broadcast=True, hash=False)
    running: dict[Any, Tile] = {}
    done = as_completed()

    def submit() -> None:
        threads = sum(worker["nthreads"] for worker in client.scheduler_info(n_workers=-1)["workers"].values())
        while waiting and len(running) < _AHEAD * max(threads, 1):
            tile = waiting.pop()
            future = client.submit(_tile, data, tile, place, build_info().version, pure=False)
            running[future] = tile
            done.add(future)

    submit()
    for future in done:
        tile = running.pop(future)
        try:
            yield tile, future.result()
        except NtkitError:
            raise
        except (FutureCancelledError, KilledWorker, OSError) as error:
            failures[tile] = failures.get(tile, 0) + 1
            if failures[tile] >= _ATTEMPTS:
                raise WorkerError(
                    f"tile ({tile.i}, {tile.j}) was lost with its worker {failures[tile]} times ({error}). Do workers run out of "
                    "memory? A smaller tile= takes less. What was computed is kept."
                ) from error
            waiting.append(tile)
            if isinstance(error, FutureCancelledError):  # the data were lost with the last worker that had them
                data = client.scatter(task, broadcast=True, hash=False)
        future.release()
        submit()


def _tile(task: Task, tile: Tile, place: tuple[str, str] | None, version: str) -> Any:
    """Run on a worker: compute one tile and store it, or return it."""
    if build_info().version != version:  # a worker that joined later
        raise WorkerError(f"a worker has ntkit {build_info().version}, the client {version}. Install the same on both.")
    # A worker runs as many tiles at a time as it has threads, so each tile uses one thread.
    threads = torch.get_num_threads()
    if threads != 1:
        torch.set_num_threads(1)
    values = task.compute(tile).cpu().numpy()
    if place is not None and _sees(*place):
        path = Path(place[0])
        with plain_errors(path, "writing to"):
            write_chunk(path, tile, task.plan.size, values)
        return checksum(values)
    return values


@contextlib.contextmanager
def _token(target: TileStore | Tensor) -> Iterator[tuple[str, str] | None]:
    """Put a token into the store, by which a worker recognises that it sees the same store."""
    if not isinstance(target, ZarrStore):
        yield None
        return
    word = uuid.uuid4().hex
    file = target.path / f"ntkit-run-{word}"
    with plain_errors(target.path, "writing to"):
        file.write_text(word)
    try:
        yield str(target.path.absolute()), word
    finally:
        file.unlink(missing_ok=True)


def _sees(path: str, word: str) -> bool:
    return (Path(path) / f"ntkit-run-{word}").exists()


@contextlib.contextmanager
def _connected(client: Client | Literal["local"]) -> Iterator[Client]:
    try:
        from distributed import Client, LocalCluster
    except ImportError as error:
        raise MissingDependencyError(
            "client= needs the package distributed: write pip install 'ntkit[scale]', or leave client out."
        ) from error
    if isinstance(client, Client):
        yield client
    elif client == "local":
        workers = torch.get_num_threads()
        with (
            LocalCluster(n_workers=workers, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
            Client(cluster) as own,
        ):
            yield own
    else:
        raise InputTypeError(f"client must be a distributed.Client, 'local' or None. Got {client!r}.")


def _check_workers(client: Client) -> None:
    """Refuse workers without ntkit, or with another version."""
    found = client.run(_version, on_error="return")
    if not found:
        raise WorkerError("the cluster has no workers yet. Start some, and wait: client.wait_for_workers(1).")
    mine = build_info().version
    for worker, version in found.items():
        if version != mine:
            reason = "no ntkit" if isinstance(version, BaseException) else f"ntkit {version}"
            raise WorkerError(
                f"worker {worker} has {reason}, and the client has {mine}: write pip install ntkit=={mine} there. Workers need "
                "ntkit and nothing else."
            )


def _version() -> str:
    return build_info().version
