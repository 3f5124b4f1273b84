"""Times the methods of ntkit.empirical, PyTorch's tutorial and neural-tangents: same weights, alternately, best of several.

    python benchmarks/empirical.py --output benchmark-empirical.json [--peer .venv-peer/bin/python] [--only ResNet]

All in float32. Where the derivatives of all rows do not fit in memory, a method that forms them is timed on a tile of rows and
scaled by the number of tiles. ``--cpu-time`` counts the processor's time of one thread, for a machine that does other work. The
peak of memory is that of a process of its own, above what it held before the call.
"""

from __future__ import annotations

import argparse
import copy
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from empirical_cases import CASES, Case
from rich.console import Console
from rich.progress import Progress
from rich.table import Table
from torch import Tensor, nn
from torch.func import functional_call, jacrev, vmap
from torch.nn import functional as F

import ntkit

METHODS = ("auto", "structured", "jacobian", "ntk-vp")
IMPLEMENTATIONS = ("STRUCTURED_DERIVATIVES", "JACOBIAN_CONTRACTION", "NTK_VECTOR_PRODUCTS")
CLOCKS = {False: time.perf_counter, True: time.process_time}
PRODUCT_ROWS = 8  # products with vectors are timed on so many rows: they cost the same for every pair
SLOW = 60.0  # seconds: what takes longer is not repeated


class Block(nn.Module):
    """A pre-activation residual block with a 1x1 shortcut."""

    def __init__(self, channels: int, width: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(channels, width, 3, stride, 1)
        self.second = nn.Conv2d(width, width, 3, 1, 1)
        self.shortcut = nn.Conv2d(channels, width, 1, stride)

    def forward(self, x: Tensor) -> Tensor:
        """Add both branches."""
        h = F.relu(x)
        return self.shortcut(h) + self.second(F.relu(self.first(h)))


def network(case: Case) -> nn.Module:
    """Build a case's network, seeded."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    channels = case.shape[0]
    for word, *sizes in case.words:
        if word == "dense":
            layers.append(nn.Linear(channels, sizes[0]))
        elif word == "conv":
            layers.append(nn.Conv2d(channels, sizes[0], 3, 1, 1))
        elif word == "block":
            layers.append(Block(channels, *sizes))
        else:
            layers += {"relu": [nn.ReLU()], "gap": [nn.AdaptiveAvgPool2d(1), nn.Flatten()]}[word]
        channels = sizes[0] if sizes else channels
    return nn.Sequential(*layers)


def inputs(case: Case) -> Tensor:
    """Draw a case's inputs."""
    return torch.randn(case.n, *case.shape, generator=torch.Generator().manual_seed(1))


def tutorial(module: nn.Module, x1: Tensor, x2: Tensor) -> Tensor:
    """Contract derivatives formed by vmap and jacrev, as PyTorch's tutorial on neural tangent kernels does."""
    parameters = {name: parameter.detach() for name, parameter in module.named_parameters()}

    def of_row(values: dict[str, Tensor], row: Tensor) -> Tensor:
        return functional_call(module, values, (row[None],))[0]

    first = [j.flatten(2) for j in vmap(jacrev(of_row), (None, 0))(parameters, x1).values()]
    second = [j.flatten(2) for j in vmap(jacrev(of_row), (None, 0))(parameters, x2).values()]
    outputs = first[0].shape[1]
    return sum(torch.einsum("Naf,Maf->NM", a, b) for a, b in zip(first, second, strict=True)) / outputs


class Peer:
    """neural-tangents in its own process."""

    def __init__(self, python: str, cpu_time: bool) -> None:
        environment = {**os.environ, "JAX_PLATFORMS": "cpu", "TF_CPP_MIN_LOG_LEVEL": "3"}
        if cpu_time:
            environment |= {"XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1"}
        self.cpu_time = cpu_time
        script = Path(__file__).with_name("empirical_peer.py")
        self.process = subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True,
            env=environment,
        )  # fmt: skip

    def timed(self, case: str, rows: int, implementation: str, file: str) -> tuple[float, Tensor] | None:
        """Give the seconds of one call and its first entries, or None where it ran out of memory."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        request = {
            "case": case, "rows": rows, "implementation": implementation, "file": file, "cpu time": self.cpu_time
        }  # fmt: skip
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the peer ended with status {self.process.wait()} at {case!r}, {implementation}")
        answer = json.loads(line)
        return (answer["seconds"], torch.tensor(answer["corner"])) if answer["seconds"] is not None else None


def measure(
    name: str, peer: Peer | None, repeats: int, cpu_time: bool, note_progress: Callable[[str], None]
) -> dict[str, Any]:
    """Time everything on one case, alternately."""
    case = CASES[name]
    module, x = network(case), inputs(case)
    clock = CLOCKS[cpu_time]
    rows_of = {"jacobian": case.tile, "ntk-vp": PRODUCT_ROWS, "JACOBIAN_CONTRACTION": case.tile,
               "NTK_VECTOR_PRODUCTS": min(PRODUCT_ROWS, case.tile)}  # fmt: skip
    best: dict[str, float] = {}
    corners: dict[str, Tensor] = {}

    def ours(method: str) -> tuple[float, Tensor] | None:
        kernel = ntkit.empirical(module, method=method).ntk
        rows = x[: rows_of.get(method, case.n)]
        start = clock()
        value = kernel(rows) if len(rows) == case.n else kernel(rows, rows.clone())
        return (case.n / len(rows)) ** 2 * (clock() - start), value[:2, :2]

    def plain() -> tuple[float, Tensor] | None:
        start = clock()
        value = tutorial(module, x[: case.tile], x[: case.tile])
        return (case.n / case.tile) ** 2 * (clock() - start), value[:2, :2]

    def theirs(implementation: str, file: str) -> tuple[float, Tensor] | None:
        assert peer is not None
        rows = rows_of.get(implementation, case.n)
        answer = peer.timed(name, rows, implementation, file)
        return None if answer is None else ((case.n / rows) ** 2 * answer[0], answer[1])

    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "case.npz")
        weights = {f"w{i}": p.detach().numpy() for i, p in enumerate(module.parameters())}
        np.savez(file, x=x.numpy(), **weights)
        runs: dict[str, Callable[[], tuple[float, Tensor] | None]] = {
            method: lambda method=method: ours(method) for method in METHODS
        }
        runs["vmap-jacrev"] = plain
        if peer is not None:
            for implementation in IMPLEMENTATIONS:
                label = f"neural-tangents {implementation.lower().replace('_', ' ')}"
                runs[label] = lambda implementation=implementation: theirs(implementation, file)
        for repeat in range(repeats):
            for label, run in runs.items():
                if repeat and best.get(label, float("inf")) > SLOW:
                    continue
                note_progress(f"{name}: {label}")
                answer = run()
                if answer is not None:
                    best[label] = min(best.get(label, float("inf")), answer[0])
                    corners[label] = answer[1]
    exact = ntkit.empirical(copy.deepcopy(module).double(), method="jacobian").ntk(x[:2].double())
    errors = {label: float((corner - exact).abs().max() / exact.max()) for label, corner in corners.items()}
    for label, error in errors.items():
        # Sums of 1e8 products in float32, as forming all derivatives takes, lose three digits and more.
        assert error < 1e-2, f"{name}: {label} computes something else"
    chosen = ntkit.empirical(module).method_for(x)
    peers = [seconds for label, seconds in best.items() if label.startswith("neural")]
    return {
        "case": name,
        "seconds": best,
        "relative error": errors,
        "auto chooses": chosen,
        "auto chooses the fastest": best[chosen] <= 1.25 * min(best[method] for method in METHODS[1:]),
        "times faster than vmap-jacrev": best["vmap-jacrev"] / best["auto"],
        "target": case.target,
        "times faster than neural-tangents": min(peers) / best["auto"] if peers else None,
        "peak MB": peak(name),
    }


def peak(name: str) -> float:
    """Measure the peak of memory of the automatic method, in a process of its own."""
    command = [sys.executable, __file__, "--peak", name]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def print_peak(name: str) -> None:
    """Print by how many MB the largest resident size grows in one call."""
    module, x = network(CASES[name]), inputs(CASES[name])
    module(x[:1])
    before = largest_resident()
    ntkit.empirical(module).ntk(x)
    print(largest_resident() - before)


def largest_resident() -> float:
    """Give the largest resident size so far in MB; not getrusage's, which starts at that of the parent process."""
    status = Path("/proc/self/status")
    if not status.exists():
        return float("nan")
    return int(re.search(r"VmHWM:\s+(\d+) kB", status.read_text())[1]) / 1024


