"""Does the tangent hierarchy do a higher-order regression? Its label-aware part within classes and between them.

The check in the text of section 2.3 of Chen, He and Su 2020 (5 planes, 5 ships: 98 on average within a class, 48 between
them), on more draws and at larger sizes, and how much of the kernels sits at each level of Hoeffding's decomposition (Lemma
2.2). Run it with ``python -m ntkit.experiments.hierarchy_planes_ships --data cifar.npz`` (arrays ``x_train``, ``x_test`` of
shape (n, 32, 32, 3), uint8, and ``y_train``, ``y_test``); without data it uses two of scikit-learn's 8x8 digits.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit.kernels import infinite_width
from ntkit.labels import LabelAware, TangentHierarchy, function_of_labels, hoeffding
from ntkit.plots import Table, new_figure, plot_levels

from ._command_line import Progress, given, print_table, progress_bars
from ._finite_cells import Cell, file_options, fill, read_file_options, table
from ._images import load_images

__all__ = ["PAPER", "HierarchyResult", "Settings", "main", "run"]

PAPER = {"intra": 98.0, "inter": 48.0}
"""The means that section 2.3 gives, in a scale that it does not; only their ratio, 2.04, can be compared."""

_MEANS = ("intra", "intra with i = j", "inter")
_KERNELS = ("K_HR", "K_NTH", "label part of K_HR", "label part of K_NTH")


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    sizes
        Images of each class; the paper has 5.
    draws
        Draws of images for each size.
    classes
        The two classes: planes and ships are 0 and 8.
    width
        Of the two-layer network, f = a . relu(W x) / sqrt(width): the label-aware part is in proportion to 1 / width.
    samples
        Random neurons for the expectations.
    level_samples
        The same for Hoeffding's decomposition, on the images of the first size and draw, which evaluates the kernel for each
        pair of labels.
    strength
        Of LANTK-KR-V1, K_HR.
    """

    sizes: tuple[int, ...] = (5, 10, 20)
    draws: int = 5
    classes: tuple[int, int] = (3, 8)
    width: int = 1024
    samples: int = 1024
    level_samples: int = 128
    strength: float = 0.1


QUICK = Settings(sizes=(2, 3), draws=2, samples=64, level_samples=64)


@dataclass(frozen=True)
class HierarchyResult:
    """What the experiment found.

    Attributes
    ----------
    settings, seed
        What it was asked.
    means
        By kind of pairs (within classes, the same with i = j, between classes): mean of width times the label-aware part of
        K_NTH over the training pairs, shape (sizes, draws).
    levels
        By kernel: the shares of levels 0, 1, 2 and above in E K^2, shape (4,), for labels of fair coins.
    """

    settings: Settings
    seed: int
    means: dict[str, NDArray[Any]]
    levels: dict[str, NDArray[Any]]


def points(settings: Settings, size: int, draw: int, seed: int, data: Path | None) -> tuple[Tensor, Tensor]:
    """Draw images of both classes as vectors, and their labels -1 and +1.

    They are turned into the coordinates of their span, which changes no inner product and so no kernel here, and scaled to a
    mean square norm of 1: K2 grows with the square of the scale, while its label-aware part does not depend on it.
    """
    images = load_images(2 * size, 2, seed + 7919 * draw, data, settings.classes)
    left, sizes, _ = torch.linalg.svd(images.x.flatten(1).double(), full_matrices=False)
    x = left * sizes * (len(left) ** 0.5 / torch.linalg.vector_norm(sizes))
    return x, torch.where(torch.from_numpy(images.y) == settings.classes[0], 1.0, -1.0).to(x.dtype)


