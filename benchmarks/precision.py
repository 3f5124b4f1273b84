"""The error of the native engine's single precision on real images, against double precision.

    python benchmarks/precision.py --data cifar.npz [--store]

Images, copies of them, near copies (a little noise) and multiples; worst relative error of a Gram entry, and of those between an
image and itself. Every matrix must be symmetric to the bit, or the run fails. Without ``--data`` the images are smooth random
fields.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from history import Table, add_store, publish, started
from rich.progress import track
from scaling import HEADS, network
from torch import Tensor

import ntkit


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
    rows = []
    for head, depth in track([(head, depth) for head in HEADS for depth in options.depths]):
        x = images(options.count * (10 if head == "flatten" else 1), options.data)
        rows.append([head, str(depth), *(f"{error:.1e}" for error in errors(depth, head, x))])
    of = "smooth random fields" if options.data is None else f"images of {options.data.name}"
    caption = (
        f"Largest relative error of an entry of the NTK in float32, against the native engine in float64, on {of}."
    )
    header = ["head", "convolutions", "all entries", "x with itself", "x with a near copy"]
    publish("precision", [Table(header, rows, caption)], start, options.store)


if __name__ == "__main__":
    main()
