"""Times the native engine against the reference engine on one map of positions between two convolutions.

    python benchmarks/maps.py [--repeats 1] [--output benchmark-maps.json]

The images are 16 x 16, in float64, read by flatten and by the average over positions. Both engines must agree to 1e-12 of the
largest entry, or the run fails.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table
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


def main() -> int:
    """Time both engines on every map."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmark-maps.json"))
    parser.add_argument("--repeats", type=int, default=1)
    options = parser.parse_args()
    rows = []
    for name, (shape, layer) in maps().items():
        for head in ("flatten", "average"):
            pool = [nn.AdaptiveAvgPool2d(1)] if head == "average" else []
            layers = [nn.Conv2d(3, 4, 3, padding=1), nn.ReLU(), layer, nn.Conv2d(4, 4, 3, padding=1), nn.ReLU()]
            net = nn.Sequential(*layers, *pool, nn.Flatten(), nn.LazyLinear(1)).double()
            generator = torch.Generator().manual_seed(0)
            rows_and_columns = (1, 8) if pool else (8, 16)
            x1, x2 = (torch.rand(n, *shape, generator=generator, dtype=torch.float64) for n in rows_and_columns)
            net(x1)
            kernel = ntkit.infinite_width(net).ntk
            kernel(x1[:1], engine="native")  # plans
            best: dict[str, float] = {}
            values = {}
            for _ in range(options.repeats):
                for engine in ("native", "reference"):
                    start = time.perf_counter()
                    values[engine] = kernel(x1, x2, engine=engine)
                    seconds = (time.perf_counter() - start) / values[engine].numel()
                    best[engine] = min(best.get(engine, float("inf")), seconds)
            error = float((values["native"] - values["reference"]).abs().max() / values["reference"].abs().max())
            assert error < 1e-12, f"{name}, {head}: both engines differ by {error:.1e}"
            rows.append({"case": name, "head": head, **best, "ratio": best["reference"] / best["native"]})
            options.output.write_text(json.dumps({"seconds an entry": rows}, indent=2) + "\n")
    table = Table(title=f"milliseconds an entry of the NTK, float64, best of {options.repeats}")
    for column in ("case", "head", "native", "reference", "ratio"):
        table.add_column(column, justify="left" if column in ("case", "head") else "right")
    for row in rows:
        times = [f"{1e3 * row[engine]:.4g}" for engine in ("native", "reference")]
        table.add_row(row["case"], row["head"], *times, f"{row['ratio']:.1f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
