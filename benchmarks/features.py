"""Times and memory of feature-learning measurements, against plain PyTorch on the same network in the same run.

    python benchmarks/features.py [--threads 2] [--cpu-time] [covariance memory recorder optimizer]

``covariance``: K of every layer of 784-512-512-512-10 on 1,000 samples, float32, against ``torch.func.vmap(jacrev)`` of the
outputs in the pre-activations, after its warm-up. ``memory``: the peak of a process that computes AGOP and K of every layer of
3072-4x2048-1 on 10,000 samples. ``recorder``: a measurement of the network of figure 4 in training steps, and what a step
without one costs more.
``optimizer``: a step of SpeedLimited against torch.optim.SGD (foreach). All alternately, medians of several turns.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from itertools import pairwise

import torch
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


def covariance(clock: Callable[[], float], turns: int) -> None:
    """Compare K of every layer with vmap(jacrev)."""
    net, x = mlp(784, 512, 512, 512, 10), torch.randn(1000, 784)
    weights = [layer.weight.detach() for layer in net[::2]]

    def outputs(x: Tensor, shifts: list[Tensor]) -> Tensor:
        for number, (weight, shift) in enumerate(zip(weights, shifts, strict=True)):
            h = weight @ x + shift
            x = torch.relu(h) if number < len(weights) - 1 else h
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
    print(f"K of 784-512-512-512-10, n = 1000: {mine:.3f} s, vmap(jacrev) {peer:.3f} s, ratio {mine / peer:.2f}")


def memory() -> None:
    """Print the peak memory of a process of its own."""
    script = (
        "import sys, torch, time; sys.path.insert(0, sys.argv[1]); from features import mlp; from ntkit import features;"
        "import resource; net, x = mlp(3072, 2048, 2048, 2048, 2048, 1), torch.randn(10000, 3072); start = time.perf_counter();"
        "features.agop(net, x); features.ptk_covariance(net, x);"
        "peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20;"
        "print(f'AGOP and K of 3072-4x2048-1, n = 10000: peak {peak:.2f} GB, {time.perf_counter() - start:.0f} s')"
    )
    subprocess.run([sys.executable, "-c", script, str(__file__).rsplit("/", 1)[0]], check=True)


def recorder(clock: Callable[[], float], turns: int) -> None:
    """Print what a measurement and a step without one cost."""
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
    print(f"a measurement of 32-256-256-1, n = 256: {measured / 20 / step:.1f} training steps of {1e3 * step:.2f} ms")
    print(f"a step that is not measured: {100 * idle / plain:+.3f} %")


def optimizer(clock: Callable[[], float], turns: int) -> None:
    """Compare a step of SpeedLimited with one of SGD."""
    for widths, count in (((32, 256, 256, 1), 500), ((784, 1024, 1024, 1024, 10), 20)):
        net = mlp(*widths)
        for parameter in net.parameters():
            parameter.grad = torch.randn_like(parameter)
        both = (
            features.SpeedLimited(net.named_parameters(), 1e-6),
            torch.optim.SGD(net.parameters(), 1e-6, foreach=True),
        )
        mine, peer = alternately(clock, turns, *(partial(_steps, method, count) for method in both))
        name = "-".join(map(str, widths))
        print(
            f"a step of SpeedLimited, {name}: {1e3 * mine / count:.3f} ms, SGD (foreach) {1e3 * peer / count:.3f} ms, "
            f"ratio {mine / peer:.2f}"
        )


def _steps(method: torch.optim.Optimizer, count: int) -> None:
    for _ in range(count):
        method.step()


def main() -> None:
    """Run the parts that the command line names."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", default=["covariance", "memory", "recorder", "optimizer"])
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--turns", type=int, default=5)
    options.add_argument(
        "--cpu-time", action="store_true", help="count the processor's time: for a machine that does other work"
    )
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    torch.manual_seed(0)
    clock = CLOCKS[chosen.cpu_time]
    if "covariance" in chosen.parts:
        covariance(clock, chosen.turns)
    if "recorder" in chosen.parts:
        recorder(clock, chosen.turns)
    if "optimizer" in chosen.parts:
        optimizer(clock, chosen.turns)
    if "memory" in chosen.parts:
        memory()


if __name__ == "__main__":
    main()
