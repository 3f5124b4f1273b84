"""How far the tangent kernel of a trained network is from what the hierarchy predicts, against width.

Theorem 2.1 of Chen, He and Su 2020, measured: networks without biases, of a smooth activation, are trained by gradient flow. The
kernel at the end is compared with that of the start K_0, with its expectation E K_0, and with the approximation of the tangent
hierarchy, K_0 plus a term of K_3 linear in the labels and one of K_4 quadratic in them (their eq. 4, Proposition A.2). By the
theorem the error of the approximation is of order width^-2 and the terms are of order width^-1; the error of E K_0 is of order
width^-1 as the paper states it.
"""

from __future__ import annotations

import itertools
import sys
from dataclasses import dataclass, fields, replace
from operator import attrgetter

import torch
from torch import Tensor, nn

from ntkit import Schedule, TangentHierarchy, empirical, infinite_width, initialize, parametrize_ntk, train
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._by_width import WidthCell, by_width, mean_exponent, network_seed, width_cells
from ._networks import blank
from .plots import Picture, Section, Table, fit_power_law, plot_width_errors
from .skeleton import Claim, Comparison, Report, Results, Run, Size, check_at_least, experiment_of
from .skeleton._estimate import Estimate, fitted_seconds

__all__ = ["EXPERIMENT", "NETWORKS", "QUICK", "Errors", "Settings", "compute", "network", "points"]

NETWORKS = {"1 hidden layer": 1, "2 hidden layers": 2}
_INPUTS, _GAIN = 4, 1.2


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Of every hidden layer.
    draws
        Networks of each width.
    time
        Of gradient flow on half the summed squared error, from f = 0.
    """

    widths: tuple[int, ...] = (32, 64, 128, 256)
    draws: int = 6
    time: float = 1.0

    def __post_init__(self) -> None:
        check_at_least(self, 1, "widths", "draws")
        if len(set(self.widths)) < 2:
            raise InputError(f"widths must be at least two different ones, to fit a rate. Got {self.widths}.")
        if not 0 < self.time < float("inf"):
            raise InputError(f"time must be positive and finite. Got {self.time}.")


QUICK = Settings(widths=(8, 16), draws=2, time=0.3)


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size."""
    return {"quick": QUICK, "default": Settings(), "full": Settings(widths=(32, 64, 128, 256, 512, 1024), draws=10)}[
        size
    ]


@dataclass(frozen=True)
class Errors:
    """One trained network: Frobenius norms over training and test points, relative to the kernel at the end.

    Attributes
    ----------
    expected, start, hierarchy
        Of the difference of E K_0, of K_0, and of the hierarchy's kernel from the kernel at the end.
    third, fourth
        Of the terms of K_3 and K_4.
    """

    expected: float
    start: float
    hierarchy: float
    third: float
    fourth: float


_STATED = {
    "expected": ("distance of E K_0", -1.0),
    "start": ("distance of K_0", -1.0),
    "hierarchy": ("distance of the hierarchy's kernel", -2.0),
    "third": ("term of K_3", -1.0),
    "fourth": ("term of K_4", -1.0),
}


def points() -> tuple[Tensor, Tensor, Tensor]:
    """Give four training inputs of norm 2 with their targets, and three more inputs."""
    draws = torch.Generator().manual_seed(7)
    x = nn.functional.normalize(torch.randn(7, _INPUTS, generator=draws, dtype=torch.float64)) * 2
    return x[:4], torch.tensor([1.0, -1.0, 1.0, -1.0], dtype=torch.float64), x[4:]


def network(depth: int, width: int) -> nn.Module:
    """Give a network of the theorem: no biases, tanh, its weights zero."""
    wide = [_INPUTS, *[width] * depth]

    def make() -> nn.Module:
        hidden = [layer for a, b in itertools.pairwise(wide) for layer in (nn.Linear(a, b, bias=False), nn.Tanh())]
        return nn.Sequential(*hidden, nn.Linear(width, 1, bias=False))

    return blank(make, torch.float64)


def cells(run: Run[Settings]) -> list[WidthCell]:
    """Give one cell per network, width and draw."""
    return width_cells(list(NETWORKS), run.settings.widths, run.settings.draws)


