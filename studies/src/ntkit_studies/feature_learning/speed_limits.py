"""Speed Limited Optimization strengthens the ansatz at any initial scale: figures 4, 5 and 11 of Beaglehole et al. 2024.

Standard training and Speed Limited Optimization of the chain monomial, for first-layer scales from 1 to 0.001. The readout is
multiplied by 0.01 at the start (the paper says divided). The second layer's correlation stays low under Speed Limited
Optimization: its speed is 0.002.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ntkit.features import Recorder, SpeedLimited, agop, correlation, nfm
from ntkit.plots import figure_matrices, new_figure, plot_against_steps

from .._by_seed import Seed, by_seed, mean_and_spread
from ..skeleton import Claim, Run, Size, check_at_least
from ._networks import build_mlp, draw_split, layer_paths, train, weight_at

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]

METHODS = ("standard", "SLO")
_MEASURES = ("uncentred", "centred", "centred_ratio")
_NEAR, _SMALL = 0.9, 0.1
"""What counts as close to 1, and as no difference between scales; the paper gives no figures."""


@dataclass(frozen=True)
class Settings:
    """Figures 4, 5 and 11.

    Attributes
    ----------
    n, d, width, rank, steps
        Training points, inputs, hidden units, rank of the task, steps of either method.
    scales, rates
        s_0 of the first layer, and the learning rate for each.
    speeds, eps
        Of Speed Limited Optimization.
    readout
        What the readout is multiplied by.
    every
        Steps between measurements.
    seeds
        How many draws of data and weights.
    """

    n: int = 256
    d: int = 32
    width: int = 256
    rank: int = 5
    steps: int = 600
    scales: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    rates: tuple[float, ...] = (0.03, 0.1, 0.2, 0.4)
    speeds: tuple[float, ...] = (500.0, 0.002, 0.002)
    eps: float = 0.1
    readout: float = 0.01
    every: int = 20
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "n", "d", "width", "rank", "steps", "every", "seeds")


@dataclass(frozen=True)
class Record:
    """One seed.

    Attributes
    ----------
    steps
        Of the measurements.
    curves
        By method, scale and layer (``"SLO/0.1/0"``) the measures along training, by name.
    losses
        By method and scale the train and test losses along training.
    quality
        By method and scale the cosine of F with the expected gradient outer product at the end (``"SLO/0.1"``), and that of G
        (``"SLO/0.1/G"``), which older runs lack.
    start
        By scale the uncentred correlation of the first layer at initialisation.
    matrices
        By method and scale F and G of the first layer at the end.
    """

    steps: list[int]
    curves: dict[str, dict[str, list[float]]]
    losses: dict[str, dict[str, list[float]]]
    quality: dict[str, float]
    start: dict[str, float]
    matrices: dict[str, dict[str, list[list[float]]]]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Train both ways at every scale."""
    settings, seed = run.settings, cell.seed
    split = draw_split(settings.n, settings.d, settings.rank, seed)
    steps: list[int] = []
    curves: dict[str, dict[str, list[float]]] = {}
    losses: dict[str, dict[str, list[float]]] = {}
    quality: dict[str, float] = {}
    start: dict[str, float] = {}
    matrices: dict[str, dict[str, list[list[float]]]] = {}
    for scale, lr in zip(settings.scales, settings.rates, strict=True):
        for method in METHODS:
            net = build_mlp([settings.d, settings.width, settings.width, 1], [scale, 1.0, 1.0], 1000 + seed)
            weight_at(net, layer_paths(net)[-1]).mul_(settings.readout)
            recorder = Recorder(net, split.x, every=settings.every)
            speeds = dict(zip(layer_paths(net), settings.speeds, strict=True))
            optimizer: torch.optim.Optimizer = (
                torch.optim.SGD(net.parameters(), lr)
                if method == "standard"
                else SpeedLimited(net.named_parameters(), lr, speeds, settings.eps)
            )
            train(net, split, settings.steps, optimizer.step, recorder)
            history, key = recorder.history, f"{method}/{scale:g}"
            steps = history.steps.tolist()
            for layer in layer_paths(net)[:2]:
                curves[f"{key}/{layer}"] = {name: history.measures[layer][name].tolist() for name in _MEASURES}
            losses[key] = {name: values.tolist() for name, values in history.losses.items()}
            F, G = nfm(net, layers=["0"])["0"], agop(net, split.x, layers=["0"])["0"]
            quality |= {
                key: correlation(F.double(), split.task.egop),
                f"{key}/G": correlation(G.double(), split.task.egop),
            }
            start[f"{scale:g}"] = float(history.measures["0"]["uncentred"][0])
            matrices[key] = {"F": F.tolist(), "G": G.tolist()}
    return Record(steps, curves, losses, quality, start, matrices)


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Compare with figures 4, 5 and 11."""

    def ends(method: str, scale: float, layer: str, name: str) -> list[float]:
        return [record.curves[f"{method}/{scale:g}/{layer}"][name][-1] for record in records]

    def test(method: str, scale: float) -> list[float]:
        return [record.losses[f"{method}/{scale:g}"]["test"][-1] for record in records]

    def egop(method: str, scale: float, letter: str) -> list[float]:
        return [record.quality[f"{method}/{scale:g}" + ("/G" if letter == "G" else "")] for record in records]

    def identity(method: str, scale: float) -> list[float]:
        """Return the cosine of F with the identity."""
        matrices = [np.array(record.matrices[f"{method}/{scale:g}"]["F"]) for record in records]
        return [float(np.trace(F) / (np.linalg.norm(F) * len(F) ** 0.5)) for F in matrices]

    found = []
    letters = "FG" if f"SLO/{settings.scales[0]:g}/G" in records[0].quality else "F"
    for scale in settings.scales:
        fast, slow = ends("SLO", scale, "0", "uncentred"), ends("standard", scale, "0", "uncentred")
        start = mean_and_spread([record.start[f"{scale:g}"] for record in records])
        centred, ratio = ends("SLO", scale, "0", "centred"), ends("SLO", scale, "0", "centred_ratio")
        second = (ends(method, scale, "2", "uncentred") for method in METHODS)
        found += [
            Claim(
                f"first layer, uncentred and centred, SLO, s_0 = {scale:g} (uncentred at initialisation: {start})",
                "close to 1, independent of initialisation scale (4.2)",
                f"{mean_and_spread(fast)} and {mean_and_spread(centred)}",
                bool(np.mean(fast) >= _NEAR and np.mean(centred) >= _NEAR),
            ),
            Claim(
                f"first layer, uncentred, SLO and standard, s_0 = {scale:g}",
                "SLO improves the UC-NFA across initialisation scales (Fig. 4)",
                f"{mean_and_spread(fast)} and {mean_and_spread(slow)}, higher in {_count(fast, slow)} seeds",
                all(a > b for a, b in zip(fast, slow, strict=True)),
            ),
            Claim(
                f"first layer, centred / uncentred, SLO, s_0 = {scale:g}",
                "close to 1 (Fig. 4)",
                mean_and_spread(ratio),
                bool(np.mean(ratio) >= _NEAR),
            ),
            Claim(
                f"second layer, uncentred, standard and SLO, s_0 = {scale:g}",
                "-",
                " and ".join(mean_and_spread(values) for values in second),
            ),
            *(
                Claim(
                    f"cosine of {letter} with the EGOP, SLO and standard, s_0 = {scale:g}",
                    "features significantly improve with SLO, even with large initialization (4.2)",
                    f"{mean_and_spread(egop('SLO', scale, letter))} and {mean_and_spread(egop('standard', scale, letter))}",
                    all(a > b for a, b in zip(*(egop(method, scale, letter) for method in METHODS[::-1]), strict=True)),
                )
                for letter in letters
            ),
        ]
    top = settings.scales[0]
    ratio, slow_test, fast_test = ends("standard", top, "0", "centred_ratio"), test("standard", top), test("SLO", top)
    like, apart = identity("standard", top), {}  # how far apart the means over seeds are at the scales
    for method in METHODS:
        for name in ("uncentred", "centred"):
            apart[name, method] = np.ptp([np.mean(ends(method, scale, "0", name)) for scale in settings.scales])
        for letter in letters:
            apart[letter, method] = np.ptp([np.mean(egop(method, scale, letter)) for scale in settings.scales])
    return [
        *found,
        *(
            Claim(
                f"range over s_0 of the means: first layer, {name}, SLO and standard",
                "close to 1 after training with SLO, independent of initialization scale (4.2)",
                f"{apart[name, 'SLO']:.3f} and {apart[name, 'standard']:.3f}",
                bool(apart[name, "SLO"] <= _SMALL),
            )
            for name in ("uncentred", "centred")
        ),
        *(
            Claim(
                f"range over s_0 of the means: cosine of {letter} with the EGOP, SLO and standard",
                "-",
                f"{apart[letter, 'SLO']:.3f} and {apart[letter, 'standard']:.3f}",
            )
            for letter in letters
        ),
        Claim(
            f"centred / uncentred, standard, s_0 = {top:g}",
            "near 0 (Fig. 4, left)",
            mean_and_spread(ratio),
            bool(np.mean(ratio) <= 0.01),
        ),
        Claim(
            f"cosine of F with the identity, standard, s_0 = {top:g}",
            "F resembles identity (4.2)",
            mean_and_spread(like),
            bool(np.mean(like) >= _NEAR),
        ),
        Claim(
            f"test loss, SLO and standard, s_0 = {top:g}",
            "-",
            f"{mean_and_spread(fast_test)} and {mean_and_spread(slow_test)}",
        ),
    ]


def _count(fast: list[float], slow: list[float]) -> str:
    return f"{sum(a > b for a, b in zip(fast, slow, strict=True))} of {len(fast)}"


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw figure 4 (curves), and 5 and 11 (matrices of the first seed)."""
    figure = new_figure(10, 6)
    axes = figure.subplots(2, 3)
    for row, method in zip(axes, METHODS, strict=True):
        for ax, name in zip(row, _MEASURES, strict=True):
            curves = {
                f"s_0 = {scale:g}": [record.curves[f"{method}/{scale:g}/0"][name] for record in records]
                for scale in settings.scales
            }
            plot_against_steps(ax, records[0].steps, curves, f"{name}, {method}")
            ax.set_ylim(-0.05, 1.05)
        row[0].legend(frameon=False)
    matrices = {
        f"{letter}, {method}, s_0 = {scale:g}": records[0].matrices[f"{method}/{scale:g}"][letter]
        for method in METHODS
        for letter in "FG"
        for scale in settings.scales
    }
    return {"figure4": figure, "figures5and11": figure_matrices(matrices, columns=len(settings.scales))}


_QUICK = Settings(n=48, d=8, width=16, steps=40, scales=(1.0, 0.01), rates=(0.03, 0.2), seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "speed_limits",
    "Speed Limited Optimization strengthens the neural feature ansatz at any initial scale.",
    "Beaglehole et al. 2024, Figs 4, 5 and 11",
    grows=("n", "d", "width", "steps"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
