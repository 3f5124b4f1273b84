"""Two-layer networks in training, compared with what the theorems guarantee: rate, movement of weights, widths, risks.

Theorem 3 and eqs. 117 to 143 of Golikov et al. 2022, measured. Run it with ``python -m ntkit_studies convergence_bounds``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit import Record, Schedule, empirical, train
from ntkit.datasets import load_digits
from ntkit.diagnostics import bounds, two_layer_gram
from ntkit.plots import new_figure, plot_losses

from ._networks import blank
from .plots import Picture, Section, Table
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "QUICK", "Measured", "Settings", "Width", "main", "run", "two_layer_network"]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Neurons n.
    draws
        Networks of each width.
    points
        Training images of the digits 0 and 1, m.
    steps
        Of gradient descent with half the learning rate that the limit allows.
    records
        Moments at which loss and kernel are measured.
    table_points
        Images for the table of bounds.
    delta
        Probability of failure.
    """

    widths: tuple[int, ...] = (256, 1024, 4096)
    draws: int = 3
    points: int = 20
    steps: int = 2000
    records: int = 25
    table_points: int = 200
    delta: float = 0.05

    def __post_init__(self) -> None:
        check_at_least(self, 1, "widths", "draws")
        check_at_least(self, 2, "points", "steps", "records", "table_points")


QUICK = Settings(widths=(64, 256), draws=2, points=8, steps=200, records=8, table_points=40)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(widths=(256, 1024, 4096, 16384), draws=5, steps=10_000)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class Width:
    """One cell: a network of one width."""

    width: int
    draw: int


@dataclass(frozen=True)
class Measured:
    """One training run.

    Attributes
    ----------
    times, losses
        Of each record; the squared error over that at the start.
    least
        Smallest eigenvalue of the network's kernel at each record, over lambda_0.
    moved, movement_bound
        Largest distance of a neuron's weights from its start, and eq. 127.
    lambda_0
        Of the limit.
    """

    times: tuple[float, ...]
    losses: tuple[float, ...]
    least: tuple[float, ...]
    moved: float
    movement_bound: float
    lambda_0: float

    @property
    def assumption_holds(self) -> bool:
        """Whether the kernel stayed above lambda_0 / 2, from which the guaranteed rate follows."""
        return min(self.least) >= 0.5

    @property
    def excess(self) -> float:
        """The largest ratio of the loss to the guaranteed e^(-lambda_0 t)."""
        return max(loss * math.exp(self.lambda_0 * t) for t, loss in zip(self.times, self.losses, strict=True))


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    y: Tensor


def _points(count: int) -> tuple[Tensor, Tensor]:
    digits = load_digits()
    chosen = (digits.labels < 2).nonzero()[:count, 0]
    x = digits.images[chosen].double().flatten(1)
    return nn.functional.normalize(x), 2.0 * digits.labels[chosen].double() - 1


def cells(run: Run[Settings]) -> list[Width]:
    """Return one cell per width and draw."""
    return [Width(width, draw) for width in run.settings.widths for draw in range(run.settings.draws)]


def prepare(run: Run[Settings]) -> _Shared:
    """Take the images."""
    return _Shared(run, *_points(run.settings.points))


def two_layer_network(dim: int, width: int, generator: torch.Generator) -> nn.Module:
    """Return the network of eq. 121 in float64: normal weights that are trained, and fixed signs over sqrt(width)."""
    net = blank(
        lambda: nn.Sequential(nn.Linear(dim, width, bias=False), nn.ReLU(), nn.Linear(width, 1, bias=False)),
        torch.float64,
    )
    first, last = net.parameters()
    with torch.no_grad():
        first.normal_(generator=generator)
        last.copy_((2.0 * torch.randint(0, 2, (1, width), generator=generator) - 1) / math.sqrt(width))
    last.requires_grad_(False)
    return net


