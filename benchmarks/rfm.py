"""Recursive feature machines against xrfm 0.4.5, in the same run on the same data.

    python benchmarks/rfm.py --peer PYTHON [--uci FILE] [--cpu-time] [--threads 1] [--store] [product low-rank ntk uci others]

PYTHON is that of an environment that has xrfm. ``product``: y = x0 x1, R^2 and seconds with fixed settings, and R^2 of the
defaults. ``low-rank``: y = x0 x1 1{x5 > 0}, test error. ``ntk``: the tangent kernel of a module. ``uci``: accuracy of the tuned
classifiers on the tables of the experiment ``rfm_tasks``; ``others``: on the file's other tables of 90 to 600 rows.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import tempfile
import time
import warnings
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from history import MISSING, Table, add_store, number, publish, started, threads
from rich.progress import track

import ntkit
from ntkit.errors import JitterWarning
from ntkit_studies import SplitTable, load_uci
from ntkit_studies.feature_learning.rfm_tasks import (
    BANDWIDTH,
    RIDGE,
    TABLES,
    Drawn,
    draw_low_rank,
    draw_product,
    network,
)

CLOCKS = {False: time.perf_counter, True: time.process_time}
SEEDS = range(3)
OTHER_ROWS = range(90, 600)  # fewer are noise, more take hours


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


def part_product(peer: Peer, repeats: int, defaults: bool) -> list[list[str]]:
    """Compare R^2 and seconds on y = x0 x1 with fixed settings, and give R^2 of the defaults if asked."""
    clock = CLOCKS[peer.cpu_time]
    scores: tuple[list[float], list[float]] = ([], [])
    seconds: tuple[list[float], list[float]] = ([], [])
    for seed in SEEDS:
        drawn = product(seed)
        for _ in range(repeats if seed == 0 else 1):
            start = clock()
            model = ntkit.RFMRegressor(power=1.0, **FIXED).fit(drawn.x, drawn.y)
            spent = [clock() - start]
            predictions = [model.predict(drawn.x_test)]
            if peer:
                theirs, predicted = peer.fit(drawn.x, drawn.y, drawn.x_test, **FIXED)
                spent.append(theirs)
                predictions.append(predicted)
            if seed == 0:
                for side, one in zip(seconds, spent, strict=False):
                    side.append(one)
        for side, predicted in zip(scores, predictions, strict=False):
            side.append(r2(predicted, drawn.y_test))
    settings = "y = x0 x1, n 2000, d 100, Laplace, bandwidth 10, ridge 1e-3, power 1, 5 updates"
    medians = [f"{statistics.median(side):.2f}" if side else "" for side in seconds]
    rows = [
        [f"{settings}: R^2 of {len(SEEDS)} seeds", *map(_listed, scores)],
        [f"seconds of that fit (median of {repeats})", *medians],
    ]
    if defaults:
        both = "; ".join(
            _listed([_default_score(kernel, seed) for seed in SEEDS]) for kernel in ("laplace", "gaussian")
        )
        rows.append([f"the same, `RFMRegressor()`, Laplace; Gaussian ({len(SEEDS)} seeds)", both, ""])
    return rows


def _default_score(kernel: str, seed: int) -> float:
    drawn = product(seed)
    return float(ntkit.RFMRegressor(kernel=kernel).fit(drawn.x, drawn.y).score(drawn.x_test, drawn.y_test))


def _listed(scores: list[float]) -> str:
    return ", ".join(f"{score:.4f}" for score in scores)


def part_low_rank(peer: Peer) -> list[list[str]]:
    """Compare the test error on the low-rank task."""
    ours: list[float] = []
    half: list[float] = []
    theirs: list[float] = []
    for seed in SEEDS:
        drawn = draw_low_rank(4000, 20, 4000, seed)
        for errors, power in ((ours, 1.0), (half, 0.5)):
            model = ntkit.RFMRegressor(power=power, scale=None, **FIXED).fit(drawn.x, drawn.y)
            errors.append(float(np.mean((model.predict(drawn.x_test) - drawn.y_test) ** 2)))
        if peer:
            predicted = peer.fit(drawn.x, drawn.y, drawn.x_test, **FIXED)[1].ravel()
            theirs.append(float(np.mean((predicted - drawn.y_test) ** 2)))
    what = f"y = x0 x1 1{{x5 > 0}}, mean test error of {len(SEEDS)} seeds, power 1; power 0.5"
    return [[what, f"{np.mean(ours):.5f}; {np.mean(half):.5f}", f"{np.mean(theirs):.5f}" if theirs else ""]]


def part_ntk() -> list[list[str]]:
    """Give R^2 of the machine with a tangent kernel, and with Laplace's."""
    drawn = draw_product(1000, 50, 1500, 0)
    settings = {"iterations": 4, "ridge": RIDGE, "power": 1.0, "diagonal": False}
    model = ntkit.RFMRegressor(kernel=network(50), b_std=0.1, **settings).fit(drawn.x, drawn.y)
    ntk = model.score(drawn.x_test, drawn.y_test)
    model = ntkit.RFMRegressor(bandwidth=BANDWIDTH, **settings).fit(drawn.x, drawn.y)
    laplace = model.score(drawn.x_test, drawn.y_test)
    return [["NTK of one hidden layer, n 1000, d 50: R^2 (Laplace)", f"{ntk:.4f} ({laplace:.4f})", ""]]


@dataclass(frozen=True)
class Compared:
    """What the classifiers did on a table.

    Attributes
    ----------
    name, rows
        Of the table.
    rfm, ntk, xrfm
        Mean accuracies over the folds, in percent; of xrfm None without the peer.
    seconds, peer_seconds
        Of the fits of all folds.
    """

    name: str
    rows: int
    rfm: float
    ntk: float
    xrfm: float | None
    seconds: float
    peer_seconds: float | None


