"""What proxies of untrained networks say about their accuracy once trained, compared with counting layers.

Chen et al. 2021 (TE-NAS), Arora et al. 2019 and Park et al. 2020; Golikov et al. 2022, section 6.1.2. Run it with
``python -m ntkit_studies architecture_search --data cifar.npz``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import rankdata
from torch import Tensor
from torch.nn import functional as F

from ntkit.applications.search import condition_number, draw_kaiming, kernel_score, linear_regions
from ntkit.plots import new_figure

from ._images import FILES, load_images
from ._search_space import Architecture, build, draw_architectures, train_accuracy
from .plots import Picture, Section, Table, plot_proxy
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "Cell", "Settings", "Value", "main", "run"]

ACCURACY, CONDITION, REGIONS, NTK, NNGP = "accuracy", "condition number", "linear regions", "NTK score", "NNGP score"
PROXIES = (CONDITION, REGIONS, NTK, NNGP)
_FEWEST = 8  # networks per group: intervals of fewer mean nothing


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    networks
        Drawn from the space of 84.
    width
        Channels.
    train, test
        Images; those of a file are reduced to 16x16.
    epochs, learning_rate
        Of Adam.
    seeds
        Number of training runs per network; accuracies are averaged.
    condition_images, repeats
        For the condition number: inputs and draws.
    patches
        For the regions: random grey patches of 2x2, and networks of two channels.
    score_images
        For the kernels' scores, half of them to learn from.
    bootstrap
        Resamples of the networks for intervals.
    """

    networks: int = 60
    width: int = 32
    train: int = 8000
    test: int = 2000
    epochs: int = 4
    learning_rate: float = 2e-3
    seeds: int = 2
    condition_images: int = 32
    repeats: int = 3
    patches: int = 2000
    score_images: int = 300
    bootstrap: int = 1000

    def __post_init__(self) -> None:
        check_at_least(self, 1, "width", "epochs", "seeds", "repeats", "bootstrap")
        check_at_least(self, 2, "networks", "condition_images")
        check_at_least(self, 20, "train", "test", "patches", "score_images")


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    quick = Settings(8, 8, 100, 100, 2, 2e-3, 1, 8, 1, 100, 40, 50)
    default = Settings() if from_file else Settings(train=1000, test=500)
    return {"quick": quick, "default": default, "full": Settings(networks=84, seeds=4) if from_file else default}[size]


@dataclass(frozen=True)
class Cell:
    """One measurement of one network.

    Attributes
    ----------
    network
        The network.
    measure
        ``"accuracy"`` or a proxy.
    seed
        Of the training; 0 for proxies.
    """

    network: Architecture
    measure: str
    seed: int


@dataclass(frozen=True)
class Value:
    """The measurement.

    Attributes
    ----------
    value
        The number; None if it is infinite.
    note
        A status.
    """

    value: float | None
    note: str


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    data: tuple[Tensor, Tensor, Tensor, Tensor]
    classes: int


def cells(run: Run[Settings]) -> list[Cell]:
    """Return the trainings and the proxies of every network."""
    found = []
    for network in draw_architectures(run.settings.networks, run.seed):
        found += [Cell(network, ACCURACY, seed) for seed in range(run.settings.seeds)]
        found += [Cell(network, proxy, 0) for proxy in PROXIES]
    return found


def prepare(run: Run[Settings]) -> _Shared:
    """Read the images."""
    images = load_images(run.settings.train, run.settings.test, run.seed, run.data)
    x, x_test = (F.adaptive_avg_pool2d(one, 16) if one.shape[2] > 16 else one for one in (images.x, images.x_test))
    y, y_test = torch.from_numpy(images.y).long(), torch.from_numpy(images.y_test).long()
    return _Shared(run, (x, y, x_test, y_test), int(y.max()) + 1)


