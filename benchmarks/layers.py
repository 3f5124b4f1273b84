"""Attention, resizing, transposed convolutions and graphs against neural-tangents on the same inputs: times and values.

    python benchmarks/layers.py --peer .venv-peer/bin/python [--only values|speed] [--match TEXT] [--cpu] [--threads 1]
        [--repeats 3] [--store]

Values: float64, near but unequal inputs, the worst entry relative to the largest; above 1e-10 the run fails. Times: both sides
alternately, the engine that ``engine="auto"`` takes. Without the peer's environment our times alone are printed.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from history import Table, add_store, number, publish, started, threads
from layers_cases import B_STD, FEATURES, POSITION_GAIN, SPEED, VALUES, W_STD, Case
from torch import Tensor, nn
from torch.nn import functional as F

import ntkit
from ntkit._src.layers import SelfAttention

WIDTH, DIGITS = 8, 1e-10
CALLS = 3  # in a row, of each side
MATRIX = torch.randn(5, 5, generator=torch.Generator().manual_seed(3), dtype=torch.float64)


class Residual(nn.Module):
    """x + layers(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return x + self.layers(x)


class Gate(nn.Module):
    """relu(dense(x)) times dense(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.gate, self.value = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return F.relu(self.gate(x)) * self.value(x)


class Map(nn.Module):
    """A constant matrix times the tokens."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("matrix", MATRIX)

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        return self.matrix @ x


class Read(nn.Module):
    """One token, or the mean over all positions."""

    def __init__(self, image: bool, token: int | None) -> None:
        super().__init__()
        self.image, self.token = image, token

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        if self.token is not None:
            return x[:, self.token]
        return x.flatten(2).mean(2) if self.image else x.mean(1)


class Network(nn.Module):
    """The layers in order; a graph's input carries its adjacency beside the features of its nodes."""

    def __init__(self, case: Case) -> None:
        super().__init__()
        self.graph = any(word[0] == "aggregate" for word in case.words)
        self.steps = nn.ModuleList()
        h = torch.zeros(1, *case.shape, dtype=torch.float64)
        h = h[..., :FEATURES] if self.graph else h
        image = case.words[0][0] in ("conv", "strided")
        for word in case.words:
            step = build(word, h, image).double()
            self.steps.append(step)
            h = step(h)
            image = image and word[0] not in ("mean", "flatten")

    def forward(self, x: Tensor) -> Tensor:  # noqa: D102
        h, adjacency = (x[..., :FEATURES], x[..., FEATURES:]) if self.graph else (x, x)
        for step in self.steps:
            h = torch.bmm(adjacency, h) if type(step) is nn.Identity else step(h)
        return h


def build(word: tuple, h: Tensor, image: bool) -> nn.Module:
    """Build the layer of a word for values like ``h``."""
    name, *options = word
    channels, axes = h.shape[1 if image else -1], h.ndim - 2
    one = axes == 1
    conv, transpose = (nn.Conv1d, nn.ConvTranspose1d) if one else (nn.Conv2d, nn.ConvTranspose2d)
    if name == "attend":
        mechanism, scaling, *flags = options
        covariance = POSITION_GAIN**2 * torch.eye(h.shape[1], dtype=torch.float64) if "positions" in flags else None
        return SelfAttention(
            channels, 2, mechanism, scaling, tied=scaling == "linear", bias="no bias" not in flags, positions=covariance,
            position_values="values" in flags,
        )  # fmt: skip
    if name == "residual":
        return Residual(*(build(inner, h, image) for inner in options[0]))
    if name == "resize":
        # jax takes the nearest centre, which torch calls nearest-exact.
        return nn.Upsample(options[1], mode="nearest-exact" if options[0] == "nearest" else options[0])
    makers = {
        "dense": lambda: nn.Linear(channels, WIDTH),
        "relu": nn.ReLU,
        "norm": lambda: nn.LayerNorm(channels, elementwise_affine=False, eps=1e-12),
        "conv": lambda: conv(channels, WIDTH, 3, padding=1),
        "strided": lambda: nn.Sequential(nn.ZeroPad2d((0, 1, 0, 1)), conv(channels, WIDTH, 3, stride=2)),
        "pool": lambda: nn.AvgPool2d(2),
        "transpose": lambda: transpose(channels, WIDTH, *options),
        "gate": Gate,
        "map": Map,
        "aggregate": nn.Identity,
        "mean": lambda: Read(image, None),
        "token": lambda: Read(image, options[0]),
        "flatten": nn.Flatten,
    }
    return makers[name]()


def inputs(case: Case) -> tuple[Tensor, Tensor]:
    """Draw two batches; the first input of the second is close to the second of the first."""
    generator = torch.Generator().manual_seed(0)
    x1, x2 = (torch.randn(case.rows, *case.shape, generator=generator, dtype=torch.float64) for _ in range(2))
    x2[0] = x1[1] + 1e-3 * x2[0]
    return x1, x2


class Peer:
    """neural-tangents in its own process."""

    def __init__(self, python: str, folder: str) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        script = Path(__file__).with_name("layers_peer.py")
        self.folder = folder
        self.process = subprocess.Popen(
            [python, "-W", "ignore", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment,
        )
        # JAX starts a thread for each core that it may use: both sides get equally many.
        cores = sorted(os.sched_getaffinity(0))
        os.sched_setaffinity(self.process.pid, cores[-torch.get_num_threads() :])

    def __call__(
        self, name: str, x1: Tensor, x2: Tensor, repeats: int, clock: str = "perf_counter"
    ) -> tuple[float, list[np.ndarray]]:
        """Return the least seconds of several calls after the first, and the kernels; ``clock`` names how they are counted."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        file, answer = (str(Path(self.folder) / each) for each in ("inputs.npz", "kernels.npz"))
        matrix = {"matrix": MATRIX.numpy()} if name == "constant map" else {}
        np.savez(file, x1=x1.numpy(), x2=x2.numpy(), **matrix)
        request = {"name": name, "file": file, "answer": answer, "repeats": repeats, "clock": clock}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with status {self.process.wait()} at {name!r}")
        with np.load(answer) as arrays:
            return json.loads(line)["seconds"], [arrays[key] for key in arrays]


def kernels(case: Case) -> list:
    """Return the functions of two batches in the order of ``case.sides``."""
    limit = ntkit.infinite_width(Network(case), w_std=W_STD, b_std=B_STD)
    sides = [getattr(limit, side) for side in case.sides]
    return [side.positions for side in sides] if case.positions else sides


def timed(function, x1: Tensor, x2: Tensor, repeats: int, clock: str) -> float:
    """Return the least seconds of several calls."""
    now = getattr(time, clock)
    best = float("inf")
    for _ in range(repeats):
        start = now()
        function(x1, x2)
        best = min(best, now() - start)
    return best


def apart(ours: Tensor, theirs: np.ndarray) -> float:
    """Return the worst difference relative to the largest entry."""
    return float(np.abs(ours.numpy() - theirs).max() / np.abs(theirs).max())


def values(peer: Peer, match: str) -> list[dict[str, Any]]:
    """Compare all values."""
    rows = []
    for name, case in VALUES.items():
        if match not in name:
            continue
        x1, x2 = inputs(case)
        _, theirs = peer(name, x1, x2, 1)
        errors = [apart(kernel(x1, x2), value) for kernel, value in zip(kernels(case), theirs, strict=True)]
        rows.append({"case": name, **dict(zip(case.sides, errors, strict=True))})
    return rows


def speed(peer: Peer | None, repeats: int, match: str, clock: str) -> list[dict[str, Any]]:
    """Time both sides alternately."""
    rows: list[dict[str, Any]] = []
    for name, case in SPEED.items():
        if match not in name:
            continue
        x1, x2 = inputs(case)
        (kernel,) = kernels(case)
        found = kernel(x1, x2)
        best: dict[str, float] = {}
        error = None
        for _ in range(repeats):
            best["ntkit"] = min(best.get("ntkit", float("inf")), timed(kernel, x1, x2, CALLS, clock))
            if peer is not None:
                seconds, (theirs,) = peer(name, x1, x2, CALLS, clock)
                best["neural-tangents"] = min(best.get("neural-tangents", float("inf")), seconds)
                error = apart(found, theirs)
        ratio = best["neural-tangents"] / best["ntkit"] if peer is not None else None
        engine = kernel.limit.explain(case.shape).rows[-1].engine
        rows.append({"case": name, "engine": engine, "entries": case.rows**2, **best, "ratio": ratio, "apart": error})
    return rows


def values_table(rows: list[dict[str, Any]], worst: float) -> Table:
    """Give the differences."""
    cells = [[row["case"], *(f"{row[side]:.1e}" for side in ("nngp", "ntk"))] for row in rows]
    caption = (
        "Largest difference between ntkit and neural-tangents, relative to the largest entry, float64: "
        f"{worst:.1e} at worst in {len(rows)} networks."
    )
    return Table(["network", "NNGP", "NTK"], cells, caption)


def speed_table(rows: list[dict[str, Any]], repeats: int, cpu: bool) -> Table:
    """Give milliseconds an entry, ratios and differences."""
    cells = []
    for row in rows:
        times = [1e3 * row[side] / row["entries"] if side in row else None for side in ("ntkit", "neural-tangents")]
        difference = number(None) if row["apart"] is None else f"{row['apart']:.1e}"
        cells.append([row["case"], row["engine"], *map(number, times), number(row["ratio"], 2), difference])
    caption = (
        f"Milliseconds {'of processor time ' if cpu else ''}for one entry of the NTK, float64, {threads()}, "
        f"best of {repeats} alternating rounds of {CALLS} calls."
    )
    return Table(["network", "engine", "ntkit", "neural-tangents", "ratio", "largest difference"], cells, caption)


def main() -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the Python of an environment with neural-tangents")
    parser.add_argument("--only", choices=["values", "speed"])
    parser.add_argument("--cpu", action="store_true", help="processor time, for a machine that others use too")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--match", default="", help="only networks whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    torch.set_num_threads(options.threads)
    clock = "process_time" if options.cpu else "perf_counter"
    tables, worst = [], 0.0
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(options.peer, folder) if options.peer and Path(options.peer).exists() else None
        if peer is None:
            print("neural-tangents is not there (make peer installs it): our times alone.", file=sys.stderr)
        if options.only != "values":
            rows = speed(peer, options.repeats, options.match, clock)
            tables.append(speed_table(rows, options.repeats, options.cpu))
            worst = max((row["apart"] or 0.0 for row in rows), default=0.0)
        if peer is not None and options.only != "speed":
            rows = values(peer, options.match)
            apart_most = max((max(row["nngp"], row["ntk"]) for row in rows), default=0.0)
            tables.append(values_table(rows, apart_most))
            worst = max(worst, apart_most)
    publish("layers", tables, start, options.store and worst <= DIGITS)
    if worst > DIGITS:
        print(f"both sides differ by {worst:.1e}; expected at most {DIGITS:.0e}", file=sys.stderr)
    return int(worst > DIGITS)


if __name__ == "__main__":
    sys.exit(main())
