"""A wide network trained to the end predicts what kernel regression with the exact tangent kernel predicts.

Theorem 3.2 of Arora et al. 2019, measured: the gap of the predictions against width and the output multiplier kappa. Run it
with ``python -m ntkit_studies ntk_training``.
"""

from __future__ import annotations

import copy
import sys
import warnings
from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit import Record, Schedule, infinite_width, initialize, parametrize_ntk, solve, train
from ntkit.errors import DivergenceWarning, InputError
from ntkit.plots import new_figure

from ._by_width import WidthCell, by_width, network_seed, width_cells
from ._networks import dense_network
from .plots import Picture, Section, Table, plot_width_errors
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "QUICK", "Gap", "Settings", "main", "run"]

_CENTRED = ", centred"
_HALVINGS = 6


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Of the two hidden layers.
    kappas
        Output multipliers; the first is also run with the outputs at the start subtracted.
    draws
        Networks of each width.
    train, test, dimension
        Points on the unit sphere of this dimension.
    tolerance
        Training ends when the loss has fallen to this fraction of half the sum of squared targets.
    max_steps
        Of gradient descent with the rate 1 / (kappa^2 times the largest eigenvalue of the exact kernel).
    """

    widths: tuple[int, ...] = (32, 64, 128, 256, 512, 1024)
    kappas: tuple[float, ...] = (1.0, 0.3, 0.1)
    draws: int = 3
    train: int = 10
    test: int = 50
    dimension: int = 8
    tolerance: float = 1e-5
    max_steps: int = 2_000

    def __post_init__(self) -> None:
        check_at_least(self, 1, "widths", "draws", "train", "test", "max_steps")
        check_at_least(self, 2, "dimension")
        if not self.kappas or min(self.kappas) <= 0:
            raise InputError(f"kappas must be positive. Got {self.kappas}.")


QUICK = Settings(widths=(64, 128), kappas=(1.0, 0.5), draws=2, train=4, test=10, tolerance=1e-2, max_steps=200)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(widths=(32, 64, 128, 256, 512, 1024, 2048, 4096), draws=10)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class Gap:
    """One trained network compared with kernel regression.

    Attributes
    ----------
    gap
        The root mean square over test points of the network's prediction minus that of kernel regression.
    scale
        The root mean square of the predictions of kernel regression, to compare with.
    """

    gap: float
    scale: float


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    y: Tensor
    x_test: Tensor
    expected: Tensor
    largest: float


def multipliers(settings: Settings) -> dict[str, tuple[float, bool]]:
    """Return by name the output multipliers, and whether the outputs at the start are subtracted."""
    found = {f"kappa {kappa:g}": (kappa, False) for kappa in settings.kappas}
    return found | {f"kappa {settings.kappas[0]:g}{_CENTRED}": (settings.kappas[0], True)}


def cells(run: Run[Settings]) -> list[WidthCell]:
    """Return one cell per multiplier, width and draw."""
    return width_cells(list(multipliers(run.settings)), run.settings.widths, run.settings.draws)


def prepare(run: Run[Settings]) -> _Shared:
    """Draw the points and solve for the kernel's predictions."""
    settings, generator = run.settings, torch.Generator().manual_seed(run.seed)
    n = settings.train + settings.test
    points = torch.randn(n, settings.dimension, generator=generator, dtype=torch.float64)
    points = points / points.norm(dim=1, keepdim=True)
    x, x_test = points[: settings.train], points[settings.train :]
    y = torch.sign(x[:, :1] * x[:, 1:2])
    kernel = infinite_width(dense_network(settings.dimension, 8, hidden=2, dtype=torch.float64)).ntk
    gram = kernel(x)
    expected = kernel(x_test, x) @ solve(gram, y).value
    return _Shared(run, x, y, x_test, expected, float(torch.linalg.eigvalsh(gram)[-1]))


def compute(shared: _Shared, cell: WidthCell) -> Gap:
    """Train one network to the end."""
    settings, run = shared.run.settings, shared.run
    kappa, centre = multipliers(settings)[cell.curve]
    net = dense_network(settings.dimension, cell.width, hidden=2, dtype=torch.float64)
    seed = network_seed(run.seed, cell, settings.widths, settings.draws) + 7919
    initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed))
    target = settings.tolerance * 0.5 * float(shared.y.square().sum())
    # Half of what the exact kernel allows. The kernel of a narrow network with a small multiplier grows in training, so
    # such steps may make it diverge, or switch all its units off.
    for halvings in range(_HALVINGS):
        rate, steps = 0.5**halvings / (kappa**2 * shared.largest), settings.max_steps * 2**halvings
        schedule, record = Schedule(learning_rate=rate, steps=steps), Record(x_test=shared.x_test)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DivergenceWarning)
            trained = train(
                copy.deepcopy(net), shared.x, shared.y, schedule, record=record, kappa=kappa, centre=centre,
                stop_below=target,
            )  # fmt: skip
        if float(trained.losses[-1]) < target:
            predictions = trained.test_predictions
            assert isinstance(predictions, Tensor)
            gap = (predictions[-1] - shared.expected).square().mean().sqrt()
            return Gap(float(gap), float(shared.expected.square().mean().sqrt()))
    raise InputError(
        f"a network of width {cell.width} with {cell.curve} was not trained to the end with any learning rate. "
        "Begin with wider networks, or a larger multiplier."
    )


def report(results: Results[Settings, WidthCell, Gap]) -> Report:
    """Draw the gaps against width."""
    settings = results.settings
    gaps = by_width(results.values, settings.widths, settings.draws, lambda found: found.gap)
    scale = next(iter(results.values.values())).scale
    figure = new_figure(7.5, 4.8)
    ax = plot_width_errors(figure.subplots(), settings.widths, gaps, "gap of the predictions (RMS)", fit=False)
    ax.axhline(scale, color="0.5", linestyle=":")
    ax.annotate("the predictions themselves", (settings.widths[-1], scale), ha="right", va="bottom", color="0.4")
    rows = [[name, *(f"{(row**2).mean() ** 0.5:.4f}" for row in values)] for name, values in gaps.items()]
    caption = (
        f"Gap by width, root mean square over {settings.test} test points and {settings.draws} networks; the predictions of "
        f"kernel regression have {scale:.3f}"
    )
    picture = Picture(
        figure,
        "Gap between trained networks and kernel regression against width. Without centring, the outputs at the start stay "
        "in the predictions whatever the width; a small multiplier, or subtracting them, removes them.",
        "Curves of the gap against width on logarithmic axes, one per output multiplier.",
    )
    return Report(
        "Trained networks and kernel regression",
        "The predictions of wide networks trained to the end, beside those of kernel regression with the exact tangent kernel, "
        "after Theorem 3.2 of Arora et al. 2019. The theorem gives no number: the gap falls with the width.",
        [
            Section(
                "Gap of the predictions", [Table(["multiplier", *map(str, settings.widths)], rows, caption), picture]
            )
        ],
    )


EXPERIMENT = experiment_of(
    globals(),
    name="ntk_training",
    title="Gap between trained networks and kernel regression with the exact kernel, against width.",
    reproduces="Arora et al. 2019, Theorem 3.2",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
