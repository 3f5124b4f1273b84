"""Times calls with few rows or columns: processor time per entry of the native engine, on one thread.

    python benchmarks/small_calls.py [--repeats 3] [--store]

3 x (3x3 convolution, ReLU) with flatten on 32x32x3 images and with average pooling on 8x8x3 images, both precisions. Then whole
calls with 10 inputs, where Python and the calls of the core take most of the time, and a phase diagram: one call for 200 gains.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from history import Table, add_store, publish, started
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


def calls(x: Tensor) -> dict[str, tuple[Tensor, Tensor | None]]:
    """Name the calls; x has 100 images, and without second images a call is a Gram matrix."""
    return {
        "1 x 1": (x[:1], x[1:2]),
        "Gram of 4": (x[:4], None),
        "Gram of 8": (x[:8], None),
        "Gram of 64": (x[:64], None),
        "1 x 100": (x[:1], x),
        "100 x 1": (x, x[:1]),
        "64 x 64": (x[:64], x[:64].clone()),
    }


def measure(side: int, pooled: bool, dtype: torch.dtype, repeats: int) -> dict[str, float]:
    """Give the processor seconds for one entry, the best of some, for each call."""
    kernel = ntkit.infinite_width(network(side, pooled)).ntk
    x = torch.rand(100, 3, side, side, generator=torch.Generator().manual_seed(0), dtype=dtype)
    kernel(x[:2], x[:2], engine="native")  # plans the tape
    best = {}
    for name, (rows, columns) in calls(x).items():
        seconds = []
        for _ in range(repeats):
            start = time.process_time()
            kernel(rows, columns, engine="native")
            seconds.append(time.process_time() - start)
        best[name] = min(seconds) / (len(rows) * len(rows if columns is None else columns))
    return best


def whole_calls(network: nn.Module, shape: tuple[int, ...], dtype: torch.dtype, repeats: int) -> dict[str, float]:
    """Give the processor seconds of one call with 10 inputs, the best of some; of the grid, for one of its gains."""
    limit = ntkit.infinite_width(network, b_std=0.1)
    x = torch.randn(10, *shape, generator=torch.Generator().manual_seed(0), dtype=dtype)
    other, grid = x.clone(), torch.cartesian_prod(torch.linspace(0.5, 2, 20), torch.linspace(0.1, 1, 10))
    calls: dict[str, tuple[Callable[[], object], int]] = {
        "Gram of 10": (lambda: limit.ntk(x), 1),
        "10 x 10": (lambda: limit.ntk(x, other), 1),
        "diagonal of 10": (lambda: limit.ntk.diag(x), 1),
        "Gram of 10 with new gains": (lambda: limit.with_gains(1.3, 0.2).ntk(x), 1),
        "Gram of 10, one of 200 gains": (lambda: limit.ntk(x, gains=grid), len(grid)),
    }
    best = {}
    for name, (call, count) in calls.items():
        call()  # reads the module and plans
        seconds = []
        for _ in range(20 * repeats):
            start = time.process_time()
            call()
            seconds.append(time.process_time() - start)
        best[name] = min(seconds) / count
    return best


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=3)
    add_store(parser)
    options = parser.parse_args()
    start = started()
    torch.set_num_threads(1)
    header, columns = ["call"], []
    for side, pooled, head in ((32, False, "flatten, 32x32"), (8, True, "average pooling, 8x8")):
        for dtype, label in ((torch.float64, f"{head}, float64"), (torch.float32, "float32")):
            header.append(label)
            columns.append(measure(side, pooled, dtype, options.repeats))
    rows = [[name, *(_microseconds(column[name]) for column in columns)] for name in columns[0]]
    caption = (
        "Microseconds of processor time for one entry of the NTK of 3 x (conv, ReLU), native engine, one thread, "
        f"best of {options.repeats} calls."
    )
    tables = [Table(header, rows, caption)]
    dense = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 1))
    header, columns = ["call"], []
    for net, shape, name in ((dense, (16,), "3 dense layers"), (network(8, False), (3, 8, 8), "3 x conv, 8x8")):
        for dtype, label in ((torch.float64, f"{name}, float64"), (torch.float32, "float32")):
            header.append(label)
            columns.append(whole_calls(net, shape, dtype, options.repeats))
    rows = [[name, *(_microseconds(column[name]) for column in columns)] for name in columns[0]]
    caption = f"Microseconds of processor time for a whole call, one thread, best of {20 * options.repeats}; of the grid, for one gain."
    publish("small_calls", [*tables, Table(header, rows, caption)], start, options.store)


def _microseconds(seconds: float) -> str:
    return f"{1e6 * seconds:.{0 if seconds >= 1e-5 else 1}f}"


if __name__ == "__main__":
    main()
