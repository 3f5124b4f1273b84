"""A wide network trained to the end predicts what kernel regression with the exact tangent kernel predicts.

Theorem 3.2 of Arora et al. 2019, measured: the gap of the predictions against width and the output multiplier kappa. Run it
with ``python -m ntkit.experiments.ntk_training``.
"""

from __future__ import annotations

import copy
import sys
import warnings
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.errors import DivergenceWarning, InputError
from ntkit.finite import Record, Schedule, initialize, parametrize_ntk, train
from ntkit.kernels import infinite_width
from ntkit.plots import Table, new_figure, plot_width_errors
from ntkit.solvers import solve

from ._command_line import Progress, print_table, progress_bars
from ._finite_cells import Cell, file_options, fill, read_file_options, table

__all__ = ["Settings", "TrainingResult", "main", "run"]

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
        Training ends when the loss has fallen to this share of half the sum of squared targets.
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


QUICK = Settings(widths=(64, 128), kappas=(1.0, 0.5), draws=2, train=4, test=10, tolerance=1e-2, max_steps=200)


@dataclass(frozen=True)
class TrainingResult:
    """What the experiment found.

    Attributes
    ----------
    settings, seed
        What it was asked.
    gaps
        By multiplier: shape (widths, draws), the root mean square over test points of the network's prediction minus that of
        kernel regression.
    scale
        The root mean square of the predictions of kernel regression, to compare with.
    """

    settings: Settings
    seed: int
    gaps: dict[str, NDArray[Any]]
    scale: float


def run(
    settings: Settings | None = None, seed: int = 0, path: Path | None = None, progress: Progress | None = None
) -> TrainingResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is the size that takes a minute or two on two cores.
    seed
        Decides the points and the networks.
    path
        A JSON file to go on from and to keep the numbers in.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> result = run(QUICK)
    >>> result.gaps["kappa 1"].shape
    (2, 2)
    """
    settings = settings or Settings()
    generator = torch.Generator().manual_seed(seed)
    points = torch.randn(
        settings.train + settings.test, settings.dimension, generator=generator, dtype=torch.float64
    )  # fmt: skip
    points = points / points.norm(dim=1, keepdim=True)
    x, x_test = points[: settings.train], points[settings.train :]
    y = torch.sign(x[:, :1] * x[:, 1:2])
    kernel = infinite_width(_network(8, settings.dimension)).ntk
    gram = kernel(x)
    expected = kernel(x_test, x) @ solve(gram, y).value
    largest = float(torch.linalg.eigvalsh(gram)[-1])
    multipliers = {f"kappa {kappa:g}": (kappa, False) for kappa in settings.kappas}
    multipliers[f"kappa {settings.kappas[0]:g}{_CENTRED}"] = (settings.kappas[0], True)

    def gap(cell: Cell) -> float:
        name, width, draw = cell
        kappa, centre = multipliers[name]
        net = _network(width, settings.dimension)
        number = settings.draws * settings.widths.index(width) + draw
        initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed + 7919 * (number + 1)))
        target = settings.tolerance * 0.5 * float(y.square().sum())
        trained = None
        # Half of what the exact kernel allows. That of a narrow network with a small multiplier grows as it is trained, so that
        # such steps may make it diverge, or switch all its units off.
        for halvings in range(_HALVINGS):
            attempt = copy.deepcopy(net)
            rate, steps = 0.5**halvings / (kappa**2 * largest), settings.max_steps * 2**halvings
            schedule, record = Schedule(learning_rate=rate, steps=steps), Record(x_test=x_test)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DivergenceWarning)
                trained = train(attempt, x, y, schedule, record=record, kappa=kappa, centre=centre, stop_below=target)
            if float(trained.losses[-1]) < target:
                break
        if trained is None or not float(trained.losses[-1]) < target:
            raise InputError(
                f"a network of width {width} with {name} was not trained to the end with any learning rate. "
                "Begin with wider networks, or a larger multiplier."
            )
        predictions = trained.test_predictions
        assert isinstance(predictions, Tensor)
        return float((predictions[-1] - expected).square().mean().sqrt())

    cells = [(name, width, draw) for name in multipliers for width in settings.widths for draw in range(settings.draws)]
    found = fill(cells, gap, {"experiment": "ntk_training", **asdict(settings), "seed": seed}, path, progress)
    gaps = {name: table(found, name, settings.widths, settings.draws) for name in multipliers}
    return TrainingResult(settings, seed, gaps, float(expected.square().mean().sqrt()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = file_options("ntk_training", __doc__)
    chosen = read_file_options(options, arguments)
    try:
        with progress_bars() as progress:
            result = run(QUICK if chosen.quick else None, chosen.seed, chosen.output, progress)
    except InputError as error:
        options.error(str(error))
    figure = new_figure(7.5, 4.8)
    ax = plot_width_errors(
        figure.subplots(), result.settings.widths, result.gaps, "gap of the predictions (RMS)", fit=False
    )
    ax.axhline(result.scale, color="0.5", linestyle=":")
    ax.annotate(
        "the predictions themselves", (result.settings.widths[-1], result.scale), ha="right", va="bottom", color="0.4"
    )
    ax.set_title("Trained network against kernel regression with the exact NTK")
    figure.savefig(chosen.output.with_suffix(".png"), dpi=160)
    rows = [[name, *(f"{(row**2).mean() ** 0.5:.4f}" for row in values)] for name, values in result.gaps.items()]
    caption = (
        f"Gap by width, root mean square over {result.settings.test} test points and {result.settings.draws} networks; "
        f"the predictions of kernel regression have {result.scale:.3f}"
    )
    print_table(Table(["multiplier", *map(str, result.settings.widths)], rows, caption))
    print(f"The numbers: {chosen.output.resolve()}, the figure beside it: {chosen.output.with_suffix('.png').name}")
    return 0


def _network(width: int, dimension: int) -> nn.Module:
    with torch.device("meta"):
        net = nn.Sequential(
            nn.Linear(dimension, width, bias=False), nn.ReLU(), nn.Linear(width, width, bias=False), nn.ReLU(),
            nn.Linear(width, 1, bias=False),
        )  # fmt: skip
    net = net.to_empty(device="cpu").double()
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


if __name__ == "__main__":
    sys.exit(main())
