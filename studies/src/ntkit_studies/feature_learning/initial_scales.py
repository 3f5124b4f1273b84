"""The ansatz along training, by initial scale and decay of the inputs: figures 2, 6, 7, 9 and 10 of Beaglehole et al. 2024.

Standard training of the chain monomial with isotropic inputs (figures 2, 6, 7), and with covariances that decay as 1 / (1 + k)
(figure 9) and 1 / (1 + k^2) (figures 7, 10). At the largest scale the paper's learning rate is above the stable ones;
``stable_rate`` runs it with one below.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch

from ntkit.features import Recorder
from ntkit.plots import new_figure, plot_against_steps

from .._by_seed import Seed, by_seed, mean_and_spread
from ..skeleton import Claim, Run, Size, check_at_least
from ._networks import build_mlp, draw_split, train

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "Record", "Settings", "measure"]

_LAYERS = ("0", "2")
_MEASURES = ("uncentred", "centred", "ptk_centred", "double_ratio")
_HIGH, _SMALL = 0.8, 0.1
"""What counts as a high correlation, and as an insignificant contribution or difference; the paper gives no figures."""


@dataclass(frozen=True)
class Settings:
    """Figures 2, 6, 7, 9 and 10.

    Attributes
    ----------
    n, d, width, rank, steps, lr
        Training points, inputs, hidden units, rank of the task, steps, learning rate.
    scales
        s_0 of the first layer, the largest first; the paper does not list them.
    alphas
        Decays of the inputs' covariance; -1 stands for isotropic inputs.
    every
        Steps between measurements.
    half
        Whether to train on half the squared error, which avoids spikes of the loss at s_0 = 1.
    seeds
        How many draws of data and weights.
    """

    n: int = 256
    d: int = 32
    width: int = 256
    rank: int = 5
    steps: int = 800
    lr: float = 0.05
    scales: tuple[float, ...] = (1.0, 0.1, 0.01, 0.001)
    alphas: tuple[float, ...] = (-1.0, 1.0, 2.0)
    every: int = 5
    half: bool = False
    seeds: int = 2

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
        By decay, scale and layer (``"-1/0.1/0"``) the measures along training, by name.
    losses
        By decay and scale the train and test losses along training.
    """

    steps: list[int]
    curves: dict[str, dict[str, list[float]]]
    losses: dict[str, dict[str, list[float]]]


def measure(run: Run[Settings], cell: Seed) -> Record:
    """Train at every scale and decay."""
    settings, seed = run.settings, cell.seed
    curves: dict[str, dict[str, list[float]]] = {}
    losses: dict[str, dict[str, list[float]]] = {}
    steps: list[int] = []
    for alpha in settings.alphas:
        split = draw_split(settings.n, settings.d, settings.rank, seed, None if alpha < 0 else alpha)
        for scale in settings.scales:
            net = build_mlp([settings.d, settings.width, settings.width, 1], [scale, 1.0, 1.0], 1000 + seed)
            recorder = Recorder(net, split.x, every=settings.every, layers=list(_LAYERS), derivatives=True)
            optimizer = torch.optim.SGD(net.parameters(), settings.lr)
            train(net, split, settings.steps, optimizer.step, recorder, settings.half)
            history, key = recorder.history, f"{alpha:g}/{scale:g}"
            steps = history.steps.tolist()
            for layer in _LAYERS:
                curves[f"{key}/{layer}"] = {name: history.measures[layer][name].tolist() for name in _MEASURES}
            losses[key] = {name: values.tolist() for name, values in history.losses.items()}
    return Record(steps, curves, losses)