def compare(peer: Peer, table: SplitTable) -> Compared:
    """Fit every classifier on every fold of a table."""
    clock = CLOCKS[peer.cpu_time]
    right: dict[str, list[float]] = {"rfm": [], "ntk": [], "xrfm": []}
    ours = theirs = 0.0
    for fit, test in table.folds:
        x, y, x_test, y_test = table.X[fit], table.y[fit], table.X[test], table.y[test]
        start = clock()
        model = ntkit.RFMClassifier().fit(x, y)
        ours += clock() - start
        right["rfm"].append(float(np.mean(model.predict(x_test) == y_test)))
        plain = ntkit.NTKClassifier(tune="loo", calibration=None).fit(x, y)
        right["ntk"].append(float(np.mean(plain.predict(x_test) == y_test)))
        if peer:
            classes, codes = np.unique(y, return_inverse=True)
            seconds, predicted = peer.fit(x, np.eye(len(classes))[codes], x_test, grid=True, metric="accuracy")
            theirs += seconds
            right["xrfm"].append(float(np.mean(classes[predicted.argmax(1)] == y_test)))
    means = {name: 100 * float(np.mean(each)) if each else None for name, each in right.items()}
    return Compared(table.name, len(table.X), **means, seconds=ours, peer_seconds=theirs if peer else None)


def groups(path: str | None, names: list[str], parts: list[str]) -> dict[str, list[SplitTable]]:
    """Name the groups of tables that are asked for, and give each its tables; none without a file."""
    tables = {table.name: table for table in load_uci(path)} if path else {}
    found = {}
    if tables and "uci" in parts:
        found["UCI tables"] = [tables[name] for name in names]
    others = [table for table in tables.values() if table.name not in TABLES and len(table.X) in OTHER_ROWS]
    if others and "others" in parts:
        sizes = [len(table.X) for table in others]
        found[f"other UCI tables of {min(sizes)} to {max(sizes)} rows"] = others
    return found


def uci_rows(found: list[Compared], which: str) -> list[list[str]]:
    """Sum up a group of tables."""
    theirs = [one.xrfm for one in found if one.xrfm is not None]
    what = f"{len(found)} {which}, 4 folds, mean accuracy, `RFMClassifier()` against its best of 8 settings"
    rows = [
        [what, f"{np.mean([one.rfm for one in found]):.2f}", f"{np.mean(theirs):.2f}" if theirs else ""],
        ['`NTKClassifier(tune="loo")` on these', f"{np.mean([one.ntk for one in found]):.2f}", ""],
    ]
    pairs = np.array([(one.seconds, one.peer_seconds) for one in found if one.peer_seconds])
    if len(pairs):
        ratios = pairs[:, 0] / pairs[:, 1]
        relative = [pairs[:, 0].sum() / pairs[:, 1].sum(), np.median(ratios), ratios.max()]
        shown = ", ".join(f"{ratio:.2f}" for ratio in relative)
        rows.append(["seconds of those fits, relative: in all, median, largest of the tables", shown, "1"])
    return rows


def uci_table(found: list[Compared], caption: str) -> Table:
    """Give accuracies and seconds of each table."""
    rows = []
    for one in found:
        xrfm = MISSING if one.xrfm is None else f"{one.xrfm:.2f}"
        times = [number(one.seconds), number(one.peer_seconds)]
        rows.append([one.name, str(one.rows), f"{one.rfm:.2f}", f"{one.ntk:.2f}", xrfm, *times])
    header = [
        "table",
        "rows",
        "`RFMClassifier()`",
        '`NTKClassifier(tune="loo")`',
        "xrfm",
        "seconds, ntkit",
        "seconds, xrfm",
    ]
    return Table(header, rows, caption)


def main() -> None:
    """Run the parts that the command line names."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("parts", nargs="*", default=["product", "low-rank", "ntk", "uci", "others"])
    options.add_argument("--peer", help="a Python that has xrfm 0.4.5")
    options.add_argument("--uci", help="the tables, an .npz file as ntkit_studies.load_uci reads; none: left out")
    options.add_argument("--sets", nargs="*", default=list(TABLES), help="the tables of the part uci")
    options.add_argument("--threads", type=int, default=torch.get_num_threads())
    options.add_argument("--repeats", type=int, default=5)
    options.add_argument(
        "--cpu-time", action="store_true", help="count the processor's time: for a machine that does other work"
    )
    options.add_argument("--no-defaults", action="store_true")
    add_store(options)
    chosen = options.parse_args()
    begun = started()
    torch.set_num_threads(chosen.threads)
    warnings.simplefilter("ignore", JitterWarning)
    peer = Peer(chosen.peer, chosen.threads, chosen.cpu_time)
    rows, found = [], []
    if "product" in chosen.parts:
        rows += part_product(peer, chosen.repeats, not chosen.no_defaults)
    if "low-rank" in chosen.parts:
        rows += part_low_rank(peer)
    if "ntk" in chosen.parts:
        rows += part_ntk()
    for which, members in groups(chosen.uci, chosen.sets, chosen.parts).items():
        compared = [compare(peer, table) for table in track(members, which)]
        rows += uci_rows(compared, which)
        found += compared
    clock = "processor time" if chosen.cpu_time else "time that passed"
    caption = f"Recursive feature machines and xrfm 0.4.5 on the same data, {threads()}; seconds are {clock}."
    result = [Table(["task", "ntkit", "xrfm"], rows, caption)]
    if found:
        result.append(
            uci_table(found, f"Mean accuracy over 4 folds in percent and {clock} of the fits in seconds, {threads()}.")
        )
    publish("rfm", result, begun, chosen.store)


if __name__ == "__main__":
    main()
