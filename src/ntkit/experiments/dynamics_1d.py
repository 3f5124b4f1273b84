"""Training on a line: what the kernels say about an ensemble of networks, and the networks themselves.

Run it with ``python -m ntkit.experiments.dynamics_1d``: a table in the terminal and figures in one HTML file.
"""

from __future__ import annotations

import copy
import math
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, stack_module_state, vmap

from ntkit.dynamics import GradientFlow, posterior
from ntkit.finite import initialize, parametrize_ntk
from ntkit.kernels import infinite_width
from ntkit.plots import (
    Picture,
    Section,
    Table,
    html_report,
    new_figure,
    plot_learning_curves,
    plot_losses,
    plot_predictions,
)

from ._command_line import check_writable, options_of, print_table, progress_bars, read_options

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Dynamics1dResult", "Settings", "main", "run"]

W_STD, B_STD = 1.5, 0.6
_DIRECTIONS = 5


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
        Gradient steps at which they are, increasing from 0.
    share
        The learning rate as a share of the largest at which the limit converges; small ones follow the flow.
    """

    members: int = 100
    width: int = 1024
    points: int = 7
    grid: int = 61
    steps: tuple[int, ...] = (0, 20, 200, 2000)
    share: float = 0.1


QUICK = Settings(members=8, width=64, points=4, grid=11, steps=(0, 5, 20))


@dataclass(frozen=True)
class Dynamics1dResult:
    """What the experiment found; m recorded steps, s compared ones, G points of the grid, n training points.

    Attributes
    ----------
    settings, seed
        What it was asked.
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
        Share of each eigendirection still to be learnt, in the limit and by the mean of the networks, shape (m, n).
    """

    settings: Settings
    seed: int
    x: Tensor
    y: Tensor
    grid: Tensor
    times: Tensor
    mean: Tensor
    std: Tensor
    outputs: Tensor
    loss_times: Tensor
    kernel_loss: Tensor
    network_losses: Tensor
    eigenvalues: Tensor
    kernel_left: Tensor
    network_left: Tensor


def run(
    settings: Settings | None = None, seed: int = 0, progress: Callable[[str, int, int], None] | None = None
) -> Dynamics1dResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is a size that takes about a minute on two cores.
    seed
        Decides the initial weights.
    progress
        Called with what is computed, how much of it is done and how much there is.

    Examples
    --------
    >>> run(QUICK).outputs.shape
    torch.Size([3, 8, 11])
    """
    settings, report = settings or Settings(), progress or (lambda what, done, there_are: None)
    x = torch.linspace(-1, 1, settings.points, dtype=torch.float64)
    y = torch.sin(3 * x) + 0.3 * torch.cos(9 * x)
    grid = torch.linspace(-1.6, 1.6, settings.grid, dtype=torch.float64)
    with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global generator, which is the user's
        net = nn.Sequential(nn.Linear(1, settings.width), nn.GELU(), nn.Linear(settings.width, 1))
    limit = infinite_width(net, w_std=W_STD, b_std=B_STD)
    flow = GradientFlow(limit.ntk).fit(x[:, None], y)
    rate = settings.share * flow.max_learning_rate()

    last = settings.steps[-1]
    recorded = sorted({round(step) for step in np.geomspace(1, last, 40)} | set(settings.steps))
    states = _train(net, x, y, torch.cat([x, grid]), rate, recorded, settings, seed, report)
    on_train, on_grid = states[:, :, : len(x)], states[:, :, len(x) :]
    compared = [recorded.index(step) for step in settings.steps]
    found = [posterior(limit, x[:, None], y, grid[:, None], t=rate * step) for step in settings.steps]

    later = recorded[1:]
    loss_times = rate * torch.tensor(later, dtype=torch.float64)
    losses = []
    for number, t in enumerate(loss_times.tolist()):
        own = posterior(limit, x[:, None], y, x[:, None], t=t, covariance="diagonal")
        losses.append((((own.mean - y) ** 2).sum() + own.variance.sum()) / 2)
        report("kernel", number + 1, len(later))
    curves = flow.learning_curves(loss_times)
    vectors = torch.linalg.eigh(limit.ntk(x[:, None])).eigenvectors.flip(1)
    left = y @ vectors - on_train.mean(1) @ vectors
    return Dynamics1dResult(
        settings,
        seed,
        x,
        y,
        grid,
        rate * torch.tensor(settings.steps, dtype=torch.float64),
        torch.stack([one.mean for one in found]),
        torch.stack([one.variance.sqrt() for one in found]),
        on_grid[compared],
        loss_times,
        torch.stack(losses),
        ((on_train[1:] - y) ** 2).sum(2) / 2,
        curves.eigenvalues,
        1 - curves.values / curves.targets,
        left[1:] / left[0],
    )


