"""The error of the native engine's single precision on real images, against double precision.

    python benchmarks/precision.py --data cifar.npz

Images, copies of them, near copies (a little noise) and multiples; worst relative error of a Gram entry, and of those between an
image and itself. Without ``--data`` the images are smooth random fields.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import numpy as np
import torch
from rich.console import Console
from rich.table import Table
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


def main() -> None:
    """Run all of it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path)
    parser.add_argument(
        "--count", type=int, default=12, help="images for the average head; ten times as many for flatten"
    )
    parser.add_argument("--depths", type=int, nargs="+", default=[3, 6, 11, 20])
    options = parser.parse_args()
    table = Table(title="worst relative error in single precision")
    for column in (
        "head",
        "convolutions",
        "all entries",
        "x with itself",
        "x with a near copy",
        "symmetric to the bit",
    ):
        table.add_column(column, justify="left" if column == "head" else "right")
    for head in HEADS:
        count = options.count * (10 if head == "flatten" else 1)
        x = images(count, options.data)
        noise = torch.randn(x[:4].shape, generator=torch.Generator().manual_seed(1))
        # Rounded to single precision here, so that both computations start from the same numbers.
        x = torch.cat([x, x[:4], x[:4] + 1e-3 * noise, x[:4] + 1e-5 * noise, 1.7 * x[:4]])
        for depth in options.depths:
            kernel = ntkit.infinite_width(network(depth, head, 32)).ntk
            single, double = kernel(x, engine="native"), kernel(x.double(), engine="native")
            error = (single.double() - double).abs() / double.abs()
            own = torch.cat([error.diagonal(), error[:4, count : count + 4].diagonal()])
            near = torch.cat([error[:4, count + start : count + start + 4].diagonal() for start in (4, 8)])
            table.add_row(head, str(depth), *(f"{part.max():.1e}" for part in (error, own, near)),
                          str(torch.equal(single, single.T)))  # fmt: skip
    Console().print(table)


if __name__ == "__main__":
    main()