def compute(run: Run[Settings], cell: WidthCell) -> Errors:
    """Train one network and compare its kernel with what was known at the start."""
    settings = run.settings
    (x, y, x_test), depth = points(), NETWORKS[cell.curve]
    both = torch.cat([x, x_test])
    seed = network_seed(run.seed, cell, settings.widths, settings.draws)
    net = parametrize_ntk(network(depth, cell.width), w_std=_GAIN)
    initialize(net, generator=torch.Generator().manual_seed(seed))
    expected = infinite_width(network(depth, 8), w_std=_GAIN).ntk(both)
    start = empirical(net).ntk(both)
    linear, quadratic = (
        TangentHierarchy(module=net, n_samples=0, linear_term=term, time=settings.time).fit(x, y).label_part(both)
        for term in (True, False)
    )
    train(net, x, y[:, None], Schedule("flow", time=settings.time, rtol=1e-9, atol=1e-12), centre=True)
    end = empirical(net).ntk(both)
    parts = (end - expected, end - start, end - start - linear, linear - quadratic, quadratic)
    return Errors(*(float(part.norm() / end.norm()) for part in parts))


def report(results: Results[Settings, WidthCell, Errors]) -> Report:
    """Fit the rates and draw the errors."""
    settings = results.settings
    comparisons, parts, better, count = [], [], 0, 0
    figure = new_figure(11, 4.4)
    # Rates are those of large widths.
    same = set(settings.widths) >= set(Settings().widths) and settings.time == Settings().time
    for ax, name in zip(figure.subplots(1, 2, sharey=True), NETWORKS, strict=True):
        own = {cell: found for cell, found in results.values.items() if cell.curve == name}
        rows, drawn = [], {}
        for field in fields(Errors):
            what, paper = _STATED[field.name]
            values = by_width(own, settings.widths, settings.draws, attrgetter(field.name))[name]
            mean, error = mean_exponent(settings.widths, values)
            quantity = f"{name}: exponent of the {what}"
            comparisons.append(Comparison(quantity, (mean,), paper, error, same, _size(settings), _size(Settings())))
            law = fit_power_law(settings.widths, values)
            numbers = [f"{(row**2).mean() ** 0.5:.2e}" for row in values]
            by_draw = f"{mean:.2f}" if error is None else f"{mean:.2f} ± {error:.2f}"
            rows.append([what, *numbers, f"{law.exponent:.2f}", by_draw])
            if field.name in ("expected", "start", "hierarchy"):
                drawn[what] = values
        better += sum(one.hierarchy < min(one.start, one.expected) for one in own.values())
        count += len(own)
        plot_width_errors(ax, settings.widths, drawn, "relative distance from the kernel at the end")
        ax.set_title(name, fontsize="medium")
        caption = (
            f"{name}: root mean squares over {settings.draws} networks, relative to the kernel at the end; the exponent of the "
            "width fitted to them, and fitted to each draw, mean and standard error"
        )
        parts.append(Table(["", *map(str, settings.widths), "exponent", "by draw"], rows, caption))
    picture = Picture(
        figure,
        "Relative distance of three predictions from the tangent kernel after training, against width: points are root mean "
        "squares over networks, faint ones single networks, lines fitted power laws.",
        "Falling straight lines on logarithmic axes; that of the hierarchy falls twice as steeply as that of K_0.",
    )
    claim = Claim(
        "networks whose kernel at the end is closer to the hierarchy's than to K_0 and to E K_0",
        "strictly better",
        f"{better} of {count}",
        better == count if same else None,
        _size(settings),
        _size(Settings()),
    )
    text = " ".join((__doc__ or "").split())
    sections = [Section("Errors", [*parts, picture])]
    return Report("The error of the tangent hierarchy, by width", text, sections, comparisons, [claim])


def _size(settings: Settings) -> str:
    return f"widths to {max(settings.widths):,}, time {settings.time:g}"


_TRIAL = 16  # width of the smaller of two trials


def estimate(run: Run[Settings]) -> Estimate:
    """Time a narrow network of each depth; with two hidden layers the work grows as the number of weights, width^2."""
    settings = run.settings
    seconds = 0.0
    for number, curve in enumerate(NETWORKS):

        def trial(width: int, curve: str = curve) -> None:
            compute(replace(run, settings=replace(settings, widths=(width, width + 1))), WidthCell(curve, width, 0))

        of_width = fitted_seconds(trial, _TRIAL, number + 1)
        seconds += settings.draws * sum(map(of_width, settings.widths))
    basis = (
        f"Measured here: networks of {_TRIAL} and {2 * _TRIAL} units, whose time grows with their number of weights."
    )
    # The Jacobian of seven points, and what the hierarchy's derivatives hold of it.
    memory = 8.0 * 7 * 20 * max(settings.widths) ** 2
    return Estimate(seconds, memory, basis, "smaller widths (--widths) or fewer networks (--draws)")


EXPERIMENT = experiment_of(
    globals(),
    name="hierarchy_error",
    title="Distance of a trained network's tangent kernel from the hierarchy's prediction, against width.",
    reproduces="Chen, He, Su 2020, Theorem 2.1",
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
