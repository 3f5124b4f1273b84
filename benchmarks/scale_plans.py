"""What larger problems would take: rates of one core, measured in processor time, and the plans that follow from them.

    python benchmarks/scale_plans.py [--repeats 5] [--store]

One thread, so that a rate holds per core; processor time, so that other programs matter little. A plan divides what a problem
needs by these rates: it is an extrapolation, not a measurement.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from history import Table, add_store, publish, started
from rich.progress import track
from scale_common import relu_network
from torch import Tensor

import ntkit
from ntkit_studies.cntk_cifar import label, network

FEATURES, CENTRES, BLOCK = 50, 2000, 4096
SIDE = 32
DEPTH = 4  # layers with weights, as Arora et al. 2019 count: three convolutions and the linear layer
CONVOLUTIONS = 11  # of the deep pooled network
CIFAR_ENTRIES = 50_000 * 50_001 / 2 + 10_000 * 50_000  # one triangle, and the test images


@dataclass(frozen=True)
class Rates:
    """What one core does in a second.

    Attributes
    ----------
    dense
        Entries of the NTK of three hidden layers on 50 features, float32.
    flat
        Entries of the NTK of three convolutions without pooling on 32x32x3, float32.
    pooled
        Entries x layers of convolutions under global pooling, float32.
    product, triangular, factor
        Operations: float64 products of blocks of rows with themselves, float64 triangular solves for a block of rows, float32
        Cholesky factorisation.
    """

    dense: float
    flat: float
    pooled: float
    product: float
    triangular: float
    factor: float


def rate(work: float, call: Callable[[], object], repeats: int) -> float:
    """Give the work done per second of processor time, the best of some calls after one that counts for nothing."""
    call()
    best = float("inf")
    for _ in range(repeats):
        start = time.process_time()
        call()
        best = min(best, time.process_time() - start)
    return work / best


def measure(repeats: int) -> Rates:
    """Measure every rate."""
    draws = torch.Generator().manual_seed(0)

    def normal(*shape: int, dtype: torch.dtype = torch.float32) -> Tensor:
        return torch.randn(*shape, dtype=dtype, generator=draws)

    x, centres = normal(BLOCK, FEATURES), normal(CENTRES, FEATURES)
    images, few = normal(256, 3, SIDE, SIDE), normal(16, 3, SIDE, SIDE)
    block = normal(CENTRES, BLOCK, dtype=torch.float64)
    factor = normal(CENTRES, CENTRES, dtype=torch.float64).tril() + 100 * torch.eye(CENTRES, dtype=torch.float64)
    wide = normal(BLOCK, BLOCK)
    positive = wide @ wide.T / BLOCK + torch.eye(BLOCK)
    dense, flat, pooled = (
        ntkit.infinite_width(net).ntk
        for net in (relu_network(FEATURES), network(DEPTH, "flatten", 3, SIDE), network(DEPTH, "average", 3, SIDE))
    )
    calls: dict[str, tuple[float, Callable[[], object]]] = {
        "dense": (BLOCK * CENTRES, lambda: dense(x, centres, engine="native")),
        "flat": (128 * 128, lambda: flat(images[:128], images[128:], engine="native")),
        "pooled": ((DEPTH - 1) * SIDE**4 * 4 * 16, lambda: pooled(few[:4], few, engine="native")),
        "product": (2 * BLOCK * CENTRES**2, lambda: block @ block.T),
        "triangular": (BLOCK * CENTRES**2, lambda: torch.linalg.solve_triangular(factor, block, upper=False)),
        "factor": (BLOCK**3 / 3, lambda: torch.linalg.cholesky(positive)),
    }
    return Rates(**{name: rate(work, call, repeats) for name, (work, call) in track(calls.items())})


def rate_table(rates: Rates) -> Table:
    """Show the rates."""
    found = {
        f"entries of the NTK, three hidden ReLU layers, {FEATURES} features, float32": rates.dense,
        "entries of the NTK, 3 x (conv, ReLU), flatten, 32x32x3, float32": rates.flat,
        "entries x layers of 3 x (conv, ReLU), average pooling, 32x32x3, float32": rates.pooled,
        "operations of float64 matrix products": rates.product,
        "operations of float64 triangular solves": rates.triangular,
        "operations of a float32 Cholesky factorisation": rates.factor,
    }
    caption = "Rates of one core per second of processor time."
    return Table(["what", "per second"], [[what, _short(value)] for what, value in found.items()], caption)


def plan_table(rates: Rates) -> Table:
    """Divide what large problems need by the rates."""
    n = 1e8
    kernel = n * CENTRES / rates.dense
    solves, products = n * CENTRES**2 / rates.triangular, n * CENTRES**2 / rates.product  # half of 2 n M^2, by symmetry
    pooled = CIFAR_ENTRIES * CONVOLUTIONS * SIDE**4 / rates.pooled
    tile = 256**2 * CONVOLUTIONS * SIDE**4 / rates.pooled
    rows = [
        [f"10^8 rows, {CENTRES:,} centres", "kernel", kernel],
        ["", "triangular solves, n M^2 operations", solves],
        ["", "products, half of 2 n M^2 operations", products],
        ["", "whole", kernel + solves + products],
        [
            f"all of CIFAR-10, {label(DEPTH, 'flatten')}",
            "kernel, training triangle and test block",
            CIFAR_ENTRIES / rates.flat,
        ],
        ["", "factorisation, n^3 / 3 operations", 50_000**3 / 3 / rates.factor],
        [f"all of CIFAR-10, pooled CNTK of {CONVOLUTIONS} convolutions", "kernel", pooled],
        ["", "one tile of 256 x 256", tile],
    ]
    shown = [[problem, part, _short(seconds / 3600)] for problem, part, seconds in rows]
    caption = "Plans: core hours that follow from these rates."
    return Table(["problem", "part", "core hours"], shown, caption)


def _short(value: float) -> str:
    """Write two digits, and large numbers as 9e5, as the pages do."""
    return f"{value:.2g}".replace("e+0", "e").replace("e+", "e")


def main() -> None:
    """Measure, divide, print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=5)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    torch.set_num_threads(1)
    rates = measure(options.repeats)
    publish("scale_plans", [rate_table(rates), plan_table(rates)], start, options.store)


if __name__ == "__main__":
    main()
