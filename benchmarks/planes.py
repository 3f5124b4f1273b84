"""Times planes that neighbouring offsets of a pool share: kept until the last one reads them, or computed again for each.

    python benchmarks/planes.py [--store]

The engine keeps them, unless they take too much room (``KEPT_BYTES`` in ``ntkit/native/_tapes.py``): this shows why.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from history import Table, add_store, publish, started
from rich.progress import track
from torch import nn

import ntkit
from ntkit._src.native import NativeEngine
from ntkit._src.native._emitter import TapePlan
from ntkit._src.native._tapes import tape_computing_again
from ntkit._src.native.families import shared_pools

CASES = [(1, 32), (3, 32), (1, 64)]
PAIRS = 2, 16
REPEATS = 3


def network(layers: int) -> nn.Module:
    """Build convolutions, a pool whose planes are shared, and one more convolution."""
    modules: list[nn.Module] = []
    for layer in range(layers):
        modules += [nn.Conv2d(4 if layer else 3, 4, 3, padding=1), nn.ReLU()]
    head = [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)]
    return nn.Sequential(*modules, nn.AvgPool2d(2), nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), *head)


def plans(layers: int, side: int) -> tuple[NativeEngine, list[TapePlan]]:
    """Give an engine, and its plans: everything kept, and everything along the last axis computed again."""
    engine = NativeEngine(ntkit.infinite_width(network(layers)).program((3, side, side)))
    planned = engine.runner().network
    last = {pool: axis for pool, axis in shared_pools(planned).items() if axis == 1}
    return engine, [tape_computing_again(planned, True, again) for again in ({}, last)]


def measure(layers: int, side: int) -> list[str]:
    """Give the row of a network: bytes and seconds of both ways, run alternately."""
    generator = torch.Generator().manual_seed(0)
    x1, x2 = (torch.rand((n, 3, side, side), generator=generator) for n in PAIRS)
    engine, both = plans(layers, side)
    row = [str(layers), str(side), *(f"{plan.kept_bytes / 1e6:.1f}" for plan in both)]
    for threads in (1, 2):
        torch.set_num_threads(threads)
        best = [float("inf")] * 2
        for _ in range(REPEATS):
            for which, plan in enumerate(both):
                engine.runner()._plans["between", True] = plan
                start = time.perf_counter()
                engine.gram(x1, x2, True, False)
                best[which] = min(best[which], time.perf_counter() - start)
        row += [f"{best[0]:.3f}", f"{best[1] / best[0]:.2f}"]
    return row


def main() -> int:
    """Measure both ways and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    before = torch.get_num_threads()
    rows = [measure(*one) for one in track(CASES)]
    torch.set_num_threads(before)
    header = ["layers before the pool", "side", "MB per thread, kept", "computed again", "1 thread: kept, s", "again / kept",
              "2 threads: kept, s", "again / kept"]  # fmt: skip
    caption = (
        f"Seconds for {PAIRS[0]} x {PAIRS[1]} entries of the NTK in float32 with planes kept, and the ratio if those along the "
        f"last axis are computed again, best of {REPEATS}."
    )
    publish("planes", [Table(header, rows, caption)], start, options.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
