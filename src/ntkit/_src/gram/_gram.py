"""Gram matrices of any size: in memory, or tile by tile on disk, where an interrupted run is resumed."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Literal, overload

import torch
from torch import Tensor

from ntkit._src.common import Progress, bytes_text, check_batches, check_memory
from ntkit._src.kernels import Kernel, check_kernel
from ntkit._src.native import build_info
from ntkit.errors import InputError, InputTypeError, StoreError

from ._cluster import run
from ._files import free_disk, locked
from ._fingerprint import data_fingerprint, kernel_fingerprint
from ._kinds import NpyStore, ZarrStore
from ._operator import StoredGram
from ._plan import Task, TilePlan, default_tile
from ._store import Manifest, TileStore

if TYPE_CHECKING:
    from distributed import Client

_STORES: dict[str, type[TileStore]] = {".zarr": ZarrStore, ".npy": NpyStore}
_LEAST_TILE, _TILES_PER_THREAD = 64, 4  # of matrices on a cluster
_DTYPES = {torch.float32: "float32", torch.float64: "float64"}


@overload
def gram(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None = None,
    out: None = None,
    tile: int | None = None,
    client: Client | Literal["local"] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor: ...


@overload
def gram(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None = None,
    *,
    out: str | Path,
    tile: int | None = None,
    client: Client | Literal["local"] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    dtype: torch.dtype | None = None,
) -> StoredGram: ...


def gram(
    kernel: Kernel,
    x1: Tensor,
    x2: Tensor | None = None,
    out: str | Path | None = None,
    tile: int | None = None,
    client: Client | Literal["local"] | None = None,
    resume: bool = True,
    progress: Progress | None = None,
    *,
    dtype: torch.dtype | None = None,
) -> Tensor | StoredGram:
    """Compute K(x1, x2), or K(x1, x1) if ``x2`` is None, tile by tile.

    Parameters
    ----------
    kernel : Kernel
        Any kernel. To be stored it needs a fingerprint: ntkit's kernels have one; your own kernel needs a method
        ``fingerprint(self)`` that returns a string, a new one whenever the kernel changes.
    x1, x2 : Tensor of shape (n1, ...) and (n2, ...)
        The inputs, float32 or float64. A tensor over a ``numpy.memmap`` stays on disk.
    out : str or Path, optional
        Where to store the matrix: ``"name.zarr"``, one file per tile, only the upper ones for a symmetric matrix; or
        ``"name.npy"``, both triangles in one file, to be mapped into memory. None (default): a tensor in memory.
    tile : int, optional
        Rows and columns of a tile. None (default): that of the store to be resumed, or else 4096 for vectors, 1024 for images.
    client : distributed.Client or "local", optional
        Compute the tiles on the workers of a Dask cluster; ``"local"`` starts one process per processor on this machine
        for the duration of the call. None (default): in this process, with torch's threads.
    resume : bool, default True
        Compute only the tiles of a store at ``out`` that are missing or damaged. False deletes such a store first.
    progress : callable, optional
        Called with the number of entries done and the total, before the first tile and after each; entries that an earlier
        run has stored count as done. ``print`` works.
    dtype : torch.dtype, optional
        The dtype of stored entries: float32 or float64. None (default): the dtype of the inputs, in which they are computed.

    Returns
    -------
    Tensor of shape (n1, n2), or StoredGram
        The tensor if ``out`` is None, on the inputs' device unless ``client`` is given.

    Raises
    ------
    StoreError
        If ``out`` holds the matrix of other data or another kernel (the message says what differs), cannot be written
        to, or has no space. What was computed is never lost: the same call resumes from it.
    MemoryLimitError
        If a tensor of this size does not fit into memory.

    See Also
    --------
    open_gram : A stored matrix as a linear operator.
    solve : Linear systems with it.

    Notes
    -----
    A tile is written under a temporary name, synced and renamed, and counts once its checksum is in the journal. So a run that is
    killed at any moment leaves no wrong tile behind, and tiles of a resumed run have the bits of an uninterrupted one.

    Examples
    --------
    >>> import tempfile, torch, ntkit
    >>> from torch import nn
    >>> kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))).ntk
    >>> x = torch.randn(100, 3)
    >>> folder = tempfile.TemporaryDirectory()
    >>> stored = ntkit.gram(kernel, x, out=f"{folder.name}/k.npy", tile=64)
    >>> torch.equal(stored.to_dense(), kernel(x))
    True
    >>> torch.allclose(stored @ torch.ones(100), kernel(x).sum(1))
    True
    >>> folder.cleanup()
    """
    check_kernel(kernel)
    check_batches(x1, x2)
    if dtype is not None and dtype not in _DTYPES:
        raise InputTypeError(f"dtype must be torch.float32, torch.float64 or None. Got {dtype!r}.")
    stored = x1.dtype if dtype is None else dtype
    if out is None:
        shape = (len(x1), len(x1 if x2 is None else x2))
        plan = TilePlan(shape, default_tile(x1, tile), x2 is None)
        return _in_memory(Task(kernel, x1, x2, plan, stored), client, progress)
    path = _path(out)
    kind = _STORES[path.suffix]
    store = kind.open(path) if kind.manifest_path(path).exists() else None
    if store is not None and not resume:
        with locked(kind.manifest_path(path)):
            store.remove()
        store = None
    size = default_tile(x1, tile) if store is None or tile is not None else store.manifest.tile
    manifest = _manifest(kernel, x1, x2, size, stored)
    if store is None:
        store = _created(kind, path, manifest)
    elif differences := store.manifest.differences(manifest):
        raise StoreError(
            "\n  ".join([f"{path} is the Gram matrix of something else:", *differences])
            + "\nNothing was changed. Name another path, read what is there with ntkit.open_gram, or delete it with resume=False."
        )
    with locked(kind.manifest_path(path)):
        store.sweep()
        store.forget_damaged()
        missing = store.missing
        if isinstance(store, ZarrStore):  # other stores allocate their space when they are created
            _check_room(path, store.plan, len(missing), manifest.dtype)
        run(Task(kernel, x1, x2, store.plan, stored), missing, store, client, progress)
        store.sweep()  # a lost worker may have left a partial tile
        store.finish()
    return StoredGram(store)


def open_gram(path: str | Path) -> StoredGram:
    """Open a Gram matrix that :func:`gram` stored, as a lazy linear operator.

    Parameters
    ----------
    path : str or Path
        The ``out`` of :func:`gram`.

    Returns
    -------
    StoredGram
        Tiles are read when they are needed. ``gram @ v``, ``gram[rows, columns]``, ``gram.diagonal()``, ``gram.to_dense()``;
        every solver accepts it. A matrix whose computation was interrupted can be opened too; reading a missing tile
        is an error.

    Raises
    ------
    StoreError
        If there is no stored Gram matrix.

    See Also
    --------
    gram : Compute and store one.
    """
    found = _path(path)
    kind = _STORES[found.suffix]
    if not kind.manifest_path(found).exists():
        raise StoreError(
            f"there is no stored Gram matrix at {found}: {kind.manifest_path(found)} does not exist. Make one with "
            "ntkit.gram(kernel, x, out=...)."
        )
    return StoredGram(kind.open(found))


def _in_memory(task: Task, client: Client | Literal["local"] | None, progress: Progress | None) -> Tensor:
    n1, n2 = task.plan.shape
    check_memory(
        n1 * n2 * task.stored.itemsize,
        f"a Gram matrix of {n1} x {n2} {task.stored} entries",
        "Store it on disk: ntkit.gram(..., out='name.zarr'); every solver takes it from there. dtype=torch.float32 halves it.",
    )
    out = torch.empty(n1, n2, dtype=task.stored, device=task.x1.device if client is None else "cpu")
    run(task, list(task.plan.tiles()), out, client, progress)
    return out


def _path(out: str | Path) -> Path:
    if not isinstance(out, (str, Path)):
        raise InputTypeError(f"out must be a path, or None for a tensor in memory. Got {type(out).__name__}.")
    path = Path(out).expanduser()
    if path.suffix not in _STORES:
        raise InputError(
            f"out must end in {' or '.join(_STORES)}, which says how to store the matrix. Got {str(out)!r}."
        )
    return path


def _manifest(kernel: Kernel, x1: Tensor, x2: Tensor | None, tile: int, stored: torch.dtype) -> Manifest:
    return Manifest(
        shape=(len(x1), len(x1 if x2 is None else x2)),
        tile=tile,
        symmetric=x2 is None,
        dtype=str(stored).removeprefix("torch."),
        kernel=kernel_fingerprint(kernel, x1.shape[1:]),
        x1=data_fingerprint(x1),
        x2=None if x2 is None else data_fingerprint(x2),
        library=build_info().version,
    )


def _created(kind: type[TileStore], path: Path, manifest: Manifest) -> TileStore:
    if path.exists():
        raise StoreError(
            f"{path} exists and is not a Gram matrix stored by ntkit ({kind.manifest_path(path).name} is not there). Nothing was "
            "changed: name another path, or remove it yourself."
        )
    plan = TilePlan(manifest.shape, manifest.tile, manifest.symmetric)
    _check_room(path, plan, len(plan), manifest.dtype)
    return kind.create(path, manifest)


def _check_room(path: Path, plan: TilePlan, tiles: int, dtype: str) -> None:
    needed = tiles * min(plan.size**2, plan.shape[0] * plan.shape[1]) * (4 if dtype == "float32" else 8)
    free = free_disk(path)
    if needed > free:
        smaller = "" if dtype == "float32" else " dtype=torch.float32 takes half."
        raise StoreError(
            f"{path} needs {bytes_text(needed)} more on disk, and {bytes_text(free)} are free. Nothing was begun: make room, or "
            f"name a path on another disk.{smaller}"
        )


class ClusterKernel(Kernel):
    """The same kernel, its matrices computed by the workers of a cluster: for whatever only calls ``kernel(x1, x2)``.

    Diagonals are computed in this process. Values are those of the kernel itself, on the CPU. The client is that of
    :func:`ntkit.gram`; ``"local"`` starts processes anew for each matrix.
    """

    def __init__(self, kernel: Kernel, client: Client | Literal["local"]) -> None:
        self.kernel, self.client = kernel, client

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        entries = len(x1) * len(x1 if x2 is None else x2)
        # Enough tiles for every thread, not smaller than what sending one costs.
        tile = max(_LEAST_TILE, math.ceil(math.sqrt(entries / (_TILES_PER_THREAD * self._threads()))))
        return gram(self.kernel, x1, x2, tile=min(tile, default_tile(x1, None)), client=self.client)

    def diag(self, x: Tensor) -> Tensor:
        return self.kernel.diag(x)

    def _threads(self) -> int:
        if isinstance(self.client, str):
            return os.cpu_count() or 1
        workers = self.client.scheduler_info(n_workers=-1)["workers"].values()
        return max(1, sum(int(worker["nthreads"]) for worker in workers))
