"""What gradient flow costs: fitting at infinite time against one Cholesky factorisation, further times against products.

    python benchmarks/dynamics.py [--n 10000] [--outputs 10] [--threads 2] [--repeats 3] [--no-times]

Times are wall-clock, the best of the repeats, taken alternately; processor seconds are printed beside them, to be believed
where other programs run. Memory is the growth of the process's resident set, in units of the n x n matrix.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import math
import time
from collections.abc import Callable
from pathlib import Path

import torch
from scipy.linalg import lapack
from torch import Tensor, nn

import ntkit


def memory(name: str) -> int:
    """Give the resident bytes of the process now (VmRSS) or their largest number since they were reset (VmHWM)."""
    (line,) = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith(name)]
    return 1024 * int(line.split()[1])


class Peak:
    """The largest resident set while it is open, above what it was before."""

    def __enter__(self) -> Peak:
        gc.collect()
        ctypes.CDLL("libc.so.6").malloc_trim(0)  # give freed memory back, so that what is held shows
        Path("/proc/self/clear_refs").write_text("5")
        self.before = memory("VmRSS")
        return self

    def __exit__(self, *error: object) -> None:
        self.value = memory("VmHWM") - self.before


def seconds(work: Callable[[], object]) -> tuple[float, float]:
    """Give wall-clock and processor seconds."""
    wall, used = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - used


def best(runs: list[tuple[float, float]]) -> tuple[float, float]:
    """Give the best of each kind."""
    return min(run[0] for run in runs), min(run[1] for run in runs)


def lapack_seconds(gram: Tensor, library: str) -> tuple[float, float]:
    """Time one factorisation in place, and nothing else."""
    copy = gram.clone().mT
    if library == "torch":
        info = torch.empty((), dtype=torch.int32)
        return seconds(lambda: torch.linalg.cholesky_ex(copy, out=(copy, info)))
    return seconds(lambda: lapack.dpotrf(copy.numpy(), lower=1, clean=0, overwrite_a=1))


def at_infinity(gram: Tensor, y: Tensor) -> Tensor:
    """Fit, and ask for one point so that the work is done."""
    return ntkit.GradientFlow("precomputed").fit(gram, y).predict(gram[:1])


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--n", type=int, default=10_000)
    parser.add_argument("--outputs", type=int, default=10)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument(
        "--no-times", action="store_true", help="leave out finite times, whose eigendecomposition is slow"
    )
    options = parser.parse_args()
    n, k = options.n, options.outputs
    torch.set_num_threads(options.threads)

    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 20, generator=generator, dtype=torch.float64)
    y = torch.randn(n, k, generator=generator, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(20, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1))
    gram = ntkit.infinite_width(net, b_std=0.1).ntk(x)
    unit = 8 * n * n

    factor: dict[str, list[tuple[float, float]]] = {"torch": [], "scipy": []}
    fits: list[tuple[float, float]] = []
    for _ in range(options.repeats):
        for library, runs in factor.items():
            runs.append(lapack_seconds(gram, library))
        fits.append(seconds(lambda: at_infinity(gram, y)))
    fastest = min((best(runs) for runs in factor.values()), key=lambda one: one[0])
    fit = best(fits)
    for library, runs in factor.items():
        print(f"Cholesky, LAPACK of {library}: {best(runs)[0]:.2f} s wall, {best(runs)[1]:.2f} s processor")
    print(f"fit at infinite time: {fit[0]:.2f} s wall, {fit[1]:.2f} s processor")
    print(
        f"  against the faster Cholesky: {fit[0] / fastest[0]:.2f} wall, {fit[1] / fastest[1]:.2f} processor (1.3 allowed)"
    )
    with Peak() as peak:
        at_infinity(gram, y)
    print(f"  memory at its peak, beside the matrix given: {peak.value / unit:.2f} n^2")
    classes = torch.randint(k, (n,), generator=generator)
    entropy = ntkit.GradientFlow("precomputed", "cross_entropy").fit(gram, classes)
    descent = ntkit.Descent(entropy.max_learning_rate() / 2)
    steps = seconds(lambda: entropy.predict(None, 20, descent=descent))
    print(f"a step of gradient descent on cross-entropy: {steps[0] / 20:.3f} s wall, {steps[1] / 20:.3f} s processor")
    if options.no_times:
        return

    with Peak() as peak:
        flow = ntkit.GradientFlow("precomputed").fit(gram, y, overwrite=True)
        first = seconds(lambda: flow.predict(None, 1.0))
    print(f"first finite time (eigendecomposition): {first[0]:.1f} s wall, {first[1]:.1f} s processor")
    print(f"  memory at its peak, with the matrix given and overwritten: {1 + peak.value / unit:.2f} n^2 (3 allowed)")
    # New points: as many as training points, so that both products are n x n by n x k.
    other = torch.randn(n, n, generator=generator, dtype=torch.float64)
    columns = torch.randn(n, k, generator=generator, dtype=torch.float64)
    vectors = flow._squared.spectrum.vectors
    products, further = [], []
    for number in range(2 * options.repeats + 1):
        products.append(seconds(lambda: (other @ columns, vectors @ columns)))
        further.append(seconds(lambda t=2.0 + number: flow.predict(other, t)))
    one, two = best(products), best(further)
    print(f"a further time at n new points: {two[0]:.3f} s wall, {two[1]:.3f} s processor")
    print(f"  against two matrix products: {two[0] / one[0]:.2f} wall, {two[1] / one[1]:.2f} processor")
    assert math.isfinite(float(flow.loss_at(1.0)))


if __name__ == "__main__":
    main()