def compute(shared: _Shared, cell: Cell) -> Value:
    """Train a network, or compute a proxy of it; proxies see training images alone."""
    settings, seed = shared.run.settings, 1000 * shared.run.seed
    x, y, _, _ = shared.data
    shape = (x.shape[1], x.shape[2], x.shape[3])
    generator = torch.Generator().manual_seed(seed)
    if cell.measure == ACCURACY:
        net = build(cell.network, shape, shared.classes, settings.width, seed + cell.seed)
        return Value(train_accuracy(net, shared.data, settings.epochs, settings.learning_rate, seed + cell.seed), "")
    if cell.measure == REGIONS:
        # Whole images have distinct patterns in every network; tiny patches and few channels distinguish networks.
        small = build(cell.network, (1, 2, 2), shared.classes, 2, seed)
        draw_kaiming(small, generator)
        regions = linear_regions(small, torch.randn(settings.patches, 1, 2, 2, generator=generator))
        return Value(float(regions.count), regions.status)
    net = build(cell.network, shape, shared.classes, settings.width, seed)
    if cell.measure == CONDITION:
        condition = condition_number(net, x[: settings.condition_images], settings.repeats, generator=generator)
        return Value(condition.value if math.isfinite(condition.value) else None, condition.status)
    n, kernel = settings.score_images, "ntk" if cell.measure == NTK else "nngp"
    score = kernel_score(net, x[:n], y[:n], kernel, n_samples=4, generator=generator)  # type: ignore[arg-type]
    return Value(score.accuracy, score.kernel)


TRIVIAL: dict[str, Callable[[Architecture, int, int], float]] = {
    "parameters": lambda one, width, side: float(
        sum(p.numel() for p in build(one, (3, side, side), 10, width, 0).parameters())
    ),
    "depth": lambda one, width, side: float(one.depth),
    "head (mean above flatten)": lambda one, width, side: float(one.head == "mean"),
    "pooling (any above none)": lambda one, width, side: float(one.pooling != "none"),
}
"""Predictors that need no kernel and no data."""


def interval(
    predictor: NDArray[np.float64], accuracy: NDArray[np.float64], resamples: int
) -> tuple[float, float, float]:
    """Return Kendall's tau-b and the ends of its 95 % bootstrap interval over networks; NaN where one of the two is constant."""
    count = len(accuracy)
    rows = np.random.default_rng(0).integers(count, size=(resamples, count))
    # How often each network is in a draw, shape (1 + resamples, count); the first row is the sample itself.
    often = np.stack([np.ones(count), *(np.bincount(row, minlength=count) for row in rows)])
    # Ranks, because some values are infinite.
    above, better = (np.sign(ranks[:, None] - ranks) for ranks in (rankdata(predictor), rankdata(accuracy)))
    agree, apart, unequal = (
        ((often @ pairs) * often).sum(1) for pairs in (above * better, np.abs(above), np.abs(better))
    )
    with np.errstate(invalid="ignore"):
        tau = agree / np.sqrt(apart * unequal)
    known = tau[1:][~np.isnan(tau[1:])]
    low, high = np.quantile(known, [0.025, 0.975]) if len(known) else (math.nan, math.nan)
    return float(tau[0]), float(low), float(high)


def report(results: Results[Settings, Cell, Value]) -> Report:
    """Set proxies beside trivial predictors, over all networks and within each head and each depth."""
    settings = results.settings
    networks = list(dict.fromkeys(cell.network for cell in results.values))
    accuracy = np.array(
        [np.mean([v.value for c, v in results.values.items() if c.network == one and c.measure == ACCURACY]) for one in networks]
    )  # fmt: skip
    side = 16 if results.from_file else 8
    columns = _columns(results, networks, side)
    groups: dict[str, NDArray[np.bool_]] = {"all": np.ones(len(networks), bool)}
    for head in ("flatten", "mean"):
        groups[f"head {head}"] = np.array([one.head == head for one in networks])
    for depth in sorted({one.depth for one in networks}):
        groups[f"depth {depth}"] = np.array([one.depth == depth for one in networks])
    found = {
        name: {
            group: interval(values[rows], accuracy[rows], settings.bootstrap)
            for group, rows in groups.items()
            if group == "all" or rows.sum() >= _FEWEST
        }
        for name, values in columns.items()
    }
    rows = []
    for name, taus in found.items():
        seconds = [results.seconds[cell] for cell in results.values if cell.measure == name]
        cost = f"{np.mean(seconds):.2f}" if seconds else "-"
        rows.append([name, cost, *(_text(taus[group]) if group in taus else "-" for group in groups)])
    training = np.mean([results.seconds[cell] for cell in results.values if cell.measure == ACCURACY])
    caption = (
        f"Kendall's tau with the mean test accuracy of {settings.seeds} trainings, and its 95 % bootstrap interval over "
        f"networks. A training took {training:.1f} s; accuracies from {accuracy.min():.3f} to {accuracy.max():.3f}. "
        f"Groups of fewer than {_FEWEST} networks are left out"
    )
    saturated = sum(v.note.startswith("Saturated") for c, v in results.values.items() if c.measure == REGIONS)
    singular = sum(v.value is None for c, v in results.values.items() if c.measure == CONDITION)
    sampled = sum(v.note == "Monte Carlo" for c, v in results.values.items() if c.measure == NTK)
    figure = new_figure(10.0, 7.0)
    for ax, name in zip(figure.subplots(2, 2).ravel(), PROXIES, strict=True):
        shown = -columns[name] if name == CONDITION else columns[name]
        plot_proxy(ax, shown, accuracy, [one.head for one in networks], name, logarithmic=name == CONDITION)
    return Report(
        "Proxies of untrained networks",
        f"{len(networks)} networks of a declared space (depth, kernel, pooling, head, skips), trained by one recipe. Every proxy "
        "is computed before training, from training images alone.",
        [
            Section("What follows", conclusions(found)),
            Section(
                "Kendall's tau",
                [
                    Table(["predictor", "seconds", *groups], rows, caption),
                    f"Condition numbers infinite to rounding: {singular} networks. Counts of regions saturated: {saturated}. "
                    f"Kernels sampled, for max pooling has no closed form: {sampled}.",
                    Picture(
                        figure,
                        "Test accuracy against each proxy, coloured by head.",
                        "Four scatter plots of accuracy against the condition number, the regions and the two kernel scores.",
                    ),
                ],
            ),
        ],
    )


