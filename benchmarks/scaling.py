"""How the native engine's time grows with the inputs, the side of an image and the convolutions, with fitted exponents.

    python benchmarks/scaling.py [--repeats 3] [--store]

"Work" is the exponent of the number of entries that are computed.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch
from history import Table, add_store, number, publish, started, threads
from rich.progress import track
from torch import nn

import ntkit

HEADS = ("flatten", "average")
SERIES = {
    ("n", "flatten"): [(3, "flatten", 32, n) for n in (400, 800, 1600)],
    ("n", "average"): [(3, "average", 32, n) for n in (16, 32, 64)],
    ("side", "flatten"): [(3, "flatten", side, 200) for side in (32, 64, 128)],
    ("side", "average"): [(3, "average", side, 16) for side in (16, 24, 32, 48)],
    ("convolutions", "flatten"): [(number, "flatten", 32, 400) for number in (3, 6, 12, 24)],
    ("convolutions", "average"): [(number, "average", 32, 16) for number in (3, 6, 12, 24)],
}
"""What grows and the head: the convolutions, head, side and number of images of each Gram matrix."""

WORK = {
    "n": {"flatten": 2, "average": 2},
    "side": {"flatten": 2, "average": 4},
    "convolutions": {"flatten": 1, "average": 1},
}
PLACE = {"convolutions": 0, "side": 2, "n": 3}


def network(convolutions: int, head: str, side: int) -> nn.Module:
    """Give convolutions of 3 x 3 with ReLUs behind them, and the head."""
    layers: list[nn.Module] = []
    for layer in range(convolutions):
        layers += [nn.Conv2d(1 if layer else 3, 1, 3, padding=1, bias=False), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1 if head == "average" else side * side, 1, bias=False))


def seconds(convolutions: int, head: str, side: int, n: int, repeats: int) -> float:
    """Time a Gram matrix of n images; the plan is made before."""
    x = torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))
    kernel = ntkit.infinite_width(network(convolutions, head, side)).ntk
    kernel(x[:1], x[:1], engine="native")
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        kernel(x, engine="native")
        best = min(best, time.perf_counter() - start)
    return best


def growth(what: str, head: str, points: list[tuple[int, str, int, int]], repeats: int) -> list[str]:
    """Give the row of one series."""
    sizes = [int(point[PLACE[what]]) for point in points]
    times = [seconds(*point, repeats) for point in points]
    exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
    fixed = ", ".join(f"{name} {points[0][at]}" for name, at in PLACE.items() if name != what)
    shown = ", ".join(f"{size}: {number(value, 2)}" for size, value in zip(sizes, times, strict=True))
    return [what, head, fixed, shown, f"{exponent:.2f}", str(WORK[what][head])]


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    rows = [growth(what, head, points, options.repeats) for (what, head), points in track(SERIES.items())]
    caption = (
        f"Seconds for a Gram matrix of 3 x 3 convolutions with ReLU, native engine, float32, {threads()}, "
        f"best of {options.repeats}, and the exponent fitted to them."
    )
    header = ["grows", "head", "fixed", "seconds", "exponent", "work"]
    publish("scaling", [Table(header, rows, caption)], start, options.store)


if __name__ == "__main__":
    main()
