"""SIGKILL at random moments: what is left is never wrong, and a resumed run ends with the same bytes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

# One process imports once and forks the runs that are killed, which costs milliseconds each.
_SCRIPT = """
import glob, os, random, shutil, signal, sys, time
import torch, zarr, ntkit

os.fsync = lambda handle: None  # against power failures, which this test does not cause, and slow on a busy disk
torch.set_num_threads(1)
folder, seed, kills, tile = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])

class Slow(ntkit.Kernel):
    def __call__(self, x1, x2=None):
        time.sleep(0.001)
        return x1 @ (x1 if x2 is None else x2).T
    def diag(self, x):
        return (x * x).sum(1)
    def fingerprint(self):
        return "linear"

def lines(path):
    journals = [os.path.join(path, "ntkit-tiles.jsonl"), path + ".ntkit-tiles.jsonl"]
    return sum(open(name, "rb").read().count(b"\\n") for name in journals if os.path.exists(name))

x = torch.randint(-9, 10, (60, 3), generator=torch.Generator().manual_seed(seed)).double()  # exact products
random.seed(seed)
for ending in (".zarr", ".npy"):
    path = os.path.join(folder, "killed" + ending)
    dense, killed, resumed = Slow()(x), 0, 0
    while killed < kills or (not resumed and killed < 20 * kills):
        child = os.fork()
        if child == 0:
            ntkit.gram(Slow(), x, out=path, tile=tile)
            os._exit(0)
        # Begin with any moment, that of making the store included; then wait for a few more tiles, however slow the machine is.
        before = lines(path)
        wanted = before + random.randint(1, 15) if killed > 1 else 0
        while lines(path) < wanted and not os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT):
            time.sleep(0.001)
        time.sleep(random.uniform(0.0, 0.01 if wanted else 0.25))
        os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        killed += 1
        try:
            found = ntkit.open_gram(path)
        except ntkit.errors.StoreError:
            continue  # killed before there was a store
        resumed += 0 < len(found.store.missing) < len(found.plan)
        missing = set(found.store.missing)
        for tile_ in found.plan.tiles():
            if tile_ not in missing:
                assert torch.equal(found.tile(tile_), dense[found.plan.rows(tile_), found.plan.columns(tile_)]), tile_
        if not missing:  # the run was too fast for the kill: begin anew
            for name in glob.glob(path + "*"):
                shutil.rmtree(name) if os.path.isdir(name) else os.remove(name)

    whole = ntkit.gram(Slow(), x, out=path, tile=tile)
    assert torch.equal(whole.to_dense(), dense)
    assert resumed > 0, "no run was killed midway"
    alone = ntkit.gram(Slow(), x, out=os.path.join(folder, "alone" + ending), tile=tile)
    print("done", ending, killed, resumed)
"""


def _run(folder: Path, seed: int, kills: int, tile: int) -> None:
    command = [sys.executable, "-c", _SCRIPT, str(folder), str(seed), str(kills), str(tile)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("done") == 2
    assert (folder / "killed.npy").read_bytes() == (folder / "alone.npy").read_bytes()
    assert _chunks(folder / "killed.zarr") == _chunks(folder / "alone.zarr")


def _chunks(path: Path) -> dict[str, bytes]:
    """Give the chunks of a Zarr array; temporary files of killed runs are none."""
    return {
        str(p.relative_to(path)): p.read_bytes() for p in (path / "c").rglob("*") if p.is_file() and "tmp" not in p.name
    }


def test_killed_and_resumed(tmp_path: Path) -> None:
    _run(tmp_path, seed=1, kills=5, tile=4)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
def test_killed_a_hundred_times(seed: int, tmp_path: Path) -> None:
    _run(tmp_path, seed, kills=100, tile=2)
