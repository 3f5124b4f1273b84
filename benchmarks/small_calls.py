"""Times calls with few rows or columns: processor time per entry of the native engine, on one thread.

    python benchmarks/small_calls.py [--repeats 3]

3 x (3x3 convolution, ReLU) with flatten on 32x32x3 images and with average pooling on 8x8x3 images, both precisions. The
yardstick is the Gram matrix of 64 images in the same run.
"""

from __future__ import annotations

import argparse
import time

import torch
from torch import Tensor, nn

import ntkit


def network(side: int, pooled: bool) -> nn.Module:
    """Build the network."""
    layers: list[nn.Module] = []
    for channels in (3, 4, 4):
        layers += [nn.Conv2d(channels, 4, 3, padding=1), nn.ReLU()]
    head = (
        [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)]
        if pooled
        else [nn.Flatten(), nn.Linear(4 * side**2, 1)]
    )
    return nn.Sequential(*layers, *head)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    repeats = parser.parse_args().repeats
    torch.set_num_threads(1)
    for side, pooled in ((32, False), (8, True)):
        kernel = ntkit.infinite_width(network(side, pooled)).ntk
        for dtype in (torch.float64, torch.float32):
            x = torch.rand(100, 3, side, side, generator=torch.Generator().manual_seed(0), dtype=dtype)
            kernel(x[:2], x[:2], engine="native")  # plans the tape
            calls: dict[str, tuple[Tensor, Tensor | None]] = {
                "Gram of 64": (x[:64], None),
                "Gram of 8": (x[:8], None),
                "Gram of 4": (x[:4], None),
                "1 x 1": (x[:1], x[1:2]),
                "1 x 100": (x[:1], x),
                "100 x 1": (x, x[:1]),
                "64 x 64": (x[:64], x[:64].clone()),
            }
            yardstick = None
            for name, (rows, columns) in calls.items():
                seconds = []
                for _ in range(repeats):
                    start = time.process_time()
                    kernel(rows, columns, engine="native")
                    seconds.append(time.process_time() - start)
                each = 1e6 * min(seconds) / (len(rows) * len(rows if columns is None else columns))
                yardstick = yardstick or each
                head = "average pooling" if pooled else "flatten"
                print(
                    f"{head:16s} {dtype!s:14s} {name:11s} {each:9.1f} us per entry, {each / yardstick:6.1f} x Gram of 64"
                )


if __name__ == "__main__":
    main()
