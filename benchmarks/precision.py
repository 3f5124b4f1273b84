"""The errors of the native engine: of single precision on real images, and of double precision against the reference engine.

    python benchmarks/precision.py --data cifar.npz [--store]

Images, copies of them, near copies (a little noise) and multiples; worst relative error of a Gram entry, and of those between an
image and itself. Every matrix must be symmetric to the bit, or the run fails. Then near copies where average pooling lies
between layers, double precision against the reference engine, and inputs that are nearly parallel but of different size.
Without ``--data`` the images are smooth random fields.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from cases import CASES
from history import Table, add_store, publish, started
from rich.progress import track
from run import module
from scale_common import relu_network
from scaling import HEADS, network
from torch import Tensor

import ntkit

NOISES = (1e-2, 7e-4, 5e-5)  # of near copies, relative to the image
POOLED = {"Myrtle-5": "myrtle 5", "Myrtle-10": "myrtle 10"}


def images(count: int, data: Path | None) -> Tensor:
    """Give standardised images, shape (count, 3, 32, 32)."""
    if data is None:
        coarse = torch.randn(count, 3, 8, 8, generator=torch.Generator().manual_seed(0))
        return torch.nn.functional.interpolate(coarse, size=(32, 32), mode="bilinear")
    with np.load(data) as arrays:
        pixels = torch.from_numpy(np.asarray(arrays["x_train"][:count])).permute(0, 3, 1, 2).float() / 255
    return (pixels - pixels.mean((0, 2, 3), keepdim=True)) / pixels.std((0, 2, 3), keepdim=True)


def errors(depth: int, head: str, x: Tensor) -> list[float]:
    """Give the worst errors of a Gram matrix: of all entries, of x with itself, of x with a near copy."""
    count = len(x)
    noise = torch.randn(x[:4].shape, generator=torch.Generator().manual_seed(1))
    # Rounded to single precision here, so that both computations start from the same numbers.
    x = torch.cat([x, x[:4], x[:4] + 1e-3 * noise, x[:4] + 1e-5 * noise, 1.7 * x[:4]])
    kernel = ntkit.infinite_width(network(depth, head, 32)).ntk
    single, double = kernel(x, engine="native"), kernel(x.double(), engine="native")
    assert torch.equal(single, single.T), f"{head}, {depth} convolutions: not symmetric"
    error = (single.double() - double).abs() / double.abs()
    own = torch.cat([error.diagonal(), error[:4, count : count + 4].diagonal()])
    near = torch.cat([error[:4, count + start : count + start + 4].diagonal() for start in (4, 8)])
    return [float(part.max()) for part in (error, own, near)]


def single_errors(count: int, depths: list[int], data: Path | None, of: str) -> Table:
    """Give the errors of single precision without pooling between layers."""
    rows = []
    for head, depth in track([(head, depth) for head in HEADS for depth in depths]):
        x = images(count * (10 if head == "flatten" else 1), data)
        rows.append([head, str(depth), *map(_power, errors(depth, head, x))])
    caption = (
        f"Largest relative error of an entry of the NTK in float32, against the native engine in float64, on {of}."
    )
    return Table(["head", "convolutions", "all entries", "x with itself", "x with a near copy"], rows, caption)


def pooled_errors(x: Tensor, of: str) -> Table:
    """Give the errors of single precision between images and near copies of them, with pooling between layers."""
    direction = torch.randn(x.shape, generator=torch.Generator().manual_seed(1))
    direction *= x.flatten(1).norm(dim=1).view(-1, 1, 1, 1) / direction.flatten(1).norm(dim=1).view(-1, 1, 1, 1)
    rows = []
    for name, case in POOLED.items():
        kernel = ntkit.infinite_width(module(CASES[case])).ntk
        found = []
        for noise in NOISES:
            near = x + noise * direction
            double = kernel(x.double(), near.double(), engine="native")
            found.append(float(((kernel(x, near, engine="native").double() - double) / double).abs().max()))
        rows.append([name, *map(_power, found)])
    caption = (
        f"The same with average pooling between layers, of {len(x)} images with near copies of them, by the size of the noise "
        f"relative to the image, on {of}."
    )
    return Table(["network", *(f"{noise:g}" for noise in NOISES)], rows, caption)


def engine_differences(x: Tensor, of: str) -> Table:
    """Give the largest relative differences between the engines in double precision."""
    x = torch.cat([x, x[:1], x[:1] + 1e-3 * x[1:2], 1.7 * x[:1]]).double()
    networks = {f"{depth} x (conv, ReLU), {head}": network(depth, head, 32) for depth in (3, 6) for head in HEADS}
    rows = []
    for name, net in track(networks.items()):
        rows.append([name, _power(_difference(ntkit.infinite_width(net).ntk, x))])
    caption = (
        f"Largest relative difference of an entry of the NTK between the native and the reference engine in float64, on {of}, "
        "with a copy, a near copy and a multiple of one among them."
    )
    return Table(["network", "difference"], rows, caption)


def parallel_differences() -> Table:
    """Give the differences between the engines on x and 1000 (x + e u), of norms one, in 30 draws of 20 features."""
    sizes = (1e-2, 1e-4, 1e-6, 1e-8)
    rows = []
    for hidden in (1, 3):
        net = relu_network(20, hidden)
        net[0].bias = None  # type: ignore[index, assignment]
        kernel = ntkit.infinite_width(net, b_std=0.5).ntk
        found = []
        for size in sizes:
            draws = torch.Generator().manual_seed(0)
            worst = 0.0
            for _ in range(30):
                x, u = (one / one.norm() for one in torch.randn(2, 1, 20, dtype=torch.float64, generator=draws))
                worst = max(worst, _difference(kernel, torch.cat([x, 1000 * (x + size * u)])))
            found.append(worst)
        rows.append([str(hidden), *map(_power, found)])
    caption = (
        "The same for vectors x and 1000 (x + e u), |x| = |u| = 1, by e; fully connected networks whose first layer has no bias, "
        "b_std 0.5, 30 draws of 20 features."
    )
    return Table(["hidden layers", *(f"{size:g}" for size in sizes)], rows, caption)


def _difference(kernel: ntkit.Kernel, x: Tensor) -> float:
    reference = kernel(x, engine="reference")
    return float(((kernel(x, engine="native") - reference) / reference).abs().max())


def _power(value: float) -> str:
    return f"{value:.1e}"


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument(
        "--count", type=int, default=12, help="images for the average head; ten times as many for flatten"
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[3, 6, 11, 20])
    add_store(parser)
    options = parser.parse_args()
    start = started()
    of = "smooth random fields" if options.data is None else f"images of {options.data.name}"
    tables = [
        single_errors(options.count, options.depths, options.data, of),
        pooled_errors(images(options.count, options.data), of),
        engine_differences(images(4, options.data), of),
        parallel_differences(),
    ]
    publish("precision", tables, start, options.store)


if __name__ == "__main__":
    main()
