"""How the native engine's time grows with the number of inputs, the side of an image and the depth, with fitted exponents.

python benchmarks/scaling.py --output scaling.json
"""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn

import ntkit

HEADS = ("flatten", "average")


def network(depth: int, head: str, side: int) -> nn.Module:
    """Give convolutions of 3 x 3 with ReLUs behind them, and the head."""
    layers: list[nn.Module] = []
    for number in range(depth):
        layers += [nn.Conv2d(1 if number else 3, 1, 3, padding=1, bias=False), nn.ReLU()]
    layers += [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(1 if head == "average" else side * side, 1, bias=False))


def seconds(depth: int, head: str, side: int, n: int, repeats: int) -> float:
    """Time a Gram matrix of n images; the plan is made before."""
    x = torch.rand(n, 3, side, side, generator=torch.Generator().manual_seed(0))
    kernel = ntkit.infinite_width(network(depth, head, side)).ntk
    kernel(x[:1], x[:1], engine="native")
    best = float("inf")
    for _ in range(repeats):
        start = time.perf_counter()
        kernel(x, engine="native")
        best = min(best, time.perf_counter() - start)
    return best


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("scaling.json"))
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    series = {
        ("n", "flatten"): [(3, "flatten", 32, n) for n in (400, 800, 1600)],
        ("n", "average"): [(3, "average", 32, n) for n in (16, 32, 64)],
        ("side", "flatten"): [(3, "flatten", side, 200) for side in (32, 64, 128)],
        ("side", "average"): [(3, "average", side, 16) for side in (16, 24, 32, 48)],
        ("depth", "flatten"): [(depth, "flatten", 32, 400) for depth in (3, 6, 12, 24)],
        ("depth", "average"): [(depth, "average", 32, 16) for depth in (3, 6, 12, 24)],
    }
    place = {"depth": 0, "side": 2, "n": 3}
    table = Table(
        title=f"seconds of a Gram matrix in float32, {torch.get_num_threads()} threads, best of {options.repeats}"
    )
    for column in ("grows", "head", "fixed", "times", "exponent"):
        table.add_column(column)
    results = []
    for (what, head), points in track(series.items()):
        sizes = [point[place[what]] for point in points]
        times = [seconds(*point, options.repeats) for point in points]
        exponent = float(np.polyfit(np.log(sizes), np.log(times), 1)[0])
        fixed = {name: points[0][at] for name, at in place.items() if name != what}
        results.append(
            {"grows": what, "head": head, "fixed": fixed, "sizes": sizes, "seconds": times, "exponent": exponent}
        )
        shown = ", ".join(f"{size}: {value:.3g}" for size, value in zip(sizes, times, strict=True))
        table.add_row(what, head, ", ".join(f"{k} {v}" for k, v in fixed.items()), shown, f"{exponent:.2f}")
    Console().print(table)
    options.output.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
