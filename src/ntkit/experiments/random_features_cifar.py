"""Kernels of finite random networks (random features) against the exact convolutional kernels, on two classes of images.

Section 5.2 and Table 2 of Arora et al. 2019 at a size of your choice: the tangent kernel of one random network of so many
channels, against that of infinitely many. Run it with ``python -m ntkit.experiments.random_features_cifar --data cifar.npz``
(arrays ``x_train`` and ``x_test`` of shape (n, 32, 32, 3), uint8, and ``y_train``, ``y_test``); without data it uses
scikit-learn's 8x8 digits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from ntkit.errors import InputError
from ntkit.estimators import NTKClassifier
from ntkit.finite import initialize, parametrize_ntk
from ntkit.kernels import Kernel, empirical, infinite_width
from ntkit.plots import Table, new_figure, plot_random_features

from ._command_line import Progress, given, print_table, progress_bars
from ._finite_cells import Cell, file_options, fill, read_file_options, table
from ._images import Images, load_images

__all__ = ["FeaturesResult", "Settings", "main", "run"]

_EXACT = 0  # stands for infinitely many channels in the table of results


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Channels of the finite networks; the paper has 128.
    draws
        Random networks of each width; the paper takes the median of 10.
    depth
        Convolutions.
    train, test
        Images, even numbers: both classes have equally many.
    classes
        The two classes.
    """

    widths: tuple[int, ...] = (8, 16, 32, 64, 128)
    draws: int = 5
    depth: int = 3
    train: int = 60
    test: int = 200
    classes: tuple[int, int] = (3, 9)


QUICK = Settings(widths=(2, 4), draws=2, depth=2, train=10, test=20)


@dataclass(frozen=True)
class FeaturesResult:
    """What the experiment found.

    Attributes
    ----------
    settings, seed
        What it was asked.
    accuracy
        By network: shape (widths, draws), of kernel regression with the kernel of a finite network.
    exact
        By network: the accuracy with the exact kernel.
    """

    settings: Settings
    seed: int
    accuracy: dict[str, NDArray[Any]]
    exact: dict[str, float]


def networks(settings: Settings, width: int, channels: int, side: int) -> dict[str, nn.Module]:
    """Give the paper's two networks: a head on every position, or (first and last layer fixed) on the average over them."""
    result: dict[str, nn.Module] = {}
    for name, head in (("CNTK-V", side * side), ("CNTK-GAP", 1)):
        with torch.device("meta"):
            layers: list[nn.Module] = []
            for number in range(settings.depth):
                layers += [nn.Conv2d(width if number else channels, width, 3, padding=1, bias=False), nn.ReLU()]
            layers += [nn.AdaptiveAvgPool2d(1)] if head == 1 else []
            net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * head, 1, bias=False))
        net = net.to_empty(device="cpu")
        for parameter in net.parameters():
            nn.init.zeros_(parameter)
        if head == 1:
            net[0].requires_grad_(False)
            net[-1].requires_grad_(False)
        result[name] = net
    return result


def run(
    settings: Settings | None = None,
    seed: int = 0,
    data: Path | None = None,
    path: Path | None = None,
    progress: Progress | None = None,
) -> FeaturesResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is a size that takes about a minute on two cores with the digits.
    seed
        Decides the images and the networks.
    data
        An ``.npz`` file of images; None takes the digits.
    path
        A JSON file to go on from and to keep the numbers in.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> result = run(QUICK)
    >>> sorted(result.exact)
    ['CNTK-GAP', 'CNTK-V']
    """
    settings = settings or Settings()
    images = load_images(settings.train, settings.test, seed, data, settings.classes)
    channels, side = images.x.shape[1], images.x.shape[2]
    names = list(networks(settings, 1, channels, side))

    def accuracy(cell: Cell) -> float:
        name, width, draw = cell
        net = networks(settings, width or 8, channels, side)[name]
        if width == _EXACT:
            return _accuracy(infinite_width(net).ntk, images)
        generator = torch.Generator().manual_seed(seed + 7919 * (settings.draws * settings.widths.index(width) + draw))
        return _accuracy(empirical(initialize(parametrize_ntk(net), generator=generator)).ntk, images)

    cells = [(name, _EXACT, 0) for name in names]
    cells += [(name, width, draw) for name in names for width in settings.widths for draw in range(settings.draws)]
    source = {"experiment": "random_features_cifar", "data": data.name if data else "digits"}
    found = fill(cells, accuracy, {**source, **asdict(settings), "seed": seed}, path, progress)
    return FeaturesResult(
        settings,
        seed,
        {name: table(found, name, settings.widths, settings.draws) for name in names},
        {name: found[name, _EXACT, 0] for name in names},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = file_options("random_features_cifar", __doc__)
    options.add_argument("--data", type=Path, help="images as an .npz file (scikit-learn's digits)")
    options.add_argument("--train", type=int, help="training images (60; 200 with --data)")
    options.add_argument("--test", type=int, help="test images (200)")
    options.add_argument("--depth", type=int, help="convolutions (3)")
    options.add_argument("--widths", type=int, nargs="+", help="channels of the finite networks (8 16 32 64 128)")
    options.add_argument("--draws", type=int, help="networks of each width (5)")
    options.add_argument("--classes", type=int, nargs=2, help="the two classes (3 9; 0 1 with --data)")
    chosen = read_file_options(options, arguments)
    try:
        settings = _settings(chosen)
        with progress_bars() as progress:
            result = run(settings, chosen.seed, chosen.data, chosen.output, progress)
    except InputError as error:
        options.error(str(error))
    figure = new_figure(7.5, 4.8)
    ax = plot_random_features(figure.subplots(), settings.widths, result.accuracy, result.exact)
    ax.set_title(f"Kernels of random networks, {settings.depth} convolutions, {settings.train} training images")
    figure.savefig(chosen.output.with_suffix(".png"), dpi=160)
    rows = [
        [name, *(f"{100 * np.median(row):.1f}" for row in values), f"{100 * result.exact[name]:.1f}"]
        for name, values in result.accuracy.items()
    ]
    caption = f"Test accuracy in % by channels, median of {settings.draws} networks, and of the exact kernel"
    print_table(Table(["network", *map(str, settings.widths), "exact"], rows, caption))
    print(f"The numbers: {chosen.output.resolve()}, the figure beside it: {chosen.output.with_suffix('.png').name}")
    return 0


def _settings(chosen: argparse.Namespace) -> Settings:
    quick = chosen.quick
    base = asdict(QUICK if quick else Settings())
    if chosen.data is not None:
        base |= {"classes": (0, 1)} | ({} if quick else {"train": 200})
    base |= given(chosen, "train", "test", "depth", "widths", "draws", "classes")
    settings = Settings(**base)
    sizes = {"depth": (settings.depth,), "draws": (settings.draws,), "widths": settings.widths}
    for name, values in sizes.items():
        if min(values) < 1:
            raise InputError(f"{name} must be positive. Got {list(values)}.")
    if len(set(settings.classes)) < 2:
        raise InputError(f"classes must be two different ones. Got {settings.classes}.")
    return settings


def _accuracy(kernel: Kernel, images: Images) -> float:
    """Give the accuracy of kernel regression without ridge."""
    model = NTKClassifier(kernel="precomputed").fit(kernel(images.x).double().numpy(), images.y)
    predicted = model.predict(kernel(images.x_test, images.x).double().numpy())
    return float(np.mean(predicted == images.y_test))


if __name__ == "__main__":
    sys.exit(main())
