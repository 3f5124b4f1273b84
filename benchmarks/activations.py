"""Times networks of activations: the engines against each other, the ReLU network and neural-tangents, in one run.

    python benchmarks/activations.py [--peer .venv-peer/bin/python] [--repeats 5] [--only tanh] [--cpu] [--threads 1] [--store]

3 x (3x3 convolution, activation) on 32x32x3 images in float64, with flatten and with average pooling. Both engines must agree to
1e-10 of the largest entry, and so must neural-tangents, except where it integrates numerically (``ElementwiseNumerical``, tanh,
degree 25), or the run fails. Without the peer's environment its columns stay empty. On a machine that does other work, ``--cpu
--threads 1`` counts the processor's seconds instead of those that pass.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from cases import CASES, Case
from history import Table, add_store, number, publish, started, threads
from rich.progress import track
from run import Peer, module
from torch import Tensor

import ntkit

LABELS = {"relu": "ReLU", "tanh": "tanh", "silu": "SiLU", "elu": "ELU", "gelu": "GELU", "erf": "erf"}
HEADS = {"flatten": "flatten", "average": "average pooling"}
PEER_LACKS = {
    ("silu", "flatten"), ("silu", "average"), ("elu", "flatten"), ("elu", "average"),
    ("tanh", "average"),  # killed, at 24 GB
}  # fmt: skip
PEER_TOLERANCE = {"tanh": 1e-2}  # neural-tangents integrates it numerically
SIZES = {
    "flatten": (400, 400, 6, 6),
    "average": (4, 16, 1, 2),
}  # rows and columns; rows and columns of the slower sides


def case(activation: str, head: str) -> Case:
    """Give the network of an activation and a head."""
    known = CASES[f"conv 3, {head}"]
    rows, columns, few_rows, few_columns = SIZES[head]
    words = tuple(activation if word == "relu" else word for word in known.words)
    return replace(known, words=words, rows=rows, columns=columns, peer_rows=few_rows, peer_columns=few_columns)


def timed(
    kernel: ntkit.Kernel, x1: Tensor, x2: Tensor, engine: str, clock: Callable[[], float]
) -> tuple[float, Tensor]:
    """Give the seconds an entry of a call, and the kernel."""
    start = clock()
    value = kernel(x1, x2, engine=engine)
    return (clock() - start) / (len(x1) * len(x2)), value


def measure(activation: str, head: str, peer: Peer | None, repeats: int, cpu: bool) -> dict[str, Any]:
    """Time both engines and the peer on one network, alternately; the median of each."""
    one = case(activation, head)
    clock = time.process_time if cpu else time.perf_counter
    generator = torch.Generator().manual_seed(0)
    x1, x2 = (torch.rand((n, *one.shape), generator=generator, dtype=torch.float64) for n in (one.rows, one.columns))
    few1, few2 = x1[: one.peer_rows], x2[: one.peer_columns]
    kernel = ntkit.infinite_width(module(one)).ntk
    kernel(x1[:1], x2[:1])  # plans the tape and builds the tables
    kernel(few1[:1], few2[:1], engine="reference")
    seconds: dict[str, list[float]] = {"native": [], "reference": [], "neural-tangents": []}
    errors: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        file = str(Path(folder) / "inputs.npz")
        np.savez(file, x1=few1.numpy(), x2=few2.numpy())
        for _ in range(repeats):
            each, native = timed(kernel, x1, x2, "native", clock)
            seconds["native"].append(each)
            each, reference = timed(kernel, few1, few2, "reference", clock)
            seconds["reference"].append(each)
            errors["reference"] = _apart(native[: len(few1), : len(few2)], reference)
            assert errors["reference"] < 1e-10, f"{activation}: the engines differ by {errors['reference']:.1e}"
            if peer is not None and (activation, head) not in PEER_LACKS:
                whole, corner = peer.timed(f"{activation}, {head}", one, "float64", file, cpu)
                seconds["neural-tangents"].append(whole / (len(few1) * len(few2)))
                errors["neural-tangents"] = _apart(native[: len(corner), : corner.shape[1]], corner)
                bound = PEER_TOLERANCE.get(activation, 1e-10)
                assert errors["neural-tangents"] < bound, (
                    f"{activation}: the peer differs by {errors['neural-tangents']:.1e}"
                )
    medians = {side: statistics.median(values) for side, values in seconds.items() if values}
    return {"activation": activation, "head": head, **medians, "errors": errors}


def _apart(a: Tensor, b: Tensor) -> float:
    return float((a - b).abs().max() / b.abs().max())


def times(results: list[dict[str, Any]], peers: tuple[str, ...], caption: str) -> Table:
    """Give the milliseconds an entry, and how many times as long the ReLU network and the other sides take."""
    header = ["network", "native", "times ReLU"]
    for side in peers:
        header += [side, "ratio"]
    rows = []
    for found in results:
        relu = next(one for one in results if one["head"] == found["head"])["native"]
        row = [label(found), number(1e3 * found["native"]), number(found["native"] / relu, 2)]
        for side in peers:
            seconds = found.get(side)
            row += [number(seconds and 1e3 * seconds), number(seconds and seconds / found["native"])]
        rows.append(row)
    return Table(header, rows, caption)


def differences(results: list[dict[str, Any]], peers: tuple[str, ...]) -> Table:
    """Give how far the other sides are from the native engine."""
    rows = []
    for found in results:
        errors = [found["errors"].get(side) for side in peers]
        rows.append([label(found), *(number(None) if error is None else f"{error:.0e}" for error in errors)])
    caption = "Largest difference from the native engine, relative to the largest entry, float64."
    return Table(["network", *peers], rows, caption)


def label(found: dict[str, Any]) -> str:
    """Name a network as the pages do."""
    return f"{LABELS[found['activation']]}, {HEADS[found['head']]}"


def main() -> int:
    """Run all networks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the Python of an environment with neural-tangents")
    parser.add_argument("--only", action="append", choices=list(LABELS)[1:])
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--cpu", action="store_true", help="count the processor's seconds")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    add_store(parser)
    options = parser.parse_args()
    start = started()
    torch.set_num_threads(options.threads)
    peer = Peer(options.peer) if options.peer and Path(options.peer).exists() else None
    if peer is None:
        print("neural-tangents is not there (make peer installs it): its columns are left out.", file=sys.stderr)
    chosen = [one for one in LABELS if one == "relu" or not options.only or one in options.only]
    networks = [(activation, head) for head in SIZES for activation in chosen]
    results = [measure(*network, peer, options.repeats, options.cpu) for network in track(networks)]
    peers = ("reference",) if peer is None else ("reference", "neural-tangents")
    caption = (
        f"Milliseconds {'of processor time ' if options.cpu else ''}for one entry of the NTK of 3 x (conv, activation) on "
        f"32x32x3 images, float64, {threads()}, median of {options.repeats} alternating calls."
    )
    publish("activations", [times(results, peers, caption), differences(results, peers)], start, options.store)
    return 0


if __name__ == "__main__":
    sys.exit(main())
