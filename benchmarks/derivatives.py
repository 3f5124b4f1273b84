"""Derivatives of kernels by inputs: the native engine, the reference engine and neural-tangents, alternately on the same inputs.

    python benchmarks/derivatives.py [--peer .venv-peer/bin/python] [--match TEXT] [--threads 1] [--repeats 3] [--store]

A call is the derivative of sum_ij G_ij K(x_i, x'_j) by x, the kernel itself included: what a step of gradient descent on inputs
takes. Times are of the processor, best of all rounds, and the peer's first call, which compiles, does not count. Derivatives that
differ by more than 1e-9 of the largest, between any two of the three, end the run.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

import numpy as np
import torch
from derivatives_cases import CASES, GAINS, Case
from history import Table, add_store, number, publish, started, threads
from torch import Tensor, nn

import ntkit

DIGITS = 1e-9


def network(case: Case) -> nn.Module:
    """Build the network."""
    layers: list[nn.Module] = []
    before = case.shape[0]
    for _ in range(case.depth):
        layers += [nn.Conv2d(before, 4, 3, padding=1) if len(case.shape) > 1 else nn.Linear(before, 4), nn.ReLU()]
        before = 4
    if case.average:
        layers.append(nn.AdaptiveAvgPool2d(1))
    images = len(case.shape) > 1
    return nn.Sequential(*layers, *([nn.Flatten()] if images else []), nn.LazyLinear(1)).double()


def inputs(case: Case) -> tuple[Tensor, Tensor, Tensor]:
    """Draw x, x' and G."""
    draw = torch.Generator().manual_seed(0)
    shapes = (case.rows, *case.shape), (case.columns, *case.shape), (case.rows, case.columns)
    x, z, g = (torch.randn(shape, generator=draw, dtype=torch.float64) for shape in shapes)
    return x, z, g


def ours(case: Case, engine: Literal["native", "reference"]) -> Callable[[], Tensor]:
    """Return the call on one engine."""
    net, (x, z, g) = network(case), inputs(case)
    net(x[:1])  # the lazy layer
    kernel = ntkit.infinite_width(net, **GAINS).ntk

    def call() -> Tensor:
        a = x.clone().requires_grad_()
        return torch.autograd.grad((kernel(a, z, engine=engine) * g).sum(), a)[0]

    return call


class Peer:
    """neural-tangents in its own process, on as many cores."""

    def __init__(self, python: str, folder: str) -> None:
        script, self.file = Path(__file__).with_name("derivatives_peer.py"), str(Path(folder) / "arrays.npz")
        command = [python, "-W", "ignore", str(script), str(torch.get_num_threads())]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def __call__(self, name: str) -> tuple[float, Tensor]:
        """Return the processor seconds of a call and the derivatives."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        np.savez(self.file, **dict(zip("xzg", (value.numpy() for value in inputs(CASES[name])), strict=True)))
        self.process.stdin.write(json.dumps({"name": name, "file": self.file}) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with status {self.process.wait()} at {name!r}")
        with np.load(self.file) as arrays:
            return json.loads(line)["seconds"], torch.from_numpy(arrays["derivative"])


def main() -> int:
    """Measure, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the Python of an environment with neural-tangents")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--match", default="", help="only cases whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    add_store(parser)
    options = parser.parse_args()
    start, cells, worst = started(), [], 0.0
    torch.set_num_threads(options.threads)
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(options.peer, folder) if options.peer and Path(options.peer).exists() else None
        for name, case in CASES.items():
            if options.match not in name:
                continue
            calls: dict[str, Callable[[], Tensor]] = {
                "native": ours(case, "native"),
                "reference": ours(case, "reference"),
            }
            calls["native"]()  # plans the tapes
            best, found = dict.fromkeys((*calls, "neural-tangents"), float("inf")), {}
            for _ in range(options.repeats):
                for side, call in calls.items():
                    before = time.process_time()
                    found[side] = call()
                    best[side] = min(best[side], time.process_time() - before)
                if peer is not None:
                    seconds, found["neural-tangents"] = peer(name)
                    best["neural-tangents"] = min(best["neural-tangents"], seconds)
            expected = found["reference"]
            apart = max(float((value - expected).abs().max() / expected.abs().max()) for value in found.values())
            worst = max(worst, apart)
            times = [1e3 * best[side] if side in found else None for side in best]
            ratios = [
                best[side] / best["native"] if side in found else None for side in ("reference", "neural-tangents")
            ]
            cells.append([name, *map(number, times), *(number(ratio, 2) for ratio in ratios), f"{apart:.1e}"])
    caption = (
        "Milliseconds of processor time for the NTK of two batches and its derivative, float64, "
        f"{threads()}, best of {options.repeats}."
    )
    header = [
        "network",
        "native",
        "reference",
        "neural-tangents",
        "reference / native",
        "neural-tangents / native",
        "apart",
    ]
    publish("derivatives", [Table(header, cells, caption)], start, options.store and worst <= DIGITS)
    return int(worst > DIGITS)


if __name__ == "__main__":
    sys.exit(main())
