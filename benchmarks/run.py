"""Times the engines against each other and against neural-tangents: the same inputs, alternately, best of several.

    python benchmarks/run.py --output benchmark.json [--peer .venv-peer/bin/python] [--only "conv 3, average"]

Times of one entry of the kernel are compared. Without the peer's environment its column is empty. A run of all cases with the
peer adds a record to --history, from which the pages take their figures.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, Case
from history import append_record, record
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import Tensor, nn
from torch.nn import functional as F

import ntkit
from ntkit._src import native
from ntkit_studies.skeleton._manifest import this_machine

# Of each turn, in which two threads, one thread and matrix products alternate: other work on the machine comes and goes within
# seconds, and a ratio needs both of its times undisturbed.
ALTERNATION_SECONDS = 10


class Erf(nn.Module):
    """The error function."""

    def forward(self, x: Tensor) -> Tensor:
        """Apply it."""
        return torch.erf(x)


LAYERS = {
    "relu": nn.ReLU,
    "erf": Erf,
    "gelu": nn.GELU,
    "silu": nn.SiLU,
    "elu": nn.ELU,
    "tanh": nn.Tanh,
    "pool": functools.partial(nn.AvgPool2d, 2),
}


class Block(nn.Module):
    """A pre-activation residual block with a 1x1 shortcut."""

    def __init__(self, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(width, width, 3, 1, 1, bias=False)
        self.shortcut = nn.Conv2d(width, width, 1, stride, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches."""
        h = F.relu(x)
        return self.shortcut(h) + self.second(F.relu(self.first(h)))


def module(case: Case, width: int = 4) -> nn.Module:
    """Build a case's network."""
    layers: list[nn.Module] = []
    channels, side = case.shape[0], case.shape[-1]
    features = case.shape[0] if len(case.shape) == 1 else None
    for word in case.words:
        if word in ("conv", "conv2"):
            layers.append(nn.Conv2d(channels, width, 3, 2 if word == "conv2" else 1, 1, bias=False))
            channels, side = width, (side + 1) // 2 if word == "conv2" else side
        elif word in ("block", "block2"):
            layers.append(Block(width, 2 if word == "block2" else 1))
            side = (side + 1) // 2 if word == "block2" else side
        elif word == "dense":
            layers.append(nn.Linear(features or channels, width, bias=False))
            features = width
        elif word == "flatten":
            layers.append(nn.Flatten())
            features = channels * side * side
        elif word == "gap":
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten()]
        else:
            layers.append(LAYERS[word]())
            side = side // 2 if word == "pool" else side
    return nn.Sequential(*layers)


def timed(call: Callable[[], Tensor]) -> tuple[float, Tensor]:
    """Give the seconds of the fastest of some calls, and the first entries.

    Two in a row at least: after a pause the first one has memory to get back from the system, whoever's turn it is. Up to five
    within a second, since short ones vary most. The peer does the same.
    """
    best, begin = float("inf"), time.perf_counter()
    for number in range(5):
        if number >= 2 and time.perf_counter() - begin > 1:
            break
        start = time.perf_counter()
        value = call()
        best = min(best, time.perf_counter() - start)
        corner = value[:2, :2].double().clone()
        del value
    return best, corner


