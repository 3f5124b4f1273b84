"""How far the tangent kernel moves during training, against width, in the NTK and in the standard parametrisation.

Golikov et al. 2022, section 7. Run it with ``python -m ntkit_studies kernel_evolution``.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit import initialize, parametrize_ntk, remove_ntk
from ntkit.datasets import balanced_split, load_digits
from ntkit.diagnostics import KernelRecorder, normalized_limit
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._by_width import WidthCell, by_width, network_seed, width_cells
from ._networks import blank
from .plots import Picture, Section, Table, fit_power_law, plot_width_errors
from .skeleton import Comparison, Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["CURVES", "EXPERIMENT", "QUICK", "Movement", "Settings", "main", "network", "run"]

CURVES = ("NTK, tanh", "NTK, ReLU", "standard, tanh", "standard, ReLU")
_ACTIVATIONS = {"tanh": nn.Tanh, "ReLU": nn.ReLU}
_SWITCHING = (
    "A smooth network of width n moves its kernel by the order of 1 / n. In a network of ReLUs pre-activations change by the "
    "order of n^-1/2, so that n^1/2 units switch at an input; each changes the kernel by 1 / n with either sign, which adds "
    "movement of the order n^-3/4, and that is the larger of the two at large widths. The share of units that switch should then "
    "fall as n^-1/2:"
)


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Of both hidden layers.
    draws
        Networks of each width.
    points
        Digits to train on, even against odd, a multiple of ten.
    probes
        Of these, how many the kernel is measured on.
    steps
        Of gradient descent on the mean cross-entropy, the same number at every width.
    ntk_rate, standard_rate
        Learning rates, the same at every width.
    """

    widths: tuple[int, ...] = (128, 256, 512, 1024, 2048)
    draws: int = 12
    points: int = 60
    probes: int = 30
    steps: int = 20
    ntk_rate: float = 1.0
    standard_rate: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "widths", "draws", "steps")
        check_at_least(self, 2, "probes")
        check_at_least(self, 10, "points")
        if len(set(self.widths)) < 2:
            raise InputError(f"widths must be at least two different ones, to fit a slope. Got {self.widths}.")


QUICK = Settings(widths=(32, 64, 128), draws=2, points=20, probes=10, steps=5)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    return {
        "quick": QUICK,
        "default": Settings(),
        "full": Settings(widths=(128, 256, 512, 1024, 2048, 4096), draws=20),
    }[size]


@dataclass(frozen=True)
class Movement:
    """One trained network.

    Attributes
    ----------
    movement
        Frobenius norm of the kernel's change over that of the kernel at the start.
    distance
        One minus the cosine of the two.
    limit_error
        For the standard parametrisation: how far Theta / width at the start is from its limit, relative; else None.
    accuracy
        On the training points, at the end.
    alignment
        With the labels, at the start and at the end.
    switched
        Share of hidden units and probe points whose pre-activation has another sign at the end.
    """

    movement: float
    distance: float
    limit_error: float | None
    accuracy: float
    alignment: tuple[float, float]
    switched: float


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    y: Tensor
    limits: dict[str, Tensor]


def network(activation: str, width: int) -> nn.Module:
    """Return a network with two hidden layers and no biases, its weights zero."""
    act = _ACTIVATIONS[activation]
    return blank(
        lambda: nn.Sequential(
            nn.Linear(64, width, bias=False), act(), nn.Linear(width, width, bias=False), act(),
            nn.Linear(width, 1, bias=False),
        ),
        torch.float64,
    )  # fmt: skip


def cells(run: Run[Settings]) -> list[WidthCell]:
    """Return one cell per curve, width and draw."""
    return width_cells(CURVES, run.settings.widths, run.settings.draws)


def prepare(run: Run[Settings]) -> _Shared:
    """Draw the images and compute the limits of the normalised kernels."""
    digits = load_digits()
    chosen = balanced_split(digits.labels, [run.settings.points], run.seed)[0]
    x = nn.functional.normalize(digits.images[chosen].double().flatten(1)) * math.sqrt(64)
    probes = x[: run.settings.probes]
    limits = {name: normalized_limit(network(name, 8), probes, 8) for name in _ACTIVATIONS}
    return _Shared(run, x, (digits.labels[chosen] % 2).double(), limits)


def compute(shared: _Shared, cell: WidthCell) -> Movement:
    """Train one network in a plain loop, with the kernel at its start and end."""
    settings, run = shared.run.settings, shared.run
    parametrisation, activation = cell.curve.split(", ")
    net = network(activation, cell.width)
    seed = network_seed(run.seed, cell, settings.widths, settings.draws)
    initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed))
    standard = parametrisation == "standard"
    if standard:
        remove_ntk(net)
    probes = slice(0, settings.probes)
    recorder = KernelRecorder(net, shared.x[probes], shared.y[probes], every=settings.steps)
    limit = shared.limits[activation]
    off = float((recorder.measure() / cell.width - limit).norm() / limit.norm()) if standard else None
    signs = _signs(net, shared.x[probes])
    optimizer = torch.optim.SGD(net.parameters(), lr=settings.standard_rate if standard else settings.ntk_rate)
    for _ in range(settings.steps):
        optimizer.zero_grad()
        nn.functional.binary_cross_entropy_with_logits(net(shared.x)[:, 0], shared.y).backward()
        optimizer.step()
        recorder.step()
    history = recorder.history
    with torch.no_grad():
        accuracy = float(((net(shared.x)[:, 0] > 0) == (shared.y > 0)).double().mean())
    aligned = (float(history.alignment[0]), float(history.alignment[-1]))
    switched = float((_signs(net, shared.x[probes]) != signs).double().mean())
    return Movement(float(history.movement[-1]), float(history.distance[-1]), off, accuracy, aligned, switched)