def run(
    settings: Settings | None = None,
    seed: int = 0,
    data: Path | None = None,
    path: Path | None = None,
    progress: Progress | None = None,
) -> HierarchyResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is a size that takes some minutes on two cores.
    seed
        Decides images and neurons.
    data
        An ``.npz`` file of images; None takes the digits.
    path
        A JSON file to go on from and to keep the numbers in.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> result = run(QUICK)
    >>> result.means["inter"].shape, sorted(result.levels)[0]
    ((2, 2), 'K_HR')
    """
    settings = settings or Settings()

    def hierarchy(samples: int) -> TangentHierarchy:
        generator = torch.Generator().manual_seed(seed)
        return TangentHierarchy("relu", width=settings.width, n_samples=samples, generator=generator)

    @lru_cache(maxsize=1)
    def means(size: int, draw: int) -> dict[str, float]:
        x, y = points(settings, size, draw, seed, data)
        part = settings.width * hierarchy(settings.samples).fit(x, y).label_part(x)
        same, self_pairs = y[:, None] == y, torch.eye(len(y), dtype=torch.bool)
        masks = {"intra": same & ~self_pairs, "intra with i = j": same, "inter": ~same}
        return {name: float(part[mask].mean()) for name, mask in masks.items()}

    @lru_cache(maxsize=1)
    def levels() -> dict[str, Tensor]:
        x, y = points(settings, settings.sizes[0], 0, seed, data)
        base = infinite_width(
            nn.Sequential(nn.Linear(x.shape[1], 8, bias=False), nn.ReLU(), nn.Linear(8, 1, bias=False))
        ).ntk
        aware = LabelAware(base, "kr-v1", settings.strength).fit(x, y)

        def nth(labels: Tensor) -> Tensor:
            kernel = hierarchy(settings.level_samples).fit(x, labels)  # the same neurons for all labels
            return torch.stack([kernel(x), kernel.label_part(x)])

        def report(done: int, total: int) -> None:
            if progress is not None:
                progress("levels of K_NTH", done, total)

        both = hoeffding(nth, len(y), method="quadratic", progress=report).levels.flatten(2).sum(2)
        sums = {"K_NTH": both[:, 0], "label part of K_NTH": both[:, 1]}
        for name, alone in (("K_HR", False), ("label part of K_HR", True)):
            values = function_of_labels(aware, x, x, label_part=alone)
            sums[name] = hoeffding(values, len(y), method="quadratic").levels.flatten(1).sum(1)
        return {name: one / one.sum() for name, one in sums.items()}

    def value(cell: Cell) -> float:
        name, size, number = cell
        return float(levels()[name][number]) if name in _KERNELS else means(size, number)[name]

    cells = [(name, size, draw) for size in settings.sizes for draw in range(settings.draws) for name in _MEANS]
    cells += [(name, settings.sizes[0], level) for name in _KERNELS for level in range(4)]
    source = {"experiment": "hierarchy_planes_ships", "data": data.name if data else "digits"}
    found = fill(cells, value, {**source, **asdict(settings), "seed": seed}, path, progress)
    return HierarchyResult(
        settings,
        seed,
        {name: table(found, name, settings.sizes, settings.draws) for name in _MEANS},
        {name: np.array([found[name, settings.sizes[0], level] for level in range(4)]) for name in _KERNELS},
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = file_options("hierarchy_planes_ships", __doc__)
    options.add_argument("--data", type=Path, help="images as an .npz file (scikit-learn's digits)")
    options.add_argument("--sizes", type=int, nargs="+", help="images of each class (5 10 20; the paper has 5)")
    options.add_argument("--draws", type=int, help="draws of images (5)")
    options.add_argument(
        "--classes", type=int, nargs=2, help="the two classes (3 8; 0 8, planes and ships, with --data)"
    )
    options.add_argument("--samples", type=int, help="random neurons for the expectations (1024)")
    options.add_argument("--level-samples", type=int, help="the same for Hoeffding's decomposition (128)")
    options.add_argument("--strength", type=float, help="of K_HR (0.1)")
    chosen = read_file_options(options, arguments)
    try:
        settings = _settings(chosen)
        with progress_bars() as progress:
            result = run(settings, chosen.seed, chosen.data, chosen.output, progress)
    except InputError as error:
        options.error(str(error))
    figure = new_figure(8.5, 3.2)
    ax = plot_levels(figure.subplots(), result.levels)
    ax.set_title(f"Hoeffding's levels, {2 * settings.sizes[0]} images")
    figure.savefig(chosen.output.with_suffix(".png"), dpi=160)
    for one in _tables(result):
        print_table(one)
    print(f"The numbers: {chosen.output.resolve()}, the figure beside it: {chosen.output.with_suffix('.png').name}")
    return 0


def _tables(result: HierarchyResult) -> list[Table]:
    rows = [
        [
            "paper, 5 planes, 5 ships",
            f"{PAPER['intra']:g}",
            "",
            f"{PAPER['inter']:g}",
            f"{PAPER['intra'] / PAPER['inter']:.2f}",
            "",
        ]
    ]
    for number, size in enumerate(result.settings.sizes):
        own = {name: values[number] for name, values in result.means.items()}
        texts = [f"{values.mean():.3g} ± {values.std(ddof=1) if len(values) > 1 else 0:.2g}" for values in own.values()]
        ratios = [f"{np.median(own[name] / own['inter']):.2f}" for name in _MEANS[:2]]
        rows.append([f"{size} of each class", *texts, *ratios])
    header = ["", *_MEANS, "ratio", "ratio with i = j"]
    caption = "Mean of width times the label-aware part of K_NTH (± over draws), and the median ratio of intra to inter"
    shares = [
        [name, *(f"{100 * share:.4g}" if share > 1e-20 else "0" for share in values)]
        for name, values in result.levels.items()
    ]
    return [
        Table(header, rows, caption),
        Table(
            ["", "level 0", "level 1", "level 2", "above"],
            shares,
            "Share of each level in E K^2, in %, labels of fair coins",
        ),
    ]


def _settings(chosen: argparse.Namespace) -> Settings:
    base = asdict(QUICK if chosen.quick else Settings())
    if chosen.data is not None:
        base["classes"] = (0, 8)
    base |= given(chosen, "sizes", "draws", "classes", "samples", "level_samples", "strength")
    settings = Settings(**base)
    for name, values, least in (("sizes", settings.sizes, 2), ("draws", (settings.draws,), 1)):
        if min(values) < least:
            raise InputError(f"{name} must be at least {least}. Got {list(values)}.")
    if len(set(settings.classes)) < 2:
        raise InputError(f"classes must be two different ones. Got {settings.classes}.")
    return settings


if __name__ == "__main__":
    sys.exit(main())
