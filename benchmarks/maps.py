"""Times the native engine against the reference engine on one map of positions between two convolutions.

    python benchmarks/maps.py [--repeats 1] [--store]

The images are 16 x 16, in float64, read by flatten and by the average over positions. Both engines must agree to 1e-12 of the
largest entry, or the run fails.
"""

from __future__ import annotations

import argparse
import sys
import time

import torch
from history import Table, add_store, number, publish, started, threads
from rich.progress import track
from torch import Tensor, nn

import ntkit


class Frozen(nn.Module):
    """A fixed matrix along the rows of an image."""

    def __init__(self, matrix: Tensor) -> None:
        super().__init__()
        self.register_buffer("matrix", matrix)

    def forward(self, x: Tensor) -> Tensor:
        """Multiply from the left."""
        return torch.matmul(self.matrix, x)


class Flip(nn.Module):
    """Rows and columns in reverse."""

    def forward(self, x: Tensor) -> Tensor:
        """Turn the image around."""
        return x.flip(2, 3)


class Residual(nn.Module):
    """The input plus a branch."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        """Add."""
        return x + self.branch(x)


def maps() -> dict[str, tuple[tuple[int, ...], nn.Module]]:
    """Return the shape of the images and the map, for each case."""
    square, row = (3, 16, 16), (3, 1, 64)
    generator = torch.Generator().manual_seed(1)
    return {
        "residual sum, rows of one": (row, Residual(nn.Conv2d(4, 4, 3, padding=1))),
        "nearest x 2": (square, nn.Upsample(scale_factor=2)),
        "flip": (square, Flip()),
        "reflection 1": (square, nn.ReflectionPad2d(1)),
        "replication 1": (square, nn.ReplicationPad2d(1)),
        "circular 1": (square, nn.CircularPad2d(1)),
        "transposed 2 / 2": (square, nn.Sequential(nn.ConvTranspose2d(4, 4, 2, 2), nn.ReLU())),
        "transposed 3 / 2": (square, nn.Sequential(nn.ConvTranspose2d(4, 4, 3, 2, 1, 1), nn.ReLU())),
        "bilinear x 2": (square, nn.Upsample(scale_factor=2, mode="bilinear")),
        "bicubic x 2": (square, nn.Upsample(scale_factor=2, mode="bicubic")),
        "uneven average to 7": (square, nn.AdaptiveAvgPool2d(7)),
        "matrix 16 x 16": (square, Frozen(torch.rand(16, 16, generator=generator, dtype=torch.float64))),
    }


def measure(name: str, head: str, shape: tuple[int, ...], layer: nn.Module, repeats: int) -> list[str]:
    """Give the row of a map: the best milliseconds an entry of both engines, called alternately, and their ratio."""
    pool = [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
    layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), layer, nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()]
    net = nn.Sequential(*layers, *pool, nn.Flatten(), nn.LazyLinear(1)).double()
    generator = torch.Generator().manual_seed(0)
    rows_and_columns = (1, 8) if pool else (8, 16)
    x1, x2 = (torch.rand(n, *shape, generator=generator, dtype=torch.float64) for n in rows_and_columns)
    net(x1)
    kernel = ntkit.infinite_width(net).ntk
    kernel(x1[:1], engine="native")  # plans
    best = {"native": float("inf"), "reference": float("inf")}
    values = {}
    for _ in range(repeats):
        for engine in best:
            start = time.perf_counter()
            values[engine] = kernel(x1, x2, engine=engine)
            best[engine] = min(best[engine], (time.perf_counter() - start) / values[engine].numel())
    error = float((values["native"] - values["reference"]).abs().max() / values["reference"].abs().max())
    assert error < 1e-12, f"{name}, {head}: both engines differ by {error:.1e}"
    times = [number(1e3 * seconds) for seconds in best.values()]
    return [name, head, *times, number(best["reference"] / best["native"])]


def main() -> int:
    """Time both engines on every map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=1)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    cases = [(name, head, *found) for name, found in maps().items() for head in ("flatten", "average")]
    rows = [measure(*case, options.repeats) for case in track(cases)]
    caption = (
        "Milliseconds for one entry of the NTK of conv, ReLU, map, conv, ReLU on images of 16x16 (rows of one: 1x64), "
        f"float64, {threads()}, best of {options.repeats}."
    )
    publish("maps", [Table(["map", "head", "native", "reference", "ratio"], rows, caption)], start, options.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