def compute(shared: _Shared, cell: Width) -> Measured:
    """Train one network."""
    settings, x, y = shared.run.settings, shared.x, shared.y
    generator = torch.Generator().manual_seed(shared.run.seed + 7919 * cell.draw + cell.width)
    net = two_layer_network(x.shape[1], cell.width, generator)
    neurons, _ = net.parameters()
    start, f0 = neurons.detach().clone(), net(x).detach()[:, 0]
    gram = two_layer_gram(x)
    found = bounds(gram, y, cell.width, settings.delta, x=x, f0=f0)
    rate = 1 / float(torch.linalg.eigvalsh(gram)[-1])
    moments = sorted({round(settings.steps ** (k / settings.records)) for k in range(settings.records + 1)})
    least = {"least": lambda one: torch.linalg.eigvalsh(empirical(one).ntk(x))[0]}
    record = Record(moments, observe=least)
    trained = train(net, x, y[:, None], Schedule(learning_rate=rate, steps=settings.steps), record=record)
    return Measured(
        tuple(trained.times.tolist()),
        tuple((trained.losses / trained.losses[0]).tolist()),
        tuple((trained.observations["least"] / found.lambda_0).tolist()),
        float((neurons.detach() - start).norm(dim=1).max()),
        found.movement.value,
        found.lambda_0,
    )


def report(results: Results[Settings, Width, Measured]) -> Report:
    """Set measured losses and movements beside the bounds."""
    settings = results.settings
    rows, widest = [], max(settings.widths)
    for width in settings.widths:
        own = [found for cell, found in results.values.items() if cell.width == width]
        held = sum(one.assumption_holds for one in own)
        broken = sum(one.excess > 1 for one in own if one.assumption_holds)
        rows.append(
            [
                f"{width:,}",
                f"{min(min(one.least) for one in own):.2f}",
                f"{held} of {len(own)}",
                str(broken),
                f"{max(one.excess for one in own):.2g}",
                f"{max(one.moved for one in own):.3g}",
                f"{min(one.movement_bound for one in own):.3g}",
            ]
        )
    figure = new_figure(7.5, 4.8)
    shown = next(found for cell, found in results.values.items() if cell.width == widest)
    later = [index for index, t in enumerate(shown.times) if t > 0]
    times = [shown.times[index] for index in later]
    curves = {
        "measured": [shown.losses[index] for index in later],
        "guaranteed, e^(-lambda_0 t)": [math.exp(-shown.lambda_0 * t) for t in times],
        "constant kernel, e^(-2 lambda_0 t)": [math.exp(-2 * shown.lambda_0 * t) for t in times],
    }
    plot_losses(figure.subplots(), times, curves)
    x, y = _points(settings.table_points)
    table = bounds(two_layer_gram(x), y, widest, settings.delta, x=x)
    return Report(
        "Two-layer networks and their guarantees",
        f"Networks with fixed signs in the second layer, trained on {settings.points} digits; time is that of the summed loss. "
        "The guaranteed rate follows where the smallest eigenvalue of the network's own kernel stays above lambda_0 / 2.",
        [
            Section(
                "Measured",
                [
                    Table(
                        [
                            "width",
                            "smallest eigenvalue / lambda_0",
                            "above one half",
                            "of these above the rate",
                            "largest loss / guaranteed",
                            "weights moved",
                            "bound (eq. 127)",
                        ],
                        rows,
                        f"{settings.draws} networks of each width; extremes over networks and records",
                    ),
                    Picture(
                        figure,
                        f"Squared error over its start, a network of width {widest:,}.",
                        "Three falling curves of the squared error against time.",
                    ),
                ],
            ),
            Section(
                f"Bounds at {settings.table_points} points",
                [
                    Table(
                        ["bound", "value", "verdict", "assumptions", "source"],
                        [
                            [
                                one.meaning,
                                f"{one.value:.3g}",
                                _verdict(one.name, one.vacuous),
                                {True: "hold", False: "do not hold", None: "not checked"}[one.holds],
                                one.source,
                            ]
                            for one in table.all
                        ],
                        f"lambda_0 = {table.lambda_0:.3g}, y^T H^-1 y = {table.quadratic_form:.4g}; width {widest:,}",
                    )
                ],
            ),
        ],
    )


def _verdict(name: str, vacuous: bool) -> str:
    if not vacuous:
        return "says something"
    return "vacuous for practice" if name.startswith("width") else "vacuous"


EXPERIMENT = experiment_of(
    globals(),
    name="convergence_bounds",
    title="Loss and weights of two-layer networks in training, compared with the theorems' rates, widths and risks.",
    reproduces="Golikov et al. 2022, section 6.3 (Du et al. 2019, Arora et al. 2019a)",
    embedded="digits",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