def _train(
    net: nn.Module,
    x: Tensor,
    y: Tensor,
    points: Tensor,
    rate: float,
    recorded: list[int],
    settings: Settings,
    seed: int,
    report: Callable[[str, int, int], None],
) -> Tensor:
    """Train the networks side by side by gradient descent and give their outputs, shape (recorded, members, points)."""
    generator = torch.Generator().manual_seed(seed)
    base = parametrize_ntk(copy.deepcopy(net), W_STD, B_STD)
    members = [copy.deepcopy(initialize(base, generator=generator)) for _ in range(settings.members)]
    weights, _ = stack_module_state(members)
    weights = {name: value.detach().float() for name, value in weights.items()}
    inputs, targets = x[:, None].float(), y.float()

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
                report("networks", step + 1, last)
    return torch.stack(found)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status.

    Parameters
    ----------
    arguments
        Those of the command line; None takes the program's own.
    """
    parser = options_of("dynamics_1d", __doc__, "ntkit-dynamics.html", "the report (%(default)s)")
    options = read_options(parser, arguments)
    check_writable(parser, options.output)
    start = time.perf_counter()
    with progress_bars() as progress:
        result = run(QUICK if options.quick else None, options.seed, progress)
    options.output.write_text(html(result), encoding="utf-8")
    print_table(agreement(result))
    print(f"{time.perf_counter() - start:.0f} seconds. The report with figures: {options.output.resolve()}")
    return 0


def agreement(result: Dynamics1dResult) -> Table:
    """Compare the networks with the limit at each time, on the grid."""
    members, rows = result.outputs.shape[1], []
    for number, t in enumerate(result.times.tolist()):
        outputs, mean, std = result.outputs[number], result.mean[number], result.std[number]
        off = (outputs.mean(0) - mean).square().mean().sqrt()
        error = std.square().mean().sqrt() / math.sqrt(members)
        ratio = (outputs.std(0).square().mean() / std.square().mean()).sqrt()
        rows.append([f"{t:.3g}", f"{float(off):.3f}", f"{float(error):.3f}", f"{float(ratio):.3f}"])
    return Table(
        ["t", "means differ by", "expected of sampling", "ratio of std"],
        rows,
        f"{members} networks of width {result.settings.width} against the limit: root mean squares over the line",
    )


def html(result: Dynamics1dResult) -> str:
    """Give the report as one self-contained HTML text."""
    introduction = (
        f"{result.settings.members} networks with one hidden layer of {result.settings.width} GELU neurons, trained by gradient "
        "descent on a few points of a line, beside the Gaussian process that the infinitely wide network is at each time, "
        "computed by ntkit from its kernels."
    )
    predictions = Picture(
        _predictions(result),
        "Mean and two standard deviations over the random initial weights, before training and at three times.",
        "Panels of predictions on a line with bands, which shrink around the training points as training goes on.",
    )
    curves = Picture(
        _curves(result),
        "The part of the targets along each eigenvector of the tangent kernel that is still to be learnt: lines from the "
        "kernel, marks from the mean of the networks. The larger the eigenvalue, the sooner it is learnt.",
        "Falling curves against time, one an eigenvector.",
    )
    losses = Picture(
        _losses(result),
        "Training loss: expected by the kernels, and of the networks (mean, and a band from the 10th to the 90th percentile).",
        "Two falling curves of loss against time on logarithmic axes, close to each other.",
    )
    sections = [
        Section("Predictions over time", [predictions, agreement(result)]),
        Section("Eigendirections", [curves]),
        Section("Loss", [losses]),
    ]
    return html_report("Networks and their kernels while they train", introduction, sections)


def _predictions(result: Dynamics1dResult) -> Figure:
    figure = new_figure(10, 2.9 * math.ceil(len(result.times) / 2))
    axes = figure.subplots(math.ceil(len(result.times) / 2), 2, sharex=True, sharey=True, squeeze=False).ravel()
    for number, (ax, t) in enumerate(zip(axes, result.times.tolist(), strict=False)):
        plot_predictions(
            ax,
            result.grid.numpy(),
            result.mean[number].numpy(),
            result.std[number].numpy(),
            (result.x.numpy(), result.y.numpy()),
            result.outputs[number].numpy(),
            title=f"t = {t:.3g}",
        )
    for ax in axes[len(result.times) :]:
        ax.set_axis_off()
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return figure


def _curves(result: Dynamics1dResult) -> Figure:
    figure = new_figure()
    shown = slice(0, _DIRECTIONS)
    plot_learning_curves(
        figure.subplots(),
        result.loss_times.numpy(),
        result.eigenvalues[shown].numpy(),
        result.kernel_left[:, shown].numpy(),
        (result.loss_times.numpy(), result.network_left[:, shown].numpy()),
    )
    return figure


def _losses(result: Dynamics1dResult) -> Figure:
    figure = new_figure()
    losses = {"expected by the kernels": result.kernel_loss.numpy(), "networks": result.network_losses.numpy()}
    plot_losses(figure.subplots(), result.loss_times.numpy(), losses)
    return figure


if __name__ == "__main__":
    sys.exit(main())
