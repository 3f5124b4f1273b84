"""Adaptive speeds bring every layer to a strong ansatz: figure 12 of Beaglehole et al. 2024.

A network of three hidden layers learns the chain monomial of rank 3. At every step the layer with the least correlation has the
speed 20 and all others 1/20. The initialisation is that of the paper's other sections: its scale is the first layer's (the
others have scale 1), and the readout is multiplied by 0.01 at the start (appendix I says divided). Appendix J does not say so;
with every matrix at scale 0.1, the earlier reading, one seed in five had its worst layer above standard training.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ntkit.features import AdaptiveSpeed, Recorder, SpeedLimited
from ntkit.plots import new_figure, plot_against_steps

from .._by_seed import Seed, by_seed, mean_and_spread
from ..skeleton import Claim, Run, Size, check_at_least
from ._networks import build_mlp, draw_split, layer_paths, train, weight_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]

METHODS = ("standard", "SLO")
_HIGH, _MOST = 0.8, 0.8
"""What counts as a high correlation, and the share of the seeds that must agree; the paper has one seed and a figure."""


@dataclass(frozen=True)
class Settings:
    """Figure 12.

    Attributes
    ----------
    n, d, width, rank, steps
        Training points, inputs, hidden units, rank of the task, steps.
    scale, readout
        s of the first layer, that of the others being 1; what the readout is multiplied by.
    standard_lr, lr, eps, strength
        Of gradient descent, and of adaptive Speed Limited Optimization.
    last
        Steps at the end whose median counts.
    seeds
        How many draws of data and weights.
    """

    n: int = 256
    d: int = 32
    width: int = 256
    rank: int = 3
    steps: int = 500
    scale: float = 0.1
    readout: float = 0.01
    standard_lr: float = 0.25
    lr: float = 0.05
    eps: float = 0.01
    strength: float = 20.0
    last: int = 100
    seeds: int = 10

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n", "d", "width", "rank", "steps", "last", "seeds")


@dataclass(frozen=True)
class Record:
    """One seed.

    Attributes
    ----------
    steps
        Of the measurements.
    curves
        By method and layer (``"SLO/0"``) the uncentred correlation at every step, hidden layers only.
    losses
        By method the train and test losses.
    """

    steps: list[int]
    curves: dict[str, list[float]]
    losses: dict[str, dict[str, list[float]]]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Train both ways."""
    settings, seed = run.settings, cell.seed
    split = draw_split(settings.n, settings.d, settings.rank, seed)
    curves: dict[str, list[float]] = {}
    losses: dict[str, dict[str, list[float]]] = {}
    steps: list[int] = []
    for method in METHODS:
        net = build_mlp([settings.d, *[settings.width] * 3, 1], [settings.scale, 1.0, 1.0, 1.0], 1000 + seed)
        weight_at(net, layer_paths(net)[-1]).mul_(settings.readout)
        recorder = Recorder(net, split.x)
        limited = SpeedLimited(net.named_parameters(), settings.lr, eps=settings.eps)
        optimizer: torch.optim.Optimizer | AdaptiveSpeed = (
            torch.optim.SGD(net.parameters(), settings.standard_lr)
            if method == "standard"
            else AdaptiveSpeed(limited, recorder, settings.strength)
        )
        train(net, split, settings.steps, optimizer.step, recorder)
        history = recorder.history
        steps = history.steps.tolist()
        for layer in layer_paths(net)[:-1]:
            curves[f"{method}/{layer}"] = history.measures[layer]["uncentred"].tolist()
        losses[method] = {name: values.tolist() for name, values in history.losses.items()}
    return Record(steps, curves, losses)


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Compare with the figure and appendix J."""

    def hidden(record: Record, method: str) -> np.ndarray:
        """Return the correlations of the last steps, shape (layers, last)."""
        return np.array([curve[-settings.last :] for key, curve in record.curves.items() if key.startswith(method)])

    worst = [float(np.median(hidden(record, "SLO").min(axis=0))) for record in records]
    best = [float(np.median(hidden(record, "standard"), axis=1).max()) for record in records]
    ahead = sum(a > b for a, b in zip(worst, best, strict=True))
    tests = [
        [float(np.median(record.losses[method]["test"][-settings.last :])) for record in records] for method in METHODS
    ]
    lower = sum(b < a for a, b in zip(*tests, strict=True))
    final = [record.losses["SLO"]["test"][-1] for record in records]
    return [
        Claim(
            "the worst layer at a step with adaptive SLO, median of the end",
            "all layers finish at the same high UC-NFA (J)",
            mean_and_spread(worst),
            bool(np.mean(worst) >= _HIGH),
        ),
        Claim(
            "seeds where it is above the best layer of standard training",
            "higher than the highest of any layer with standard training (J)",
            f"{ahead} of {len(records)} (margins {', '.join(f'{a - b:+.2f}' for a, b in zip(worst, best, strict=True))})",
            ahead >= _MOST * len(records),
        ),
        Claim(
            "seeds with a lower test loss, median of the end",
            "the generalisation loss is also lower with SLO (J)",
            f"{lower} of {len(records)} (standard {mean_and_spread(tests[0])}, SLO {mean_and_spread(tests[1])}; SLO at the last "
            f"step up to {max(final):.2f})",
            lower >= _MOST * len(records),
        ),
    ]


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw the correlations of the layers and the losses of the first seed."""
    figure = new_figure(9, 3.6)
    left, right = figure.subplots(1, 2)
    record = records[0]
    names = {key: key.replace("/", ", layer ") for key in record.curves}
    styles = {
        names[key]: {"color": f"C{int(key[-1]) // 2}", "linestyle": "-" if key.startswith("SLO") else "--"}
        for key in record.curves
    }
    plot_against_steps(
        left, record.steps, {names[key]: curve for key, curve in record.curves.items()}, "uncentred NFA", styles
    )
    left.legend(frameon=False, fontsize="small")
    tests = {method: record.losses[method]["test"] for method in METHODS}
    plot_against_steps(right, record.steps, tests, "test loss", {"standard": {"linestyle": "--"}})
    right.set_yscale("log")
    right.legend(frameon=False)
    return {"figure12": figure}


_QUICK = Settings(n=48, d=8, width=16, steps=40, last=10, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "adaptive_speeds",
    "Adaptive speeds bring every layer to a strong neural feature ansatz.",
    "Beaglehole et al. 2024, Fig. 12",
    grows=("n", "d", "width", "steps"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