class Peer:
    """neural-tangents in its own process."""

    def __init__(self, python: str) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        script = Path(__file__).with_name("peer.py")
        self.process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip

    def timed(self, name: str, case: Case, dtype: str, file: str, cpu: bool = False) -> tuple[float, Tensor]:
        """Give the seconds of the fastest of some calls, and the first entries; ``cpu``: seconds of the processor."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {"name": name, "words": case.words, "dtype": dtype, "file": file, "cpu": cpu}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with status {self.process.wait()} at {name!r}")
        answer = json.loads(line)
        return answer["seconds"], torch.tensor(answer["corner"], dtype=torch.float64)


def roofline(dtype: str, threads: int) -> float:
    """Measure what all threads together could do if nothing but arithmetic took time."""
    with ThreadPoolExecutor(threads) as pool:
        return sum(pool.map(lambda _: native.roofline(dtype == "float32"), range(threads)))


def measure(name: str, case: Case, peer: Peer | None, repeats: int) -> dict[str, Any]:
    """Time every engine on one case, alternately; give the best seconds an entry of each."""
    generator = torch.Generator().manual_seed(0)
    x1, x2 = (torch.rand((n, *case.shape), generator=generator) for n in (case.rows, case.columns))
    small1, small2 = x1[: case.peer_rows], x2[: case.peer_columns]
    kernel = ntkit.infinite_width(module(case)).ntk
    threads = torch.get_num_threads()
    best: dict[str, float] = {}
    corners: dict[str, Tensor] = {}
    rooflines = {"float32": 0.0, "float64": 0.0}
    # A roofline of windows and activations says nothing of matrix products, nor of entries that are mirror images.
    has_roofline = len(case.shape) > 1 and not case.gram

    def note(engine: str, answer: tuple[float, Tensor], entries: int) -> None:
        best[engine] = min(best.get(engine, float("inf")), answer[0] / entries)
        corners[engine] = answer[1]

    def engine_timed(engine: str, a: Tensor, b: Tensor) -> tuple[float, Tensor]:
        return timed(lambda: kernel(a, None if case.gram else b, engine=engine))

    entries, few = case.rows * case.columns, case.peer_rows * case.peer_columns
    kernel(x1[:1], x2[:1])  # plans the tape
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "inputs.npz")
        np.savez(file, x1=small1.numpy(), **({} if case.gram else {"x2": small2.numpy()}))
        for _ in range(repeats):
            begin = time.perf_counter()
            while True:
                note("native float32", engine_timed("native", x1, x2), entries)
                torch.set_num_threads(1)
                note("native float32, one thread", engine_timed("native", x1, x2), entries)
                torch.set_num_threads(threads)
                if len(case.shape) == 1:
                    note("matrix product", timed(lambda: x1 @ (x1 if case.gram else x2).T), entries)
                if time.perf_counter() - begin > ALTERNATION_SECONDS:
                    break
            note("native float64", engine_timed("native", x1.double(), x2.double()), entries)
            for dtype in rooflines if has_roofline else ():
                rooflines[dtype] = max(rooflines[dtype], roofline(dtype, threads))
            note("reference", engine_timed("reference", small1, small2), few)
            if peer is not None:
                for dtype in ("float32", "float64"):
                    note(f"neural-tangents {dtype}", peer.timed(name, case, dtype, file), few)
    corners.pop("matrix product", None)
    rows, columns = corners["reference"].shape
    for engine, corner in corners.items():
        message = f"{name}: {engine} computes something else"
        torch.testing.assert_close(corner[:rows, :columns], corners["reference"], rtol=1e-3, atol=0, msg=message)
    theirs = min((value for key, value in best.items() if key.startswith("neural-tangents")), default=None)
    # Of covariances, for one entry of the kernel: on planes that the output needs, and not of entries that are mirror images.
    computed = native.rectified_entries(native.tape_of(kernel.limit.program(case.shape)))
    computed *= (case.rows + 1) / (2 * case.rows) if case.gram else 1
    result: dict[str, Any] = {"case": name, **best}
    for dtype in ("float32", "float64"):
        ours = best[f"native {dtype}"]
        result[f"ratio {dtype}"] = None if theirs is None else theirs / ours
        result[f"entries x layers / s, {dtype}"] = computed / ours
        if has_roofline:
            result[f"of the roofline, {dtype}"] = computed / ours / rooflines[dtype]
    result["speed-up by threads"] = best["native float32, one thread"] / best["native float32"]
    if "matrix product" in best:
        result["times the matrix product"] = best["native float32"] / best["matrix product"]
    return result


def main() -> int:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmark.json"))
    parser.add_argument("--history", type=Path, default=Path("docs/results/benchmarks.jsonl"))
    parser.add_argument("--peer", help="the Python of an environment with neural-tangents")
    parser.add_argument("--only", action="append", choices=list(CASES))
    parser.add_argument("--repeats", type=int, default=5)
    options = parser.parse_args()
    peer = None
    if options.peer and Path(options.peer).exists():
        peer = Peer(options.peer)
    else:
        print("neural-tangents is not there (make peer installs it): its columns stay empty.", file=sys.stderr)
    machine = {"processor": this_machine().processor, "threads": torch.get_num_threads(),
               "simd": native.build_info().simd, "ntkit": ntkit.__version__, "torch": torch.__version__}  # fmt: skip
    rows = []
    for name in track(options.only or list(CASES)):
        rows.append(measure(name, CASES[name], peer, options.repeats))
        # After each case: a run that is stopped has lost nothing.
        options.output.write_text(json.dumps({"machine": machine, "seconds an entry": rows}, indent=2) + "\n")
    if peer is not None and not options.only:
        append_record(options.history, record(machine, rows, "neural-tangents 0.6.5"))
    title = f"milliseconds an entry of the NTK, {torch.get_num_threads()} threads, best of {options.repeats}"
    times = ["native float32", "native float64", "reference", "neural-tangents float32", "neural-tangents float64"]
    figures = ["ratio float32", "ratio float64", "of the roofline, float32", "of the roofline, float64", "speed-up by threads",
               "times the matrix product"]  # fmt: skip
    tables = (
        (title, times, lambda value: f"{1e3 * value:.4g}"),
        (
            "ratios to neural-tangents' better type, to the roofline, of two threads to one",
            figures,
            lambda value: f"{value:.2f}",
        ),
    )
    for heading, columns, text in tables:
        table = Table(title=heading)
        for column in ("case", *columns):
            table.add_column(column, justify="left" if column == "case" else "right")
        for row in rows:
            table.add_row(row["case"], *("-" if row.get(column) is None else text(row[column]) for column in columns))
        Console().print(table)
    return 0


if __name__ == "__main__":
    sys.exit(main())
