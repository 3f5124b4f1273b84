"""The empirical tangent kernel of a random network approaches the exact one as its width grows.

Theorem 3.1 of Arora et al. 2019, measured: the relative error of the kernel matrix against width, with fitted rates. Run it
with ``python -m ntkit.experiments.ntk_convergence``.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.datasets import balanced_split, load_digits
from ntkit.errors import InputError
from ntkit.finite import initialize, parametrize_ntk
from ntkit.kernels import empirical, infinite_width
from ntkit.plots import PowerLaw, Table, fit_power_law, new_figure, plot_width_errors

from ._command_line import Progress, print_table, progress_bars
from ._finite_cells import Cell, file_options, fill, read_file_options, table

__all__ = ["ConvergenceResult", "Settings", "main", "run"]


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
    draws: int = 10
    points: int = 10


QUICK = Settings(widths=(8, 16, 32), draws=3)


@dataclass(frozen=True)
class ConvergenceResult:
    """What the experiment found.

    Attributes
    ----------
    settings, seed
        What it was asked.
    errors
        By network: shape (widths, draws), the Frobenius norm of the difference over that of the exact kernel.
    rates
        By network the fitted power law; the theory of large widths has the exponent -1/2.
    """

    settings: Settings
    seed: int
    errors: dict[str, NDArray[Any]]
    rates: dict[str, PowerLaw]


def networks(width: int) -> dict[str, nn.Module]:
    """Give the networks by name, at one width, without weights."""
    with torch.device("meta"):
        deep: list[nn.Module] = [nn.Linear(64, width), nn.ReLU()]
        for _ in range(2):
            deep += [nn.Linear(width, width), nn.ReLU()]
        shallow = [nn.Flatten(), nn.Linear(64, width), nn.ReLU(), nn.Linear(width, 1)]
        convolution = [nn.Conv2d(1, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU()]
        return {
            "MLP, 1 hidden layer": nn.Sequential(*shallow),
            "MLP, 3 hidden layers": nn.Sequential(nn.Flatten(), *deep, nn.Linear(width, 1)),
            "CNN, 2 convolutions": nn.Sequential(*convolution, nn.Flatten(), nn.Linear(64 * width, 1)),
        }


def run(
    settings: Settings | None = None, seed: int = 0, path: Path | None = None, progress: Progress | None = None
) -> ConvergenceResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is the size that takes about a minute on two cores.
    seed
        Decides the images and the networks.
    path
        A JSON file to go on from and to keep the numbers in.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> result = run(QUICK)
    >>> bool(result.errors["MLP, 1 hidden layer"].shape == (3, 3))
    True
    """
    settings = settings or Settings()
    if len(set(settings.widths)) < 2:
        raise InputError(f"widths must be at least two different ones, to fit a rate. Got {settings.widths}.")
    digits = load_digits()
    images = digits.images[balanced_split(digits.labels, [settings.points], seed)[0]]
    x = images / images.flatten(1).norm(dim=1)[:, None, None, None]  # the theorem is about inputs of norm one
    exact = {name: infinite_width(_made(net)).ntk(x) for name, net in networks(8).items()}

    def error(cell: Cell) -> float:
        name, width, draw = cell
        net = _made(networks(width)[name])
        number = settings.draws * settings.widths.index(width) + draw
        initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed + 7919 * number))
        kernel: Tensor = empirical(net).ntk(x)
        return float((kernel - exact[name]).norm() / exact[name].norm())

    cells = [(name, width, draw) for name in exact for width in settings.widths for draw in range(settings.draws)]
    found = fill(cells, error, {"experiment": "ntk_convergence", **asdict(settings), "seed": seed}, path, progress)
    errors = {name: table(found, name, settings.widths, settings.draws) for name in exact}
    rates = {name: fit_power_law(settings.widths, values) for name, values in errors.items()}
    return ConvergenceResult(settings, seed, errors, rates)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = file_options("ntk_convergence", __doc__)
    chosen = read_file_options(options, arguments)
    try:
        with progress_bars() as progress:
            result = run(QUICK if chosen.quick else None, chosen.seed, chosen.output, progress)
    except InputError as error:
        options.error(str(error))
    figure = new_figure(7.5, 4.8)
    ax = plot_width_errors(
        figure.subplots(), result.settings.widths, result.errors, "relative error of the kernel matrix"
    )
    ax.set_title("The empirical NTK at initialisation against the exact one")
    figure.savefig(chosen.output.with_suffix(".png"), dpi=160)
    rows = [
        [name, *(f"{(row**2).mean() ** 0.5:.4f}" for row in values), f"{law.exponent:.3f} ± {law.error:.3f}"]
        for (name, values), law in zip(result.errors.items(), result.rates.values(), strict=True)
    ]
    caption = f"Relative error by width, root mean square over {result.settings.draws} networks, and fitted exponent"
    print_table(Table(["network", *map(str, result.settings.widths), "exponent"], rows, caption))
    print(f"The numbers: {chosen.output.resolve()}, the figure beside it: {chosen.output.with_suffix('.png').name}")
    return 0


def _made(net: nn.Module) -> nn.Module:
    """Give a network with places for weights, zero until they are drawn."""
    net = net.to_empty(device="cpu").double()
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


if __name__ == "__main__":
    sys.exit(main())
