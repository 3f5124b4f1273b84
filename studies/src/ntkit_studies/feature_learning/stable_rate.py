"""Figure 2 of Beaglehole et al. 2024 at its largest scale, with a learning rate at which training is stable.

Gradient descent on the mean squared error is stable for learning rates below n / lambda_max of the tangent kernel. With s_0 = 1
the paper's 0.05 is above it. What appendix B says of early training and of large initial scales is asked here with both rates.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

import ntkit
from ntkit.features import Recorder
from ntkit.plots import new_figure, plot_against_steps

from .._by_seed import Seed, by_seed, mean_and_spread
from ..skeleton import Claim, Run, Size, check_at_least
from ._networks import build_mlp, draw_split, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]

_LAYERS = ("0", "2")
_MEASURES = ("centred", "double_ratio")
_HIGH, _SMALL = 0.8, 0.1
"""What counts as a high correlation, and as an insignificant contribution; the paper gives no figures."""


@dataclass(frozen=True)
class Settings:
    """The first column of figure 2.

    Attributes
    ----------
    n, d, width, rank, steps
        Training points, inputs, hidden units, rank of the task, steps.
    scale
        s_0 of the first layer.
    rates
        Learning rates: the paper's, and a stable one.
    every
        Steps between measurements.
    seeds
        How many draws of data and weights.
    """

    n: int = 256
    d: int = 32
    width: int = 256
    rank: int = 5
    steps: int = 100
    scale: float = 1.0
    rates: tuple[float, ...] = (0.05, 0.005)
    every: int = 5
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n", "d", "width", "rank", "steps", "every", "seeds")


@dataclass(frozen=True)
class Record:
    """One seed.

    Attributes
    ----------
    largest
        n / lambda_max of the tangent kernel at the start.
    steps
        Of the measurements.
    curves
        By learning rate and layer (``"0.05/0"``) the measures along training, by name.
    losses
        By learning rate the training losses.
    """

    largest: float
    steps: list[int]
    curves: dict[str, dict[str, list[float]]]
    losses: dict[str, list[float]]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Train with every rate from the same start."""
    settings, seed = run.settings, cell.seed
    split = draw_split(settings.n, settings.d, settings.rank, seed)
    curves: dict[str, dict[str, list[float]]] = {}
    losses: dict[str, list[float]] = {}
    steps: list[int] = []
    largest = 0.0
    for rate in settings.rates:
        net = build_mlp([settings.d, settings.width, settings.width, 1], [settings.scale, 1.0, 1.0], 1000 + seed)
        largest = settings.n / float(torch.linalg.eigvalsh(ntkit.empirical(net).ntk(split.x).double())[-1])
        recorder = Recorder(net, split.x, every=settings.every, layers=list(_LAYERS), derivatives=True)
        train(net, split, settings.steps, torch.optim.SGD(net.parameters(), rate).step, recorder)
        history = recorder.history
        steps = history.steps.tolist()
        for layer in _LAYERS:
            curves[f"{rate:g}/{layer}"] = {name: history.measures[layer][name].tolist() for name in _MEASURES}
        losses[f"{rate:g}"] = history.losses["train"].tolist()
    return Record(largest, steps, curves, losses)


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Ask the sentences of section 2 and appendix B on early training and large scales, with each rate."""
    step = records[0].steps[1]
    limit = mean_and_spread([record.largest for record in records])
    found = [Claim(f"largest stable learning rate at s_0 = {settings.scale:g}, n / lambda_max", "-", limit)]
    for rate in settings.rates:
        each = [[record.curves[f"{rate:g}/{layer}"] for record in records] for layer in _LAYERS]
        ratios, centred = ([[one[name][1] for one in layer] for layer in each] for name in ("double_ratio", "centred"))
        where = f"s_0 = {settings.scale:g}, learning rate {rate:g}"
        found += [
            Claim(
                f"double-centred / centred at step {step}, {where}, layers 1 and 2",
                "insignificant early in training, or if initialisation is large (B)",
                " and ".join(map(mean_and_spread, ratios)),
                max(map(max, ratios)) <= _SMALL,
            ),
            Claim(
                f"centred at step {step}, {where}, layers 1 and 2",
                "especially high early on in training (2)",
                " and ".join(map(mean_and_spread, centred)),
                all(np.mean(one) >= _HIGH for one in centred),
            ),
            Claim(
                f"largest training loss over the first, {where}",
                "-",
                mean_and_spread([float(np.nanmax(r.losses[f"{rate:g}"]) / r.losses[f"{rate:g}"][1]) for r in records]),
            ),
        ]
    return found


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw the measures of both layers for every rate."""
    figure = new_figure(9, 6)
    for row, layer in zip(figure.subplots(2, 2), _LAYERS, strict=True):
        for ax, name in zip(row, _MEASURES, strict=True):
            curves = {
                f"rate {rate:g}": [record.curves[f"{rate:g}/{layer}"][name] for record in records]
                for rate in settings.rates
            }
            plot_against_steps(ax, records[0].steps, curves, f"{name}, layer {1 + int(layer) // 2}")
        row[0].legend(frameon=False)
    return {"Early training at the largest scale": figure}


_QUICK = Settings(n=48, d=8, width=16, steps=20, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's, but for the steps: it is about early training."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "stable_rate",
    "The neural feature ansatz early in training at a large initial scale, with a stable learning rate.",
    "Beaglehole et al. 2024, Fig. 2 at s_0 = 1, and appendix B",
    grows=("n", "d", "width"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
