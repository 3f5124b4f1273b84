"""Times an encoder-decoder and a graph network against neural-tangents: the same inputs, alternately, best of several.

    python benchmarks/maps.py [--peer .venv-peer/bin/python] [--repeats 3] [--output benchmark-maps.json]
    python benchmarks/maps.py --engines [--repeats 1] [--output benchmark-maps.json]

The engine is the one that ``engine="auto"`` takes, in float64. Both sides must agree to 1e-10 of the largest entry, or the run
fails. Without the peer's environment its columns stay empty.

With ``--engines`` it times the native engine against the reference engine instead: one map of positions between two convolutions
of 16 x 16 images, read by flatten and by the average over positions. Both must agree to 1e-12 of the largest entry.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import ntkit


class Graph(nn.Module):
    """Nodes with features and adjacency side by side, (n, nodes, features + nodes); the mean over nodes is read."""

    def __init__(self, features: int, width: int = 4) -> None:
        super().__init__()
        self.features = features
        self.first, self.second = nn.Linear(features, width, bias=False), nn.Linear(width, width, bias=False)
        self.last = nn.Linear(width, 1, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Aggregate over neighbours and transform, twice."""
        h, adjacency = x[..., : self.features], x[..., self.features :]
        h = F.relu(self.first(torch.bmm(adjacency, h)))
        h = F.relu(self.second(torch.bmm(adjacency, h)))
        return self.last(h.mean(1))


def encoder_decoder(side: int) -> nn.Module:
    """Two levels of average pooling, two of nearest up-sampling."""

    def conv(channels: int) -> list[nn.Module]:
        return [nn.Conv2d(channels, 4, 3, padding=1, bias=False), nn.ReLU()]

    pool, up = nn.AvgPool2d(2), nn.Upsample(scale_factor=2)
    layers = [*conv(3), pool, *conv(4), pool, *conv(4), up, *conv(4), up, *conv(4)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(4 * side * side, 1, bias=False))


def timed(call: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Give the seconds of the faster of two calls, and the value."""
    seconds = []
    for _ in range(2):
        start = time.perf_counter()
        value = call()
        seconds.append(time.perf_counter() - start)
    return min(seconds), value


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
    """Give the shape of the images and the map, for each case of ``--engines``."""
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


def engines(options: argparse.Namespace) -> int:
    """Time both engines on every map."""
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


class Peer:
    """neural-tangents in its own process."""

    def __init__(self, python: str) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        script = Path(__file__).with_name("maps_peer.py")
        self.process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
        )

    def timed(self, name: str, file: str) -> tuple[float, Tensor]:
        """Give the seconds of the faster of two calls after the first, and the value."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps({"name": name, "file": file}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with status {self.process.wait()} at {name!r}")
        answer = json.loads(line)
        return answer["seconds"], torch.tensor(answer["value"], dtype=torch.float64)


def main() -> int:
    """Run both networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmark-maps.json"))
    parser.add_argument("--engines", action="store_true", help="time the native engine against the reference engine")
    parser.add_argument("--peer", help="the Python of an environment with neural-tangents")
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    if options.engines:
        return engines(options)
    peer = Peer(options.peer) if options.peer and Path(options.peer).exists() else None
    if peer is None:
        print("neural-tangents is not there (make peer installs it): its columns stay empty.", file=sys.stderr)
    generator = torch.Generator().manual_seed(0)
    images = torch.rand(12, 3, 16, 16, generator=generator, dtype=torch.float64)
    nodes = torch.rand(40, 20, 16 + 20, generator=generator, dtype=torch.float64)
    cases = {"encoder-decoder": (encoder_decoder(16), images), "graph": (Graph(16), nodes)}
    rows = []
    for name, (module, x) in cases.items():
        limit = ntkit.infinite_width(module)
        x1, x2 = x[: len(x) // 2], x[len(x) // 2 :]
        entries = len(x1) * len(x2)
        best: dict[str, float] = {}
        with tempfile.TemporaryDirectory() as folder:
            file = str(Path(folder) / "inputs.npz")
            np.savez(file, x1=x1.numpy(), x2=x2.numpy())
            for _ in range(options.repeats):
                seconds, ours = timed(lambda kernel=limit.ntk, a=x1, b=x2: kernel(a, b))
                best["ntkit"] = min(best.get("ntkit", float("inf")), seconds / entries)
                if peer is not None:
                    seconds, theirs = peer.timed(name, file)
                    best["neural-tangents"] = min(best.get("neural-tangents", float("inf")), seconds / entries)
                    error = float((ours - theirs).abs().max() / theirs.abs().max())
                    assert error < 1e-10, f"{name}: both sides differ by {error:.1e}"
        ratio = best["neural-tangents"] / best["ntkit"] if peer is not None else None
        rows.append({"case": name, "engine": limit.explain(x.shape[1:]).rows[0].engine, **best, "ratio": ratio})
        options.output.write_text(json.dumps({"seconds an entry": rows}, indent=2) + "\n")
    table = Table(title=f"milliseconds an entry of the NTK, float64, best of {options.repeats}")
    for column in ("case", "engine", "ntkit", "neural-tangents", "ratio"):
        table.add_column(column, justify="left" if column in ("case", "engine") else "right")
    for row in rows:
        times = [f"{1e3 * row[side]:.4g}" if side in row else "-" for side in ("ntkit", "neural-tangents")]
        table.add_row(row["case"], row["engine"], *times, "-" if row["ratio"] is None else f"{row['ratio']:.2f}")
    Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
