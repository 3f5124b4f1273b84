"""Tiles on Dask workers: the bytes of one process, whatever happens to the workers."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from tests.cases import normal
from torch import Tensor, nn

import ntkit
from ntkit.errors import InputTypeError, WorkerError
from ntkit.results import ClusterKernel

pytestmark = pytest.mark.filterwarnings("ignore::ResourceWarning", "ignore:Creating scratch directories")


def _kernel() -> ntkit.Kernel:
    net = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.GELU(), nn.Linear(8, 1))
    return ntkit.infinite_width(net, b_std=0.2).ntk


def _x(n: int = 90) -> Tensor:
    return normal(n, 3)


# Equal bits below: the native engine gives an entry the same bits in every tile and process of one machine.
def _chunks(path: Path) -> dict[str, bytes]:
    return {str(p.relative_to(path)): p.read_bytes() for p in (path / "c").rglob("*") if p.is_file()}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    import dask
    from distributed import Client, LocalCluster
    from distributed.utils import get_mp_context

    # Workers are forked from one process that has imported everything, instead of importing it each.
    with dask.config.set({"distributed.worker.multiprocessing-method": "forkserver"}):
        get_mp_context().set_forkserver_preload(["distributed", "ntkit"])
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=":0") as cluster,
            Client(cluster) as client,
        ):
            yield client


@pytest.mark.slow
def test_a_worker_killed_midway_costs_only_its_tiles(cluster: Any, tmp_path: Path) -> None:
    kernel, x = _kernel(), _x()
    pids = list(cluster.run(os.getpid).values())
    seen: list[int] = []

    def kill(done: int, total: int) -> None:
        seen.append(done)
        if len(seen) == 8:
            os.kill(pids[0], signal.SIGKILL)

    stored = ntkit.gram(kernel, x, out=tmp_path / "killed.zarr", tile=9, client=cluster, progress=kill)
    assert stored.complete and len(seen) == 1 + 55
    alone = ntkit.gram(kernel, x, out=tmp_path / "alone.zarr", tile=9)
    assert _chunks(tmp_path / "killed.zarr") == _chunks(tmp_path / "alone.zarr")
    assert torch.equal(stored.to_dense(), alone.to_dense())
    assert not list((tmp_path / "killed.zarr").glob("ntkit-run-*"))


def test_tiles_come_through_the_client_where_no_store_is_shared(cluster: Any, tmp_path: Path) -> None:
    kernel, x = _kernel(), _x(40)
    dense = ntkit.gram(kernel, x, x[:15] + 1, tile=8, client=cluster)
    assert torch.equal(dense, kernel(x, x[:15] + 1))
    stored = ntkit.gram(kernel, x, out=tmp_path / "k.npy", tile=8, client=cluster)
    assert torch.equal(stored.to_dense(), kernel(x))

    # Workers that do not find the store's word send their tiles back.
    cluster.run(_hide)
    try:
        hidden = ntkit.gram(kernel, x, out=tmp_path / "hidden.zarr", tile=8, client=cluster)
    finally:
        cluster.run(_show)
    ntkit.gram(kernel, x, out=tmp_path / "alone.zarr", tile=8)
    assert _chunks(tmp_path / "hidden.zarr") == _chunks(tmp_path / "alone.zarr") and hidden.complete


def _hide() -> None:
    from ntkit._src.gram import _cluster

    _cluster._sees = lambda path, word: False


def _show() -> None:
    import importlib

    from ntkit._src.gram import _cluster

    importlib.reload(_cluster)


def test_errors_of_a_kernel_reach_the_caller_and_keep_what_is_done(cluster: Any, tmp_path: Path) -> None:
    kernel, x = _kernel(), 1e200 * _x(20)
    with pytest.raises(ntkit.errors.InputError, match="too large"):
        ntkit.gram(kernel, x, tile=8, client=cluster)
    with pytest.raises(InputTypeError, match="distributed.Client, 'local' or None"):
        ntkit.gram(kernel, _x(5), client="remote")  # type: ignore[call-overload]


@pytest.mark.slow
def test_a_cluster_for_the_time_of_the_call() -> None:
    kernel, x = _kernel(), _x(40)
    assert torch.equal(ntkit.gram(kernel, x, tile=8, client="local"), kernel(x))


_WORKER = """
import sys
{setup}
from distributed.cli.dask_worker import main
main(["{address}", "--nthreads", "1", "--no-dashboard", "--no-nanny"])
"""


def _foreign_worker(address: str, setup: str, wrapper: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
    command = [*wrapper, sys.executable, "-c", _WORKER.format(setup=setup, address=address)]
    return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("setup", "message"),
    [
        ("sys.modules['ntkit'] = None", "no ntkit"),
        ("import ntkit._src.native._core as c, ntkit._src.native._build_info as b; "
         "b._core = type('C', (), dict(version=lambda: '0.0.1', simd_level=c.simd_level, compiler=c.compiler, "
         "compiler_version=c.compiler_version))", "ntkit 0.0.1"),
    ],
)  # fmt: skip
def test_workers_without_ntkit_or_with_another_version(setup: str, message: str) -> None:
    from distributed import Client, LocalCluster

    with LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as cluster, Client(cluster) as client:
        with pytest.raises(WorkerError, match="no workers yet"):
            ntkit.gram(_kernel(), _x(10), client=client)
        worker = _foreign_worker(cluster.scheduler_address, setup)
        try:
            client.wait_for_workers(1)
            with pytest.raises(WorkerError, match=message):
                ntkit.gram(_kernel(), _x(10), client=client)
        finally:
            worker.terminate()
            worker.wait()


@pytest.mark.slow
def test_a_worker_that_shares_no_file_system(tmp_path: Path) -> None:
    """The worker lives where another, empty file system hides the store's folder."""
    from distributed import Client, LocalCluster

    wrapper = ("unshare", "--mount", "sh", "-c", f'mount -t tmpfs none "{tmp_path}" && exec "$@"', "sh")
    if subprocess.run([*wrapper, "true"], capture_output=True, check=False).returncode:
        pytest.skip("needs the right to hide a folder from a process")
    kernel, x = _kernel(), _x(40)
    with LocalCluster(n_workers=0, processes=True, dashboard_address=":0") as cluster, Client(cluster) as client:
        worker = _foreign_worker(cluster.scheduler_address, "", wrapper)
        try:
            client.wait_for_workers(1)
            ntkit.gram(kernel, x, out=tmp_path / "k.zarr", tile=8, client=client)
        finally:
            worker.terminate()
            worker.wait()
    ntkit.gram(kernel, x, out=tmp_path / "alone.zarr", tile=8)
    assert _chunks(tmp_path / "k.zarr") == _chunks(tmp_path / "alone.zarr")


def test_a_kernel_whose_matrices_the_workers_compute(cluster: Any) -> None:
    kernel, x = _kernel(), _x(150)
    far = ClusterKernel(kernel, cluster)
    assert torch.equal(far(x), kernel(x)) and torch.equal(far(x, x[:70]), kernel(x, x[:70]))
    assert torch.equal(far.diag(x), kernel.diag(x))