def _signs(net: Any, x: Tensor) -> Tensor:
    """Give which pre-activations of the two hidden layers are positive, shape (n, 2 width)."""
    with torch.no_grad():
        return torch.cat([net[:1](x), net[:3](x)], dim=1) > 0


def report(results: Results[Settings, WidthCell, Movement]) -> Report:
    """Fit slopes and draw the movements."""
    settings = results.settings
    movement = by_width(results.values, settings.widths, settings.draws, lambda found: found.movement)
    distance = by_width(results.values, settings.widths, settings.draws, lambda found: found.distance)
    slopes = {name: fit_power_law(settings.widths, values).exponent for name, values in movement.items()}
    spreads = {name: _spread_of_slope(settings.widths, values) for name, values in movement.items()}
    rows = [
        [
            name,
            *(f"{(row**2).mean() ** 0.5:.4f}" for row in values),
            f"{slopes[name]:.2f} ± {spreads[name]:.2f}",
            f"{fit_power_law(settings.widths, distance[name]).exponent:.2f}",
        ]
        for name, values in movement.items()
    ]
    figure = new_figure(7.5, 4.8)
    plot_width_errors(figure.subplots(), settings.widths, movement, "relative movement of the kernel")
    standard = {cell: found for cell, found in results.values.items() if found.limit_error is not None}
    switched = by_width(results.values, settings.widths, settings.draws, lambda found: found.switched)
    errors = by_width(standard, settings.widths, settings.draws, lambda found: found.limit_error or 0.0)
    others = []
    for name in movement:
        own = [
            found for cell, found in results.values.items() if cell.curve == name and cell.width == max(settings.widths)
        ]
        begin, end = (sum(one.alignment[k] for one in own) / len(own) for k in (0, 1))
        others.append([name, f"{sum(one.accuracy for one in own) / len(own):.3f}", f"{begin:.3f}", f"{end:.3f}"])
    return Report(
        "Movement of the kernel in training, by width",
        f"Networks with two hidden layers after {settings.steps} steps of gradient descent on the mean cross-entropy, with "
        "learning rates that do not depend on the width. In the NTK parametrisation the kernel stands still as the width "
        "grows; in the standard one the normalised kernel Theta / width has a limit at the start but moves at any width.",
        [
            Section(
                "Movement",
                [
                    Table(
                        ["network", *map(str, settings.widths), "slope", "slope of the distance"],
                        rows,
                        f"|H_t - H_0| / |H_0|, root mean square over {settings.draws} networks. The kernel distance "
                        "is of second order in the movement. ± is the standard deviation over bootstrap samples of the networks.",
                    ),
                    _SWITCHING,
                    Table(
                        ["units that switch", *map(str, settings.widths), "slope"],
                        [
                            [
                                name,
                                *(f"{row.mean():.4f}" for row in values),
                                f"{fit_power_law(settings.widths, values).exponent:.2f}",
                            ]
                            for name, values in switched.items()
                            if name.endswith("ReLU")
                        ],
                        "Share of hidden units and probe points, mean over networks",
                    ),
                    Picture(
                        figure,
                        "Relative movement of the kernel against width, with fitted power laws.",
                        "Two lines that fall with the width, for the NTK parametrisation, and two that do not.",
                    ),
                    Table(
                        ["normalised kernel, standard", *map(str, settings.widths)],
                        [[name, *(f"{row.mean():.4f}" for row in values)] for name, values in errors.items()],
                        "Relative distance of Theta / width at the start from its limit, mean over networks",
                    ),
                    Table(
                        ["network", "training accuracy", "alignment, start", "alignment, end"],
                        others,
                        f"At width {max(settings.widths)}",
                    ),
                ],
            )
        ],
        [
            Comparison(
                f"{name}: slope of the movement",
                (slope,),
                -1.0 if name.startswith("NTK") else None,
                spreads[name],
                size=f"widths to {max(settings.widths):,}",
            )
            for name, slope in slopes.items()
        ],
    )


def _spread_of_slope(widths: Sequence[int], values: NDArray[np.float64], resamples: int = 200) -> float:
    """Give the standard deviation of a fitted slope over bootstrap samples of the draws, values of shape (widths, draws)."""
    random = np.random.default_rng(0)
    found = [
        fit_power_law(
            widths, np.take_along_axis(values, random.integers(values.shape[1], size=values.shape), 1)
        ).exponent
        for _ in range(resamples)
    ]
    return float(np.std(found))


EXPERIMENT = experiment_of(
    globals(),
    name="kernel_evolution",
    title="Movement of the tangent kernel in training against width, in two parametrisations.",
    reproduces="Golikov et al. 2022, section 7: the kernel that Fig. 3 follows, against width",
    embedded="digits",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
