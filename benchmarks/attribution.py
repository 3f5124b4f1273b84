"""How well attributions predict retraining: ntkit.attribute and traker on the same checkpoints of a small CNN on digits.

    python benchmarks/attribution.py --peer .venv-traker/bin/python [--halves 60] [--checkpoints 10]

The linear datamodelling score (Park et al. 2023): networks are trained on random halves of the training set; for each test point
the rank correlation, over the halves, of its margin after training with the sum of its scores over the half; the mean over test
points. Half of the test points choose the free setting of each method (the ridge, traker's dimension), the other half score it.
Times are CPU seconds of one thread, for all checkpoints, best of ``--turns`` taken in turn. Trained networks are kept in
``build/attribution.pt``. For the peer: ``python -m venv .venv-traker`` and, in it, ``pip install traker==0.3.2`` beside the
torch of constraints.txt.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import torch
from attribution_cases import network
from rich.console import Console
from rich.table import Table
from scipy.stats import rankdata
from sklearn.datasets import load_digits
from torch import Tensor, nn

import ntkit

TRAIN, TEST, EPOCHS, BATCH, SEEDS = 600, 400, 30, 50, 3
RIDGES = (0.1, 0.3, 1.0, 3.0, 10.0)
DIMS = (16, 32, 64, 128, 256, 512, 2048)
STORE = Path(__file__).parents[1] / "build" / "attribution.pt"


def main() -> None:
    """Train what is missing, run both libraries and print the table."""
    arguments = _arguments()
    torch.set_num_threads(1)
    data = _data()
    trained = _trained(data, arguments.halves, arguments.checkpoints)
    data["checkpoints"] = trained["checkpoints"]
    masks, margins = trained["masks"], trained["margins"]
    rows = [_ours(data, masks, margins, arguments.turns, method) for method in ("exact", "projection")]
    if arguments.peer:
        rows.append(_peer(data, masks, margins, arguments.turns, arguments.peer))
    table = Table("method", "setting, chosen on validation", "score", "standard error", "at the default", "CPU seconds")
    for row in rows:
        cells = [row["score"], row["error"], row["default score"]]
        table.add_row(row["method"], row["setting"], *(f"{cell:.3f}" for cell in cells), f"{row['seconds']:.1f}")
    Console().print(table)
    if arguments.peer:
        for row in rows[:2]:
            seconds, score = row["seconds"] / rows[2]["seconds"], row["score"] / rows[2]["score"]
            print(f"{row['method']}: {score:.2f} of traker's score in {seconds:.2f} of its time")
    if arguments.output:
        Path(arguments.output).write_text(json.dumps(rows, indent=1))


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peer", help="the Python that has traker")
    parser.add_argument("--halves", type=int, default=60)
    parser.add_argument("--checkpoints", type=int, default=10)
    parser.add_argument("--turns", type=int, default=3)
    parser.add_argument("--output", help="file for the rows, JSON")
    return parser.parse_args()


def _data() -> dict[str, object]:
    x, y = load_digits(return_X_y=True)
    order = torch.randperm(len(x), generator=torch.Generator().manual_seed(0))[: TRAIN + TEST]
    x, y = torch.tensor(x / 16, dtype=torch.float32).view(-1, 1, 8, 8)[order], torch.tensor(y)[order]
    return {"x_train": x[:TRAIN], "y_train": y[:TRAIN], "x_test": x[TRAIN:], "y_test": y[TRAIN:]}


def _fit(x: Tensor, y: Tensor, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    module = network()
    optimizer = torch.optim.SGD(module.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 0.1, EPOCHS * -(-len(x) // BATCH))
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(x)).split(BATCH):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[rows]), y[rows]).backward()
            optimizer.step()
            schedule.step()
    return module.eval()


def _margin(module: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    with torch.no_grad():
        f = module(x).double()
    own = nn.functional.one_hot(y, f.shape[1]).bool()
    return f[own] - f.masked_fill(own, -torch.inf).logsumexp(1)


def _trained(data: dict[str, Tensor], halves: int, checkpoints: int) -> dict[str, object]:
    """Train on random halves and on everything, or read what an earlier run trained."""
    if STORE.exists():
        found = torch.load(STORE, weights_only=True)
        if found["sizes"] == [halves, checkpoints]:
            return found
    masks = torch.zeros(halves, TRAIN, dtype=torch.bool)
    margins = torch.zeros(halves, TEST, dtype=torch.float64)
    for half in range(halves):
        rows = torch.randperm(TRAIN, generator=torch.Generator().manual_seed(1000 + half))[: TRAIN // 2]
        masks[half, rows] = True
        for seed in range(SEEDS):
            module = _fit(data["x_train"][rows], data["y_train"][rows], 10_000 + half * SEEDS + seed)
            margins[half] += _margin(module, data["x_test"], data["y_test"]) / SEEDS
        print(f"\rhalf {half + 1} of {halves}", end="", file=sys.stderr, flush=True)
    print(file=sys.stderr)
    states = [_fit(data["x_train"], data["y_train"], seed).state_dict() for seed in range(checkpoints)]
    found = {"sizes": [halves, checkpoints], "masks": masks, "margins": margins, "checkpoints": states}
    STORE.parent.mkdir(exist_ok=True)
    torch.save(found, STORE)
    return found


def _datamodelling_scores(scores: Tensor, masks: Tensor, margins: Tensor) -> Tensor:
    """Give each test point's rank correlation, shape (m,)."""
    predicted = masks.double() @ scores.double().T
    a, b = (torch.tensor(rankdata(values.numpy(), axis=0)) for values in (predicted, margins))
    a, b = a - a.mean(0), b - b.mean(0)
    return (a * b).sum(0) / (a.square().sum(0) * b.square().sum(0)).sqrt()


