"""All of CIFAR-10 with the exact CNTK: kernel, exact solution, accuracy, in one command.

    python benchmarks/scale_cifar.py --data CIFAR.npz [--depth 4] [--n 50000] [--n-test 10000] [--folder DIR] [--ridge 0]
        [--store]

``--data`` holds x_train, y_train, x_test, y_test (uint8, channels last). The Gram matrices are stored in ``--folder`` and
resumed from there when the command is repeated; times are then of what was left. Labels are coded as in Arora et al. 2019, 0.9
for the class and -0.1 for others, and nothing is tuned. ``--depth`` counts layers with weights, the linear one included, as
they do; their accuracy at that depth with all training images is shown below. The peer is
ridge regression with a Gaussian kernel on the same images, its width the median distance, by the same solver on its own Gram
matrix, unless ``--no-peer``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import torch
from history import MISSING, Table, add_store, publish, started, threads
from scale_common import apart, describe, stopwatch
from torch import Tensor

import ntkit
from ntkit_studies.cntk_cifar import PAPER, label, network

ARORA = PAPER["flatten"][50_000]


class Gaussian(ntkit.Kernel):
    """exp(-|x - x'|^2 / (2 w^2)) of flattened images."""

    def __init__(self, width: float) -> None:
        self.width = width

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        """Give the matrix, shape (n1, n2)."""
        return torch.exp(
            -(torch.cdist(x1.flatten(1), (x1 if x2 is None else x2).flatten(1)) ** 2) / (2 * self.width**2)
        )

    def diag(self, x: Tensor) -> Tensor:
        """Give ones, shape (n,)."""
        return x.new_ones(len(x))

    def fingerprint(self) -> str:
        """Give the name and the width."""
        return f"gaussian {self.width!r}"


def load(path: str, n: int, n_test: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Give images, standardised by the training images' channels, and classes."""
    with np.load(path) as file:
        x, y, z, t = file["x_train"][:n], file["y_train"][:n], file["x_test"][:n_test], file["y_test"][:n_test]
    batches = [torch.from_numpy(images).permute(0, 3, 1, 2).float() / 255 for images in (x, z)]
    mean, std = batches[0].mean((0, 2, 3), keepdim=True), batches[0].std((0, 2, 3), keepdim=True)
    x1, x2 = ((batch - mean) / std for batch in batches)
    return x1, torch.from_numpy(y).long(), x2, torch.from_numpy(t).long()


class Ticker:
    """Prints progress to the standard error stream now and then."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, *at: int | str) -> None:
        """Print, at most twice a minute."""
        if time.perf_counter() - self.last > 30:
            self.last = time.perf_counter()
            print(" ", *at, file=sys.stderr, flush=True)


def accuracy(path: str, n: int, n_test: int, depth: int | None, folder: str, ridge: float) -> dict[str, Any]:
    """Compute, solve and predict with the CNTK of a depth, or without a depth with the Gaussian kernel."""
    x, y, z, t = load(path, n, n_test)
    if depth is None:
        name, kernel = "gaussian", Gaussian(float(torch.pdist(x[:2000].flatten(1)).median()))
    else:
        name, kernel = f"cntk-v-{depth}", ntkit.infinite_width(network(depth, "flatten", 3, 32)).ntk
    lap = stopwatch()
    gram = ntkit.gram(kernel, x, out=Path(folder) / f"{name}-train-{n}.zarr", progress=Ticker())
    train = lap()
    cross = ntkit.gram(kernel, z, x, out=Path(folder) / f"{name}-test-{n_test}-{n}.zarr", progress=Ticker())
    test = lap()
    targets = torch.nn.functional.one_hot(y, 10).float() - 0.1
    solution = ntkit.solve(gram, targets, method=ntkit.solvers.BlockedCholesky(rtol=1e-8), ridge=ridge, note=Ticker())
    solved = lap()
    right = (cross.product(solution.value.double()).argmax(1) == t).double().mean()
    return {
        "train": train,
        "test": test,
        "solution": solved,
        "status": str(solution.status),
        "accuracy": 100 * float(right),
    }


def cells(found: dict[str, Any]) -> list[str]:
    """Give the row of what ``accuracy`` found; of a run that failed, how."""
    if "failed" in found:
        return [MISSING] * 5 + [found["failed"]]
    minutes = [f"{found[part] / 60:.1f}" for part in ("train", "test")]
    whole, memory = f"{found['seconds'] / 60:.1f}", f"{found['memory'] / 1e9:.1f}"
    return [*minutes, f"{found['solution']:.0f}", whole, memory, f"{found['accuracy']:.2f}"]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--depth", type=int, default=4)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--n-test", type=int, default=10_000)
    parser.add_argument("--ridge", type=float, default=0.0)
    parser.add_argument("--folder")
    parser.add_argument("--no-peer", action="store_true")
    add_store(parser)
    options = parser.parse_args()
    start = started()
    describe()
    kernels = {f"{label(options.depth, 'flatten')}, ridge {options.ridge:g}": (options.depth, options.ridge)}
    if not options.no_peer:
        kernels["Gaussian, width the median distance, ridge 1e-4"] = (None, 1e-4)
    with tempfile.TemporaryDirectory() as temporary:
        given = {"path": options.data, "n": options.n, "n_test": options.n_test, "folder": options.folder or temporary}
        found = {name: apart(accuracy, **given, depth=depth, ridge=ridge) for name, (depth, ridge) in kernels.items()}
    rows = [[name, *cells(one)] for name, one in found.items()]
    if options.depth in ARORA:
        rows.append(
            [
                f"Arora et al. 2019, {label(options.depth, 'flatten')}, 50,000 images",
                *[MISSING] * 5,
                f"{ARORA[options.depth]:.2f}",
            ]
        )
    caption = (
        f"CIFAR-10 with {options.n:,} training and {options.n_test:,} test images, exact kernel and exact solution, {threads()}, "
        "one run each."
    )
    header = [
        "kernel",
        "training matrix, min",
        "test block, min",
        "solution, s",
        "whole, min",
        "memory (GB)",
        "accuracy, %",
    ]
    solutions = [[name, one.get("status", one.get("failed", ""))] for name, one in found.items()]
    tables = [Table(header, rows, caption), Table(["kernel", "solution"], solutions, "How the same runs solved.")]
    publish("scale_cifar", tables, start, options.store)


if __name__ == "__main__":
    main()