def _columns(
    results: Results[Settings, Cell, Value], networks: list[Architecture], side: int
) -> dict[str, NDArray[np.float64]]:
    """Return each predictor's values, oriented so that larger should be better."""
    columns: dict[str, NDArray[np.float64]] = {}
    for proxy in PROXIES:
        by_network = {cell.network: one.value for cell, one in results.values.items() if cell.measure == proxy}
        values = np.array([math.inf if by_network[one] is None else by_network[one] for one in networks], float)
        columns[proxy] = -values if proxy == CONDITION else values
    both = _ranks(-columns[CONDITION]) + _ranks(-columns[REGIONS])
    columns["TE-NAS (both ranks)"] = -both
    for name, function in TRIVIAL.items():
        columns[name] = np.array([function(one, results.settings.width, side) for one in networks])
    return columns


def conclusions(found: dict[str, dict[str, tuple[float, float, float]]]) -> list[str]:
    """Say of each proxy what the intervals allow to say."""
    trivial = {name: found[name]["all"][0] for name in TRIVIAL if not math.isnan(found[name]["all"][0])}
    best = max(trivial, key=lambda name: abs(trivial[name])) if trivial else ""
    texts = []
    if best:
        texts.append(f"The best trivial predictor over all networks is {best}, tau {trivial[best]:.2f}.")
    for name in (*PROXIES, "TE-NAS (both ranks)"):
        taus = found[name]
        value, low, high = taus["all"]
        inside = {group: one for group, one in taus.items() if group != "all" and not math.isnan(one[0])}
        positive = [group for group, one in inside.items() if one[1] > 0]
        verdict = "above none" if low > 0 else "below none" if high < 0 else "not distinguishable from none"
        beside = ""
        if best and not math.isnan(value):
            order = "below" if value < abs(trivial[best]) else "above"
            beside = f" and {order} that of the best trivial predictor"
        texts.append(
            f"{name}: tau {value:.2f} over all networks, {verdict}{beside}; within groups of one head or one depth it is "
            f"above none in {len(positive)} of {len(inside)}" + (f" ({', '.join(positive)})." if positive else ".")
        )
    return texts


def _ranks(values: NDArray[np.float64]) -> NDArray[np.float64]:
    return np.asarray(rankdata(values), float)


def _text(one: tuple[float, float, float]) -> str:
    return "-" if math.isnan(one[0]) else f"{one[0]:.2f} [{one[1]:.2f}, {one[2]:.2f}]"


EXPERIMENT = experiment_of(
    globals(),
    name="architecture_search",
    title="Kendall's tau between proxies of untrained networks and their accuracy, compared with trivial predictors.",
    reproduces="Golikov et al. 2022, section 6.1.2",
    embedded="digits",
    files=FILES,
    selects=("networks", "seeds", "bootstrap"),
    parallel=True,
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
