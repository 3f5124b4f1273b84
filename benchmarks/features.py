"""Times and memory of feature-learning measurements, against plain PyTorch on the same network in the same run.

    python benchmarks/features.py [--threads 2] [--cpu-time] [--store] [covariance memory recorder optimizer]

``covariance``: K of every layer of 784-512-512-512-10 on 1,000 samples, float32, against ``torch.func.vmap(jacrev)`` of the
outputs in the pre-activations, after its warm-up. ``memory``: the peak of a process that computes AGOP and K of every layer of
3072-4x2048-1 on 10,000 samples. ``recorder``: a measurement of the network of figure 4 in training steps, and what a step
without one costs more.
``optimizer``: a step of SpeedLimited against torch.optim.SGD (foreach). All alternately, medians of several turns.
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise
from typing import Any

import torch
from history import Table, add_store, number, publish, started, threads
from scale_common import apart
from torch import Tensor, nn
from torch.func import jacrev, vmap

from ntkit import features

CLOCKS = {False: time.perf_counter, True: time.process_time}


def mlp(*widths: int) -> nn.Sequential:
    """Give a ReLU network without biases."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in pairwise(widths):
        layers += [nn.Linear(fan_in, fan_out, bias=False), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def alternately(clock: Callable[[], float], turns: int, *functions: Callable[[], object]) -> list[float]:
    """Give the median time of each function, called in turns."""
    times: list[list[float]] = [[] for _ in functions]
    for _ in range(turns):
        for function, own in zip(functions, times, strict=True):
            start = clock()
            function()
            own.append(clock() - start)
    return [statistics.median(own) for own in times]


def covariance(clock: Callable[[], float], turns: int) -> list[list[str]]:
    """Compare K of every layer with vmap(jacrev)."""
    net, x = mlp(784, 512, 512, 512, 10), torch.randn(1000, 784)
    weights = [layer.weight.detach() for layer in net[::2]]

    def outputs(x: Tensor, shifts: list[Tensor]) -> Tensor:
        for layer, (weight, shift) in enumerate(zip(weights, shifts, strict=True)):
            h = weight @ x + shift
            x = torch.relu(h) if layer < len(weights) - 1 else h
        return x

    zeros = [torch.zeros(len(weight)) for weight in weights]
    jacobian = vmap(jacrev(outputs, argnums=1), in_dims=(0, None))

    def theirs() -> list[Tensor]:
        return [torch.einsum("aci,acj->ij", J, J) / len(x) for J in jacobian(x, zeros)]

    def ours() -> list[Tensor]:
        return list(features.ptk_covariance(net, x).values())

    for a, b in zip(ours(), theirs(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * float(b.abs().max()))
    mine, peer = alternately(clock, turns, ours, theirs)
    what = "K of every layer of 784-512-512-512-10, n 1000, float32"
    return [[what, f"{mine:.3f} s", f"{peer:.3f} s, `vmap(jacrev)`"]]


def agop_and_covariance(widths: list[int], samples: int, threads: int) -> dict[str, Any]:
    """Compute both, for ``memory``; widths of all layers, from the input to the output."""
    torch.set_num_threads(threads)
    net, x = mlp(*widths), torch.randn(samples, widths[0])
    features.agop(net, x)
    features.ptk_covariance(net, x)
    return {}


def memory(_clock: Callable[[], float], _turns: int) -> list[list[str]]:
    """Give the peak memory of a process of its own."""
    widths = [3072, 2048, 2048, 2048, 2048, 1]
    found = apart(agop_and_covariance, widths=widths, samples=10_000, threads=torch.get_num_threads())
    peak = found.get("failed") or f"{found['memory'] / 1e9:.2f} GB"
    return [["AGOP and K of 3072-4x2048-1, n 10,000: peak memory", peak, ""]]


def recorder(clock: Callable[[], float], turns: int) -> list[list[str]]:
    """Tell what a measurement and a step without one cost."""
    net, x, y = mlp(32, 256, 256, 1), torch.randn(256, 32), torch.randn(256, 1)
    optimizer = torch.optim.SGD(net.parameters(), 1e-3)
    watcher = features.Recorder(net, x, every=10**9)
    count = 300

    def steps() -> None:
        for _ in range(count):
            optimizer.zero_grad()
            loss = (net(x) - y).square().mean()
            loss.backward()
            optimizer.step()

    def counted() -> None:
        for _ in range(count):
            watcher.step(train=0.0, test=0.0)

    plain, idle, measured = alternately(clock, turns, steps, counted, lambda: [watcher.measure() for _ in range(20)])
    step = plain / count
    return [
        [
            "a measurement of 32-256-256-1, n 256",
            f"{measured / 20 / step:.1f} training steps",
            f"{1e3 * step:.2f} ms a step",
        ],
        ["a step that is not measured", f"+ {100 * idle / plain:.2f} %", ""],
    ]


def optimizer(clock: Callable[[], float], turns: int) -> list[list[str]]:
    """Compare a step of SpeedLimited with one of SGD."""
    steps = []
    for widths, count in (((32, 256, 256, 1), 500), ((784, 1024, 1024, 1024, 10), 20)):
        net = mlp(*widths)
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
        both = (
            features.SpeedLimited(net.named_parameters(), 1e-6),
            torch.optim.SGD(net.parameters(), 1e-6, foreach=True),
        )
        mine, peer = alternately(clock, turns, *(partial(_steps, method, count) for method in both))
        steps.append([f"{number(1e3 * seconds / count)} ms" for seconds in (mine, peer)])
    ours, theirs = ("; ".join(side) for side in zip(*steps, strict=True))
    return [["a step of `SpeedLimited`, 32-256-256-1; 784-3x1024-10", ours, f"{theirs}, SGD (foreach)"]]


def _steps(method: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        method.step()


PARTS: dict[str, Callable[[Callable[[], float], int], list[list[str]]]] = {
    "covariance": covariance,
    "memory": memory,
    "recorder": recorder,
    "optimizer": optimizer,
}


def main() -> None:
    """Run the parts that the command line names."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", default=list(PARTS))
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--turns", type=int, default=5)
    options.add_argument(
        "--cpu-time", action="store_true", help="count the processor's time: for a machine that does other work"
    )
    add_store(options)
    chosen = options.parse_args()
    start = started()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    rows = [
        row
        for name, part in PARTS.items()
        if name in chosen.parts
        for row in part(CLOCKS[chosen.cpu_time], chosen.turns)
    ]
    caption = (
        f"{'Processor time' if chosen.cpu_time else 'Time'} and memory of measurements of features, float32, {threads()}, "
        f"median of {chosen.turns} alternating turns."
    )
    publish("features", [Table(["what", "ntkit", "plain PyTorch"], rows, caption)], start, chosen.store)


if __name__ == "__main__":
    main()