def claims(settings: Settings, records: list[Record]) -> list[Claim]:
    """Ask what section 4.1 and appendices B, G and H say, each sentence at every scale that it is about."""

    def values(alpha: float, scale: float, layer: str, name: str, index: int) -> list[float]:
        return [record.curves[f"{alpha:g}/{scale:g}/{layer}"][name][index] for record in records]

    found = []
    largest, least = settings.scales[0], settings.scales[-1]
    for alpha in settings.alphas:
        where = "isotropic" if alpha < 0 else f"alpha = {alpha:g}"
        for layer in _LAYERS:
            ends = [values(alpha, scale, layer, "uncentred", -1) for scale in settings.scales]
            found.append(
                Claim(
                    f"{where}: layer {_number(layer)}, uncentred at the end, s_0 from {largest:g} to {least:g}",
                    "increases with decreasing initialisation (4.1)",
                    ", ".join(map(mean_and_spread, ends)),
                    all(low > high for high, low in zip(ends[0], ends[-1], strict=True)),
                )
            )
            found.append(
                Claim(
                    f"{where}: layer {_number(layer)}, uncentred at the end, s_0 = {least:g}",
                    "becomes high through training (G)",
                    mean_and_spread(ends[-1]),
                    bool(np.mean(ends[-1]) >= _HIGH),
                )
            )
    isotropic, step = settings.alphas[0], records[0].steps[1]
    for layer in _LAYERS:
        early = [values(isotropic, scale, layer, "centred", 1) for scale in settings.scales]
        ends = [values(isotropic, scale, layer, "uncentred", -1) for scale in settings.scales]
        least_of_all = [
            [float(np.nanmin(record.curves[f"{isotropic:g}/{scale:g}/{layer}"]["centred"][1:])) for record in records]
            for scale in settings.scales
        ]
        spread, other = (float(np.ptp([np.mean(one) for one in each])) for each in (early, ends))
        found += [
            Claim(
                f"isotropic: layer {_number(layer)}, centred at step {step}, s_0 from {largest:g} to {least:g}",
                "especially high and invariant to scale early on in training (2)",
                f"{', '.join(map(mean_and_spread, early))}; means within {spread:.3f}",
                bool(min(np.mean(one) for one in early) >= _HIGH and spread <= _SMALL),
            ),
            Claim(
                f"isotropic: layer {_number(layer)}, least centred of the training, s_0 from {largest:g} to {least:g}",
                "remains high throughout training across initialization scale (2)",
                ", ".join(map(mean_and_spread, least_of_all)),
                bool(min(np.mean(one) for one in least_of_all) >= _HIGH),
            ),
            Claim(
                f"isotropic: layer {_number(layer)}, range over s_0 of uncentred at the end, and of centred at step {step}",
                "in contrast to the UC-NFA, whose final value can be extremely sensitive (2)",
                f"{other:.3f} and {spread:.3f}",
                other > 2 * spread and other > _SMALL,
            ),
        ]
    for scale in settings.scales:
        early = [values(isotropic, scale, layer, "double_ratio", 1) for layer in _LAYERS]
        end = values(isotropic, scale, "0", "double_ratio", -1)
        found += [
            Claim(
                f"double-centred / centred at step {step}, s_0 = {scale:g}, worse layer",
                "insignificant early in training, or if initialisation is large (B)",
                f"{max(map(max, early)):.3f}",
                max(map(max, early)) <= _SMALL,
            ),
            Claim(
                f"double-centred / centred, layer 1, s_0 = {scale:g}, from step {step} to the end",
                "becomes relevant over longer periods of training (B)",
                f"{mean_and_spread(early[0])} to {mean_and_spread(end)}",
                bool(np.mean(end) > 0.7) and all(b > a for a, b in zip(early[0], end, strict=True)),
            ),
        ]
        for layer in _LAYERS:
            first, last = (values(isotropic, scale, layer, "ptk_centred", index) for index in (1, -1))
            found.append(
                Claim(
                    f"PTK-centred, layer {_number(layer)}, s_0 = {scale:g}, from step {step} to the end",
                    "decreases through training (B)",
                    f"{mean_and_spread(first)} to {mean_and_spread(last)}, falls in {_count(first, last)} seeds",
                    all(b < a for a, b in zip(first, last, strict=True)),
                )
            )
        peak = max(
            max(v for v in record.losses[f"{isotropic:g}/{scale:g}"]["train"] if not math.isnan(v))
            for record in records
        )
        found.append(Claim(f"largest recorded train loss, s_0 = {scale:g}", "-", f"{peak:.2f}"))
    return found


def _number(layer: str) -> int:
    """Return the number of a layer in the paper: its place among those with weights."""
    return 1 + int(layer) // 2


def _count(first: list[float], last: list[float]) -> str:
    return f"{sum(b < a for a, b in zip(first, last, strict=True))} of {len(first)}"


def draw(settings: Settings, records: list[Record]) -> dict[str, Figure]:
    """Draw figures 2, 9 and 10 (a row a layer), 6 and 7."""
    figures: dict[str, Figure] = {}
    names = {-1.0: "figure2", 1.0: "figure9", 2.0: "figure10"}
    for alpha in settings.alphas:
        figure = new_figure(13, 6)
        for row, layer in zip(figure.subplots(2, 4), _LAYERS, strict=True):
            for ax, name in zip(row[:2], ("uncentred", "centred"), strict=True):
                plot_against_steps(
                    ax, records[0].steps, _curves(settings, records, alpha, layer, name), f"{name}, layer {layer}"
                )
            for ax, name in zip(row[2:], ("train", "test"), strict=True):
                scaled = {
                    f"s_0 = {scale:g}": [_scaled(record.losses[f"{alpha:g}/{scale:g}"][name]) for record in records]
                    for scale in settings.scales
                }
                plot_against_steps(ax, records[0].steps, scaled, f"{name} loss / its maximum")
            row[0].legend(frameon=False)
        figures[names.get(alpha, f"alpha{alpha:g}")] = figure
    for title, name, alphas in (
        ("figure6", "double_ratio", settings.alphas[:1]),
        ("figure7", "ptk_centred", settings.alphas),
    ):
        figure = new_figure(7, 3 * len(alphas))
        for row, alpha in zip(figure.subplots(len(alphas), 2, squeeze=False), alphas, strict=True):
            for ax, layer in zip(row, _LAYERS, strict=True):
                curves = _curves(settings, records, alpha, layer, name)
                plot_against_steps(ax, records[0].steps, curves, f"{name}, layer {layer}, alpha {alpha:g}")
            row[0].legend(frameon=False)
        figures[title] = figure
    return figures


def _curves(
    settings: Settings, records: list[Record], alpha: float, layer: str, name: str
) -> dict[str, list[list[float]]]:
    return {
        f"s_0 = {scale:g}": [record.curves[f"{alpha:g}/{scale:g}/{layer}"][name] for record in records]
        for scale in settings.scales
    }


def _scaled(values: list[float]) -> list[float]:
    numbers = np.asarray(values, dtype=np.float64)
    return (numbers / np.nanmax(numbers)).tolist()  # type: ignore[no-any-return]


_QUICK = Settings(n=48, d=8, width=16, steps=20, scales=(1.0, 0.01), alphas=(-1.0, 2.0), seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the default has the paper's."""
    return _QUICK if size == "quick" else Settings()


EXPERIMENT = by_seed(
    globals(),
    "initial_scales",
    "The neural feature ansatz along training, by initial scale and decay of the inputs.",
    "Beaglehole et al. 2024, Figs 2, 6, 7, 9 and 10",
    grows=("n", "d", "width", "steps"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
