"""Training on a line: what the kernels say about an ensemble of networks, and the networks themselves.

Run it with ``python -m ntkit_studies dynamics_1d``: a table in the terminal and figures in one HTML file.
"""

from __future__ import annotations

import copy
import math
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from ntkit import GradientFlow, infinite_width, initialize, parametrize_ntk, posterior
from ntkit.errors import InputError
from ntkit.plots import new_figure, plot_learning_curves, plot_losses, plot_predictions

from ._networks import blank
from .plots import Picture, Section, Table
from .skeleton import Report, Results, Run, Size, check_at_least, decode, experiment_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "QUICK", "Ensemble", "Settings", "Training", "main", "run"]

W_STD, B_STD = 1.5, 0.6
_DIRECTIONS = 5

Row = tuple[float, ...]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    members, width
        Networks, and neurons in the hidden layer of each.
    points
        Training points.
    grid
        Points on the line where predictions are compared.
    steps
        Gradient steps at which they are compared, increasing from 0.
    share
        The learning rate as a fraction of the largest at which the limit converges; small ones follow the flow.
    """

    members: int = 100
    width: int = 1024
    points: int = 7
    grid: int = 61
    steps: tuple[int, ...] = (0, 20, 200, 2000)
    share: float = 0.1

    def __post_init__(self) -> None:
        check_at_least(self, 1, "width", "points", "grid")
        check_at_least(self, 2, "members")
        check_at_least(self, 0, "steps")
        if self.steps[-1] < 1:
            raise InputError(f"the last of steps must be at least 1. Got {self.steps}.")


QUICK = Settings(members=8, width=64, points=4, grid=11, steps=(0, 5, 20))


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    return {"quick": QUICK, "default": Settings(), "full": Settings(members=400, width=4096)}[size]


@dataclass(frozen=True)
class Ensemble:
    """The only cell: all networks train side by side."""

    members: int


@dataclass(frozen=True)
class Training:
    """The ensemble and the limit; m recorded steps, s compared ones, G points of the grid, n training points.

    Attributes
    ----------
    x, y
        Training points and targets, shape (n,).
    grid
        Shape (G,).
    times
        t of the compared steps, shape (s,).
    mean, std
        Of the infinite ensemble on the grid, shape (s, G).
    outputs
        Of the networks on the grid, shape (s, members, G).
    loss_times
        t of the recorded steps, shape (m,), positive.
    kernel_loss
        Expected loss of the infinite ensemble, shape (m,).
    network_losses
        Shape (m, members).
    eigenvalues
        Of the tangent kernel on the training points, shape (n,), decreasing.
    kernel_left, network_left
        Fraction of each eigendirection not yet learnt, in the limit and by the mean of the networks, shape (m, n).
    """

    x: Row
    y: Row
    grid: Row
    times: Row
    mean: tuple[Row, ...]
    std: tuple[Row, ...]
    outputs: tuple[tuple[Row, ...], ...]
    loss_times: Row
    kernel_loss: Row
    network_losses: tuple[Row, ...]
    eigenvalues: Row
    kernel_left: tuple[Row, ...]
    network_left: tuple[Row, ...]


def cells(run: Run[Settings]) -> list[Ensemble]:
    """Return the one cell."""
    return [Ensemble(run.settings.members)]


def compute(run: Run[Settings], cell: Ensemble) -> Training:
    """Train the networks and evaluate the limit at the same times."""
    settings = run.settings
    x = torch.linspace(-1, 1, settings.points, dtype=torch.float64)
    y = torch.sin(3 * x) + 0.3 * torch.cos(9 * x)
    grid = torch.linspace(-1.6, 1.6, settings.grid, dtype=torch.float64)
    net = blank(lambda: nn.Sequential(nn.Linear(1, settings.width), nn.GELU(), nn.Linear(settings.width, 1)))
    limit = infinite_width(net, w_std=W_STD, b_std=B_STD)
    flow = GradientFlow(limit.ntk).fit(x[:, None], y)
    rate = settings.share * flow.max_learning_rate()

    recorded = sorted({round(step) for step in np.geomspace(1, settings.steps[-1], 40)} | set(settings.steps))
    states = _train(net, (x, y), torch.cat([x, grid]), rate, recorded, run)
    on_train, on_grid = states[:, :, : len(x)], states[:, :, len(x) :]
    compared = [recorded.index(step) for step in settings.steps]
    found = [posterior(limit, x[:, None], y, grid[:, None], t=rate * step) for step in settings.steps]

    later = recorded[1:]
    loss_times = rate * torch.tensor(later, dtype=torch.float64)
    losses = []
    for number, t in enumerate(loss_times.tolist()):
        own = posterior(limit, x[:, None], y, x[:, None], t=t, covariance="diagonal")
        losses.append((((own.mean - y) ** 2).sum() + own.variance.sum()) / 2)
        run.progress("kernel", number + 1, len(later))
    curves = flow.learning_curves(loss_times)
    vectors = torch.linalg.eigh(limit.ntk(x[:, None])).eigenvectors.flip(1)
    left = y @ vectors - on_train.mean(1) @ vectors
    tensors = {
        "x": x,
        "y": y,
        "grid": grid,
        "times": rate * torch.tensor(settings.steps, dtype=torch.float64),
        "mean": torch.stack([one.mean for one in found]),
        "std": torch.stack([one.variance.sqrt() for one in found]),
        "outputs": on_grid[compared],
        "loss_times": loss_times,
        "kernel_loss": torch.stack(losses),
        "network_losses": ((on_train[1:] - y) ** 2).sum(2) / 2,
        "eigenvalues": curves.eigenvalues,
        "kernel_left": 1 - curves.values / curves.targets,
        "network_left": left[1:] / left[0],
    }
    return decode(Training, {name: tensor.tolist() for name, tensor in tensors.items()})


def _train(
    net: nn.Module, data: tuple[Tensor, Tensor], points: Tensor, rate: float, recorded: list[int], run: Run[Settings]
) -> Tensor:
    """Train the networks side by side by gradient descent and give their outputs, shape (recorded, members, points)."""
    generator = torch.Generator().manual_seed(run.seed)
    base = parametrize_ntk(copy.deepcopy(net), W_STD, B_STD)
    members = [copy.deepcopy(initialize(base, generator=generator)) for _ in range(run.settings.members)]
    weights, _ = stack_module_state(members)
    weights = {name: value.detach().float() for name, value in weights.items()}
    inputs, targets = data[0][:, None].float(), data[1].float()

    def outputs(own: dict[str, Tensor], at: Tensor) -> Tensor:
        values: Tensor = functional_call(base, own, (at,))
        return values[:, 0]

    def loss(own: dict[str, Tensor]) -> Tensor:
        return ((outputs(own, inputs) - targets) ** 2).sum() / 2

    slopes, everywhere = vmap(grad(loss)), vmap(outputs, in_dims=(0, None))
    found, last = [], recorded[-1]
    with torch.no_grad():
        for step in range(last + 1):
            if step in recorded:
                found.append(everywhere(weights, points[:, None].float()).double())
            if step < last:
                for name, slope in slopes(weights).items():
                    weights[name] -= rate * slope
                run.progress("networks", step + 1, last)
    return torch.stack(found)


def report(results: Results[Settings, Ensemble, Training]) -> Report:
    """Draw predictions over time, eigendirections and losses."""
    settings, (found,) = results.settings, results.values.values()
    introduction = (
        f"{settings.members} networks with one hidden layer of {settings.width} GELU neurons, trained by gradient descent on "
        "a few points of a line, beside the Gaussian process that the infinitely wide network is at each time, computed by "
        "ntkit from its kernels."
    )
    predictions = Picture(
        _predictions(found),
        "Mean and two standard deviations over the random initial weights, before training and at later times.",
        "Panels of predictions on a line with bands, which shrink around the training points as training goes on.",
    )
    curves = new_figure()
    shown, times = slice(0, _DIRECTIONS), np.array(found.loss_times)
    kernel_left, network_left = (np.array(one)[:, shown] for one in (found.kernel_left, found.network_left))
    plot_learning_curves(
        curves.subplots(), times, found.eigenvalues[shown], kernel_left, networks=(times, network_left)
    )
    losses = new_figure()
    plot_losses(
        losses.subplots(),
        times,
        {"expected by the kernels": found.kernel_loss, "networks": np.array(found.network_losses)},
    )
    sections = [
        Section("Predictions over time", [predictions, agreement(found, settings)]),
        Section(
            "Eigendirections",
            [
                Picture(
                    curves,
                    "The part of the targets along each eigenvector of the tangent kernel that is still to be learnt: lines "
                    "from the kernel, marks from the mean of the networks. The larger the eigenvalue, the sooner it is learnt.",
                    "Falling curves against time, one per eigenvector.",
                )
            ],
        ),
        Section(
            "Loss",
            [
                Picture(
                    losses,
                    "Training loss: expected by the kernels, and of the networks (mean, and a band from the 10th to the 90th "
                    "percentile).",
                    "Two falling curves of loss against time on logarithmic axes, close to each other.",
                )
            ],
        ),
    ]
    return Report("Networks and their kernels while they train", introduction, sections)


def agreement(found: Training, settings: Settings) -> Table:
    """Compare the networks with the limit at each time, on the grid."""
    rows = []
    for t, drawn, mean, std in zip(found.times, found.outputs, found.mean, found.std, strict=True):
        outputs, variance = np.array(drawn), np.square(std).mean()
        off = np.sqrt(np.square(outputs.mean(0) - mean).mean())
        ratio = math.sqrt(np.square(outputs.std(0, ddof=1)).mean() / variance)
        rows.append([f"{t:.3g}", f"{off:.3f}", f"{math.sqrt(variance / len(outputs)):.3f}", f"{ratio:.3f}"])
    return Table(
        ["t", "means differ by", "expected of sampling", "ratio of std"],
        rows,
        f"{settings.members} networks of width {settings.width} against the limit: root mean squares over the line",
    )


def _predictions(found: Training) -> Figure:
    lines = math.ceil(len(found.times) / 2)
    figure = new_figure(10, 2.9 * lines)
    axes = figure.subplots(lines, 2, sharex=True, sharey=True, squeeze=False).ravel()
    for number, (ax, t) in enumerate(zip(axes, found.times, strict=False)):
        band = found.mean[number], found.std[number]
        plot_predictions(ax, found.grid, *band, (found.x, found.y), found.outputs[number], title=f"t = {t:.3g}")
    for ax in axes[len(found.times) :]:
        ax.set_axis_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


EXPERIMENT = experiment_of(
    globals(),
    name="dynamics_1d",
    title="Predictions, eigendirections and losses of an ensemble in training, compared with its kernels.",
    reproduces="Golikov et al. 2022, sections 2 and 5: the dynamics, no figure of theirs",
    output="ntkit-dynamics.html",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
