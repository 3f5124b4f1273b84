"""Recursive feature machines against xrfm 0.4.5, in the same run on the same data.

Give the Python of an environment that has it: ``python benchmarks/rfm.py --peer PYTHON``. Parts: ``product`` (y = x0 x1, R^2
and seconds with fixed settings, and of the defaults), ``low-rank`` (y = x0 x1 1{x5 > 0}, test error), ``ntk`` (the tangent kernel
of a module), ``uci`` (accuracy of the tuned classifiers, needs ``--uci FILE``).
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import warnings
from pathlib import Path

import numpy as np
import torch

import ntkit
from ntkit.datasets import load_uci
from ntkit.errors import JitterWarning
from ntkit.experiments.feature_learning.rfm_tasks import (
    BANDWIDTH,
    RIDGE,
    TABLES,
    Drawn,
    draw_low_rank,
    draw_product,
    network,
)

CLOCKS = {False: time.perf_counter, True: time.process_time}


class Peer:
    """xrfm in a process of its own; without a Python for it, nothing is compared."""

    def __init__(self, python: str | None, threads: int, cpu_time: bool) -> None:
        self.cpu_time = cpu_time
        self.threads = threads
        self.folder = tempfile.TemporaryDirectory()
        script = Path(__file__).with_name("rfm_peer.py")
        self.process = python and subprocess.Popen(
            [python, str(script)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def __bool__(self) -> bool:
        return bool(self.process)

    def fit(self, x: np.ndarray, y: np.ndarray, x_test: np.ndarray, **job: object) -> tuple[float, np.ndarray]:
        """Give the seconds of the fit, and the predictions."""
        path = Path(self.folder.name) / "data.npz"
        np.savez(path, x=x, y=y.reshape(len(y), -1), x_test=x_test)
        self.process.stdin.write(
            json.dumps({"data": str(path), "threads": self.threads, "cpu_time": self.cpu_time, **job}) + "\n"
        )
        self.process.stdin.flush()
        answer = json.loads(self.process.stdout.readline())
        return answer["seconds"], np.array(answer["predictions"])


def r2(predicted: np.ndarray, y: np.ndarray) -> float:
    """Give the coefficient of determination."""
    return float(1 - np.mean((predicted.ravel() - y) ** 2) / np.var(y))


def product(seed: int) -> Drawn:
    """Draw y = x0 x1 at the size of the comparison."""
    return draw_product(2000, 100, 1500, seed)


FIXED = {"iterations": 5, "ridge": RIDGE, "bandwidth": BANDWIDTH, "diagonal": False}


def part_product(peer: Peer, repeats: int, defaults: bool) -> None:
    """Compare R^2 and seconds on y = x0 x1."""
    for seed in range(3):
        drawn = product(seed)
        x, y, x_test, y_test = drawn.x, drawn.y, drawn.x_test, drawn.y_test
        ours, theirs = [], []
        for _ in range(repeats if seed == 0 else 1):
            start = CLOCKS[peer.cpu_time]()
            model = ntkit.RFMRegressor(power=1.0, **FIXED).fit(x, y)
            ours.append(CLOCKS[peer.cpu_time]() - start)
            if peer:
                seconds, predicted = peer.fit(x, y, x_test, **FIXED)
                theirs.append(seconds)
        line = f"y = x0 x1, seed {seed}: R^2 {r2(model.predict(x_test), y_test):.4f} in {statistics.median(ours):.2f} s"
        if peer:
            line += f"; xrfm {r2(predicted, y_test):.4f} in {statistics.median(theirs):.2f} s"
            if seed == 0:
                line += f"; time ratio {statistics.median(ours) / statistics.median(theirs):.2f} (median of {repeats})"
        print(line, flush=True)
    for seed in range(3 if defaults else 0):
        drawn = product(seed)
        for kernel in ("laplace", "gaussian"):
            start = time.perf_counter()
            model = ntkit.RFMRegressor(kernel=kernel).fit(drawn.x, drawn.y)
            seconds = time.perf_counter() - start
            print(
                f"default, {kernel}, seed {seed}: R^2 {model.score(drawn.x_test, drawn.y_test):.4f} in "
                f"{seconds:.1f} s, {model.choice_.best}",
                flush=True,
            )


def part_low_rank(peer: Peer) -> None:
    """Compare the test error on the low-rank task."""
    ours, half, theirs = [], [], []
    for seed in range(3):
        drawn = draw_low_rank(4000, 20, 4000, seed)
        for errors, power in ((ours, 1.0), (half, 0.5)):
            model = ntkit.RFMRegressor(power=power, scale=None, **FIXED).fit(drawn.x, drawn.y)
            errors.append(float(np.mean((model.predict(drawn.x_test) - drawn.y_test) ** 2)))
        if peer:
            predicted = peer.fit(drawn.x, drawn.y, drawn.x_test, **FIXED)[1].ravel()
            theirs.append(float(np.mean((predicted - drawn.y_test) ** 2)))
        print(
            f"low rank, seed {seed}: test error {ours[-1]:.5f}, power 0.5 {half[-1]:.5f}, xrfm {theirs[-1:]}",
            flush=True,
        )
    print(
        f"low rank, mean: {np.mean(ours):.5f}, power 0.5 {np.mean(half):.5f}, xrfm {np.mean(theirs) if theirs else '-'}"
    )


def part_ntk() -> None:
    """Print R^2 of the machine with a tangent kernel."""
    drawn = draw_product(1000, 50, 1500, 0)
    settings = {"iterations": 4, "ridge": RIDGE, "power": 1.0, "diagonal": False}
    start = time.perf_counter()
    model = ntkit.RFMRegressor(kernel=network(50), b_std=0.1, **settings).fit(drawn.x, drawn.y)
    ntk = model.score(drawn.x_test, drawn.y_test)
    seconds = time.perf_counter() - start
    model = ntkit.RFMRegressor(bandwidth=BANDWIDTH, **settings).fit(drawn.x, drawn.y)
    laplace = model.score(drawn.x_test, drawn.y_test)
    print(
        f"n = 1000, d = 50: R^2 of the NTK machine {ntk:.4f} in {seconds:.1f} s, of Laplace's kernel {laplace:.4f}",
        flush=True,
    )


def part_uci(peer: Peer, path: str, names: list[str]) -> None:
    """Compare accuracies and seconds on the UCI tables."""
    tables = {table.name: table for table in load_uci(path)}
    means, times = [], []
    for name in names:
        table = tables[name]
        scores, spent = [], []
        for fit, test in table.folds:
            x, y, x_test, y_test = table.X[fit], table.y[fit], table.X[test], table.y[test]
            start = CLOCKS[peer.cpu_time]()
            model = ntkit.RFMClassifier().fit(x, y)
            ours = CLOCKS[peer.cpu_time]() - start
            row = [np.mean(model.predict(x_test) == y_test)]
            row.append(np.mean(ntkit.NTKClassifier(tune="loo", calibration=None).fit(x, y).predict(x_test) == y_test))
            theirs = float("nan")
            if peer:
                classes, codes = np.unique(y, return_inverse=True)
                theirs, predicted = peer.fit(x, np.eye(len(classes))[codes], x_test, grid=True, metric="accuracy")
                row.append(np.mean(classes[predicted.argmax(1)] == y_test))
            scores.append(row)
            spent.append((ours, theirs))
        means.append(100 * np.mean(scores, axis=0))
        times.append(np.sum(spent, axis=0))
        print(
            f"{name:30s} RFM {means[-1][0]:.2f}  NTK {means[-1][1]:.2f}"
            + (f"  xrfm {means[-1][2]:.2f}" if peer else "")
            + f"   seconds {times[-1][0]:.1f} against {times[-1][1]:.1f}, ratio {times[-1][0] / times[-1][1]:.2f}",
            flush=True,
        )
    print("mean accuracy: RFM, NTK, xrfm", np.round(np.mean(means, axis=0), 2))
    total = np.sum(times, axis=0)
    ratios = np.array([ours / theirs for ours, theirs in times])
    print(
        f"time ratio to xrfm's grid: in all {total[0] / total[1]:.2f}, median {np.median(ratios):.2f}, largest {ratios.max():.2f}"
    )


def main() -> None:
    """Run the parts that the command line names."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("parts", nargs="*", default=["product", "low-rank", "ntk", "uci"])
    options.add_argument("--peer", help="a Python that has xrfm 0.4.5")
    options.add_argument("--uci", help="the tables, an .npz file as ntkit.datasets.load_uci reads")
    options.add_argument("--sets", nargs="*", default=list(TABLES))
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument(
        "--cpu-time", action="store_true", help="count the processor's time: for a machine that does other work"
    )
    options.add_argument("--no-defaults", action="store_true")
    chosen = options.parse_args()
    torch.set_num_threads(chosen.threads)
    warnings.simplefilter("ignore", JitterWarning)
    peer = Peer(chosen.peer, chosen.threads, chosen.cpu_time)
    if "product" in chosen.parts:
        part_product(peer, chosen.repeats, not chosen.no_defaults)
    if "low-rank" in chosen.parts:
        part_low_rank(peer)
    if "ntk" in chosen.parts:
        part_ntk()
    if "uci" in chosen.parts and chosen.uci:
        part_uci(peer, chosen.uci, chosen.sets)


if __name__ == "__main__":
    main()
