"""All of CIFAR-10 with the exact CNTK: kernel, exact solution, accuracy, in one command.

    python benchmarks/scale_cifar.py --data CIFAR.npz [--depth 3] [--n 50000] [--n-test 10000] [--folder DIR] [--ridge 0]

``--data`` holds x_train, y_train, x_test, y_test (uint8, channels last). The Gram matrices are stored in ``--folder`` and
resumed from there when the command is repeated. Labels are coded as in Arora et al. 2019, 0.9 for the class and -0.1 for others,
and nothing is tuned. Their accuracy with all training images is printed beside. The peer is ridge regression with a Gaussian
kernel on the same images, its width the median distance, by the same solver on its own Gram matrix, unless ``--no-peer``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
from scale_common import describe, peak_memory, vanilla_cnn
from torch import Tensor

import ntkit
from ntkit.gram import GramProgress

ARORA = {3: 64.47, 4: 65.52, 6: 66.03, 11: 65.90, 21: 64.09}  # CNTK-V of Arora et al. 2019, Table 1, 50,000 images


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
    """Prints progress now and then."""

    def __init__(self) -> None:
        self.last = 0.0

    def __call__(self, at: GramProgress | str) -> None:
        """Print, at most twice a minute."""
        if time.perf_counter() - self.last > 30:
            self.last = time.perf_counter()
            print(f"  {at}", flush=True)


def accuracy(kernel: ntkit.Kernel, name: str, data: tuple[Tensor, ...], folder: Path, ridge: float) -> None:
    """Compute, solve, predict, print."""
    x, y, z, t = data
    start = time.perf_counter()
    gram = ntkit.gram(kernel, x, out=folder / f"{name}-train-{len(x)}.zarr", progress=Ticker())
    trained = time.perf_counter()
    cross = ntkit.gram(kernel, z, x, out=folder / f"{name}-test-{len(z)}-{len(x)}.zarr", progress=Ticker())
    kernels = time.perf_counter()
    print(f"{name}: kernel {kernels - start:.0f} s ({trained - start:.0f} + {kernels - trained:.0f})", flush=True)
    targets = torch.nn.functional.one_hot(y, 10).float() - 0.1
    solution = ntkit.solve(
        gram, targets, method=ntkit.solvers.BlockedCholesky(rtol=1e-8), ridge=ridge, progress=Ticker()
    )
    solved = time.perf_counter()
    print(f"{name}: solution {solved - kernels:.0f} s. {solution.status}", flush=True)
    right = (cross.product(solution.value.double()).argmax(1) == t).double().mean()
    print(
        f"{name}: accuracy {100 * float(right):.2f} %, whole {(time.perf_counter() - start) / 60:.1f} min", flush=True
    )


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True)
    parser.add_argument("--depth", type=int, default=3)
    parser.add_argument("--n", type=int, default=50_000)
    parser.add_argument("--n-test", type=int, default=10_000)
    parser.add_argument("--ridge", type=float, default=0.0)
    parser.add_argument("--folder")
    parser.add_argument("--no-peer", action="store_true")
    options = parser.parse_args()
    describe()
    data = load(options.data, options.n, options.n_test)
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(options.folder or temporary)
        kernel = ntkit.infinite_width(vanilla_cnn(options.depth)).ntk
        accuracy(kernel, f"cntk-v-{options.depth}", data, folder, options.ridge)
        print(f"Arora et al. 2019, CNTK-V of depth {options.depth} on 50,000: {ARORA.get(options.depth, '-')} %")
        print(f"peak memory so far {peak_memory() / 1e9:.1f} GB (16 GB allowed)")
        if not options.no_peer:
            sample = data[0][:2000].flatten(1)
            width = float(torch.pdist(sample).median())
            accuracy(Gaussian(width), "gaussian", data, folder, 1e-4)


if __name__ == "__main__":
    main()