def _choose(
    found: dict[float, Tensor], masks: Tensor, margins: Tensor, default: float
) -> tuple[float, float, float, float]:
    """Give the setting best on the first half of the test points, its score on the second, the error, the default's score."""
    each = {setting: _datamodelling_scores(scores, masks, margins) for setting, scores in found.items()}
    best = max(each, key=lambda setting: float(each[setting][: TEST // 2].mean()))
    held_out = each[best][TEST // 2 :]
    return (
        best,
        float(held_out.mean()),
        float(held_out.std() / len(held_out) ** 0.5),
        float(each[default][TEST // 2 :].mean()),
    )


def _ours(data: dict[str, object], masks: Tensor, margins: Tensor, turns: int, method: str) -> dict[str, object]:
    inputs = [data[name] for name in ("x_train", "y_train", "x_test", "y_test")]
    found, seconds = {}, []
    for ridge in RIDGES:
        for _ in range(turns if ridge == 1.0 else 1):
            start = time.process_time()
            result = ntkit.attribute(network(), *inputs, method=method, ridge=ridge, checkpoints=data["checkpoints"])
            if ridge == 1.0:
                seconds.append(time.process_time() - start)
        found[ridge] = result.scores
    best, score, error, default = _choose(found, masks, margins, 1.0)
    row = {"method": f"ntkit, {method}", "setting": f"ridge {best}", "score": score, "error": error}
    return {**row, "default score": default, "seconds": min(seconds)}


def _peer(data: dict[str, object], masks: Tensor, margins: Tensor, turns: int, python: str) -> dict[str, object]:
    found, seconds = {}, {}
    script = Path(__file__).with_name("attribution_peer.py")
    with tempfile.TemporaryDirectory() as folder:
        source, out = Path(folder, "data.pt"), Path(folder, "scores.pt")
        torch.save(data, source)
        for dim in DIMS:
            for _ in range(turns):
                subprocess.run([python, script, source, out, str(dim)], check=True)
                answer = torch.load(out, weights_only=True)
                seconds[dim] = min(seconds.get(dim, answer["seconds"]), answer["seconds"])
            found[dim] = answer["scores"]
    best, score, error, default = _choose(found, masks, margins, 2048)
    row = {"method": "traker 0.3.2", "setting": f"proj_dim {best}", "score": score, "error": error}
    return {**row, "default score": default, "seconds": seconds[best]}


if __name__ == "__main__":
    main()
