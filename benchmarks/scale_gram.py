"""A vanilla CNTK Gram matrix into a Zarr store, interrupted by SIGKILL and resumed.

    python benchmarks/scale_gram.py [--n 50000] [--depth 4] [--tile 1024] [--kills 2] [--data FILE.npz] [--folder DIR]
        [--store]

The run that is killed and resumed is a process of its own; its peak memory is printed against 2 GB. Afterwards tiles drawn at
random are computed alone, without the store, and compared with what it holds, bit for bit. The peer is the kernel itself on one
tile in memory: its rate says what storing costs. Without ``--data`` (x_train: uint8 images, channels last) pixels are random.
"""

from __future__ import annotations

import argparse
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from history import Table, add_store, publish, started, threads
from scale_common import describe, peak_memory
from torch import Tensor

import ntkit
from ntkit._src.gram import Tile
from ntkit_studies.cntk_cifar import label, network


def images(n: int, data: str | None) -> Tensor:
    """Give n images, shape (n, 3, 32, 32), float32, standardised per channel."""
    if data is None:
        return torch.randn(n, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    with np.load(data) as file:
        raw = file["x_train"][:n]
    if len(raw) < n:
        raise SystemExit(f"{data} has {len(raw)} images, {n} are asked for")
    x = torch.empty(n, 3, 32, 32)
    x.copy_(torch.from_numpy(raw).permute(0, 3, 1, 2)).div_(255)  # in place: the images are most of the memory
    mean, std = x.mean((0, 2, 3), keepdim=True), x.std((0, 2, 3), keepdim=True)
    return x.sub_(mean).div_(std)


def child(options: argparse.Namespace) -> None:
    """Compute what is missing, and tell how far it is."""
    start = time.perf_counter()
    first: list[tuple[int, float]] = []

    def tell(done: int, total: int) -> None:
        now = time.perf_counter()
        first.append((done, now))
        before, began = first[0]
        rate = (done - before) / (now - began) if done > before else 0.0
        print(f"{done} {total} {rate:.6g} {peak_memory()} {now - start:.2f}", flush=True)

    kernel = ntkit.infinite_width(network(options.depth, "flatten", 3, 32)).ntk
    ntkit.gram(kernel, images(options.n, options.data), out=options.out, tile=options.tile, progress=tell)


def killed_and_resumed(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Fill the store in processes that are killed, each at a moment of its own, and in a last one that is not."""
    command = [sys.executable, __file__, "--out", str(path)]
    for name in ("n", "depth", "tile"):
        command += [f"--{name}", str(getattr(options, name))]
    command += ["--data", options.data] if options.data else []
    begun = time.perf_counter()
    moments = [(number + random.Random(number).random()) / options.kills for number in range(options.kills)]
    peak, last, killed = 0, "", []
    for stop in [*moments, None]:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as run:
            assert run.stdout is not None
            for line in run.stdout:
                done, total, _, memory, _ = line.split()
                peak, last = max(peak, int(memory)), line
                if stop is not None and int(done) >= stop * int(total):
                    run.send_signal(signal.SIGKILL)
                    killed.append(f"{100 * int(done) / int(total):.0f} %")
                    print(f"killed at {killed[-1]}", file=sys.stderr, flush=True)
                    break
        if stop is None and run.returncode:
            raise SystemExit("the last run failed")
    return {
        "seconds": time.perf_counter() - begun,
        "killed": killed,
        "memory": peak,
        "rate": float(last.split()[2]),
    }


def computed_alone(options: argparse.Namespace, path: Path) -> dict[str, Any]:
    """Compare tiles drawn at random with those of the kernel itself, and time it."""
    stored = ntkit.open_gram(path)
    kernel, x = ntkit.infinite_width(network(options.depth, "flatten", 3, 32)).ntk, images(options.n, options.data)
    tiles = random.Random(1).sample(list(stored.plan.tiles()), min(options.compare, len(stored.plan)))
    equal, alone = 0, 0.0
    for tile in tiles:
        rows, columns = x[stored.plan.rows(tile)], x[stored.plan.columns(tile)]
        start = time.perf_counter()
        values = kernel(rows) if tile.i == tile.j else kernel(rows, columns)
        alone += time.perf_counter() - start
        equal += torch.equal(values, stored.tile(Tile(tile.i, tile.j)))
    entries = sum(stored.plan.tile_entries(tile) for tile in tiles)
    return {"equal": equal, "tiles": len(tiles), "rate": entries / alone}


def main() -> None:
    """Run, kill, resume, compare."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--depth", type=int, default=4, help="layers with weights, as Arora et al. 2019 count")
    parser.add_argument("--tile", type=int, default=1024)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--compare", type=int, default=10, help="tiles that are computed again")
    parser.add_argument("--data")
    parser.add_argument("--folder", help="where the store goes; a temporary folder if not given")
    parser.add_argument("--out", help=argparse.SUPPRESS)
    add_store(parser)
    options = parser.parse_args()
    if options.out is not None:
        child(options)
        return
    start = started()
    describe()
    with tempfile.TemporaryDirectory() as temporary:
        path = Path(options.folder or temporary) / f"cntk-{options.n}.zarr"
        run = killed_and_resumed(options, path)
        alone = computed_alone(options, path)
    stops = f", killed at {' and '.join(run['killed'])} and resumed" if run["killed"] else ""
    rows = [
        [f"the matrix{stops}", f"{run['seconds'] / 60:.1f} min"],
        ["peak memory of a run (2 GB allowed)", f"{run['memory'] / 1e9:.2f} GB"],
        ["tiles computed alone that equal the store bit for bit", f"{alone['equal']} of {alone['tiles']}"],
        ["entries per second, last run", _power(run["rate"])],
        ["entries per second, the kernel alone on those tiles", _power(alone["rate"])],
    ]
    what = f"The Gram matrix of {options.n:,} images, {label(options.depth, 'flatten')}, into a Zarr store"
    caption = f"{what}, float32, {threads()}, one run."
    publish("scale_gram", [Table(["what", "measured"], rows, caption)], start, options.store)


def _power(value: float) -> str:
    """Write 9.0e5, as the pages do."""
    return f"{value:.1e}".replace("e+0", "e")


if __name__ == "__main__":
    main()
