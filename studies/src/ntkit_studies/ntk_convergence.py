"""The empirical tangent kernel of a random network approaches the exact one as its width grows.

Theorem 3.1 of Arora et al. 2019, measured: the relative error of the kernel matrix against width, with fitted rates. Run it
with ``python -m ntkit_studies ntk_convergence``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from ntkit import empirical, infinite_width, initialize, parametrize_ntk
from ntkit.datasets import balanced_split, load_digits
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._by_width import WidthCell, by_width, mean_exponent, network_seed, width_cells
from ._networks import blank
from .plots import Picture, Section, Table, plot_width_errors
from .skeleton import Comparison, Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "NETWORKS", "QUICK", "RelativeError", "Settings", "main", "network", "run"]

NETWORKS = ("MLP, 1 hidden layer", "MLP, 3 hidden layers", "CNN, 2 convolutions")


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Hidden units, or channels, of every layer.
    draws
        Random networks of each width.
    points
        Images that the kernels are compared on, a multiple of ten.
    """

    widths: tuple[int, ...] = (32, 64, 128, 256, 512)
    draws: int = 40
    points: int = 10

    def __post_init__(self) -> None:
        check_at_least(self, 1, "widths", "draws", "points")
        if len(set(self.widths)) < 2:
            raise InputError(f"widths must be at least two different ones, to fit a rate. Got {self.widths}.")


QUICK = Settings(widths=(8, 16, 32), draws=3)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(widths=(32, 64, 128, 256, 512, 1024, 2048), points=20)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class RelativeError:
    """How far the kernel of one network is from the exact one.

    Attributes
    ----------
    error
        The Frobenius norm of the difference over that of the exact kernel.
    """

    error: float


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    exact: dict[str, Tensor]


def cells(run: Run[Settings]) -> list[WidthCell]:
    """Return one cell per network, width and draw."""
    return width_cells(NETWORKS, run.settings.widths, run.settings.draws)


def prepare(run: Run[Settings]) -> _Shared:
    """Draw the images and compute the exact kernels."""
    digits = load_digits()
    images = digits.images[balanced_split(digits.labels, [run.settings.points], run.seed)[0]]
    x = images / images.flatten(1).norm(dim=1)[:, None, None, None]  # the theorem is about inputs of norm one
    return _Shared(run, x, {name: infinite_width(network(name, 8)).ntk(x) for name in NETWORKS})


def network(name: str, width: int) -> nn.Module:
    """Return a network by name, at one width, its weights zero."""

    def make() -> nn.Module:
        if name == "CNN, 2 convolutions":
            body = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
            return nn.Sequential(*body, nn.Flatten(), nn.Linear(64 * width, 1))
        layers: list[nn.Module] = [nn.Flatten(), nn.Linear(64, width), nn.ReLU()]
        for _ in range(2 if name == "MLP, 3 hidden layers" else 0):
            layers += [nn.Linear(width, width), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, 1))

    return blank(make, torch.float64)


def compute(shared: _Shared, cell: WidthCell) -> RelativeError:
    """Draw one network and compare its kernel with the exact one."""
    run, exact = shared.run, shared.exact[cell.curve]
    net = network(cell.curve, cell.width)
    seed = network_seed(run.seed, cell, run.settings.widths, run.settings.draws)
    initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed))
    return RelativeError(float((empirical(net).ntk(shared.x) - exact).norm() / exact.norm()))


def report(results: Results[Settings, WidthCell, RelativeError]) -> Report:
    """Fit the rates and draw the errors."""
    settings = results.settings
    errors = by_width(results.values, settings.widths, settings.draws, lambda found: found.error)
    rates = {name: mean_exponent(settings.widths, values) for name, values in errors.items()}
    figure = new_figure(7.5, 4.8)
    plot_width_errors(figure.subplots(), settings.widths, errors, "relative error of the kernel matrix")
    rows = [
        [
            name,
            *(f"{(row**2).mean() ** 0.5:.4f}" for row in values),
            _with_error(*rates[name]),
        ]
        for name, values in errors.items()
    ]
    caption = (
        f"Relative error by width, root mean square over {settings.draws} networks, and the exponent fitted to each of them, "
        "mean and standard error"
    )
    picture = Picture(
        figure,
        "Relative error of the empirical kernel at initialisation against width: points are root mean squares over "
        "networks, faint ones single networks, lines fitted power laws.",
        "Falling straight lines of error against width on logarithmic axes, one per network.",
    )
    comparisons = [
        Comparison(f"{name}: exponent of the width", (mean,), -0.5, error, size=f"widths to {max(settings.widths):,}")
        for name, (mean, error) in rates.items()
    ]
    return Report(
        "Convergence of the tangent kernel with width",
        "How far the tangent kernel of a random network is from the exact one, by width, after Theorem 3.1 of Arora et al. "
        "2019. The theory of large widths has an error in proportion to width^-1/2; the theorem's own bound is weaker.",
        [Section("Errors", [Table(["network", *map(str, settings.widths), "exponent"], rows, caption), picture])],
        comparisons,
    )


def _with_error(mean: float, error: float | None) -> str:
    return f"{mean:.3f}" if error is None else f"{mean:.3f} ± {error:.3f}"


EXPERIMENT = experiment_of(
    globals(),
    name="ntk_convergence",
    title="Error of the empirical kernel of a random network against its width.",
    reproduces="Arora et al. 2019, Theorem 3.1",
    embedded="digits",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