def main() -> int:
    """Run the cases."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--output", type=Path, default=Path("benchmark-empirical.json"))
    parser.add_argument("--peer", help="the Python of an environment with neural-tangents")
    parser.add_argument("--only", default="", help="cases whose name contains this")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--cpu-time", action="store_true", help="processor time on one thread")
    parser.add_argument("--peak", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.peak:
        print_peak(options.peak)
        return 0
    if options.cpu_time:
        torch.set_num_threads(1)
    peer = Peer(options.peer, options.cpu_time) if options.peer and Path(options.peer).exists() else None
    if peer is None:
        print("neural-tangents is not there (make peer installs it): its columns stay empty.", file=sys.stderr)
    console = Console()
    with Progress(console=console, transient=True) as progress:
        task = progress.add_task("", total=None)
        rows = [
            measure(name, peer, options.repeats, options.cpu_time, lambda text: progress.update(task, description=text))
            for name in CASES
            if options.only in name
        ]
    for row in rows:
        table = Table(title=f"{row['case']}, {torch.get_num_threads()} threads, best of {options.repeats}")
        table.add_column("method")
        table.add_column("seconds", justify="right")
        table.add_column("relative error", justify="right")
        for label, seconds in sorted(row["seconds"].items(), key=lambda item: item[1]):
            table.add_row(
                label + (f" ({row['auto chooses']})" if label == "auto" else ""),
                f"{seconds:.3g}",
                f"{row['relative error'][label]:.0e}",
            )
        console.print(table)
        against = row["times faster than neural-tangents"]
        console.print(
            f"{row['times faster than vmap-jacrev']:.1f} times faster than vmap-jacrev (target {row['target']}), "
            f"{'-' if against is None else f'{against:.2f}'} times faster than neural-tangents' best, "
            f"peak {row['peak MB']:.0f} MB, auto chose {'' if row['auto chooses the fastest'] else 'not '}the fastest"
        )
    machine = {"machine": platform.processor() or platform.machine(), "threads": torch.get_num_threads(),
               "clock": CLOCKS[options.cpu_time].__name__, "ntkit": ntkit.__version__, "torch": torch.__version__}  # fmt: skip
    options.output.write_text(json.dumps({"machine": machine, "cases": rows}, indent=2) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
