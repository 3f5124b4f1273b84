"""Does the tangent hierarchy perform a higher-order regression? Its label-aware part within classes and between them.

The check in the text of section 2.3 of Chen, He and Su 2020 (5 planes, 5 ships: 98 on average within a class, 48 between
them), on more draws and at larger sizes, and how much of the kernels sits at each level of Hoeffding's decomposition (Lemma
2.2). Run it with ``python -m ntkit_studies hierarchy_planes_ships --data cifar.npz`` (arrays ``x_train``, ``x_test`` of
shape (n, 32, 32, 3), uint8, and ``y_train``, ``y_test``); without data it uses two of scikit-learn's 8x8 digits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit import LabelAware, TangentHierarchy, hoeffding, infinite_width
from ntkit.errors import InputError
from ntkit.labels import function_of_labels
from ntkit.plots import new_figure, plot_levels

from ._by_seed import is_positive
from ._images import FILES, load_images
from ._networks import dense_network
from .plots import Picture, Section, Table
from .skeleton import (
    Claim,
    Estimate,
    Report,
    Results,
    Run,
    Size,
    check_at_least,
    duration,
    experiment_of,
    fitted_seconds,
)

__all__ = ["EXPERIMENT", "PAPER", "QUICK", "Measured", "Sample", "Settings", "main", "points", "run"]

PAPER = {"intra": 98.0, "inter": 48.0}
"""The means that section 2.3 gives, in a scale that it does not; only their ratio, 2.04, can be compared."""

_PAPER_SIZE = 5

MEANS = ("intra", "intra with i = j", "inter")
KERNELS = ("K_HR", "K_NTH", "label part of K_HR", "label part of K_NTH")


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

    def __post_init__(self) -> None:
        check_at_least(self, 2, "sizes")
        check_at_least(self, 1, "draws", "width", "samples", "level_samples")
        if len(set(self.classes)) < 2:
            raise InputError(f"classes must be two different ones. Got {self.classes}.")


QUICK = Settings(sizes=(2, 3), draws=2, samples=64, level_samples=64)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; planes and ships of a file."""
    found = {"quick": QUICK, "default": Settings(), "full": Settings(draws=20, samples=8192)}[size]
    return replace(found, classes=(0, 8)) if from_file else found


@dataclass(frozen=True)
class Sample:
    """A cell: some images, and what is measured on them."""

    measure: Literal["means", "levels"]
    size: int
    draw: int


@dataclass(frozen=True)
class Measured:
    """What was measured on some images.

    Attributes
    ----------
    means
        By kind of pairs (within classes, the same with i = j, between classes): mean of width times the label-aware part
        of K_NTH over the training pairs. Empty in a cell of levels.
    levels
        By kernel: the shares of levels 0, 1, 2 and above in E K^2, for labels of fair coins. Empty in a cell of means.
    """

    means: dict[str, float]
    levels: dict[str, tuple[float, float, float, float]]


def cells(run: Run[Settings]) -> list[Sample]:
    """Return a cell per size and draw, and one for the levels."""
    settings = run.settings
    means = [Sample("means", size, draw) for size in settings.sizes for draw in range(settings.draws)]
    return [*means, Sample("levels", settings.sizes[0], 0)]


def points(settings: Settings, size: int, draw: int, seed: int, data: Path | None) -> tuple[Tensor, Tensor]:
    """Draw images of both classes as vectors, and their labels -1 and +1.

    They are turned into the coordinates of their span, which changes no inner product and so no kernel here, and scaled to a
    mean square norm of 1: K2 grows with the square of the scale, while its label-aware part does not depend on it.
    """
    images = load_images(2 * size, 2, seed + 7919 * draw, data, settings.classes)
    left, lengths, _ = torch.linalg.svd(images.x.flatten(1).double(), full_matrices=False)
    x = left * lengths * (len(left) ** 0.5 / torch.linalg.vector_norm(lengths))
    return x, torch.where(torch.from_numpy(images.y) == settings.classes[0], 1.0, -1.0).to(x.dtype)


def compute(run: Run[Settings], cell: Sample) -> Measured:
    """Measure the means, or the levels, on the images of one cell."""
    x, y = points(run.settings, cell.size, cell.draw, run.seed, run.data)
    if cell.measure == "levels":
        return Measured({}, _levels(run, x, y))
    part = run.settings.width * _hierarchy(run, run.settings.samples).fit(x, y).label_part(x)
    same, self_pairs = y[:, None] == y, torch.eye(len(y), dtype=torch.bool)
    masks = zip(MEANS, (same & ~self_pairs, same, ~same), strict=True)
    return Measured({name: float(part[mask].mean()) for name, mask in masks}, {})


def _hierarchy(run: Run[Settings], samples: int) -> TangentHierarchy:
    generator = torch.Generator().manual_seed(run.seed)
    return TangentHierarchy("relu", width=run.settings.width, n_samples=samples, generator=generator)


def _levels(run: Run[Settings], x: Tensor, y: Tensor) -> dict[str, tuple[float, float, float, float]]:
    base = infinite_width(dense_network(x.shape[1], 8)).ntk
    aware = LabelAware(base, "kr-v1", run.settings.strength).fit(x, y)

    def nth(labels: Tensor) -> Tensor:
        kernel = _hierarchy(run, run.settings.level_samples).fit(x, labels)  # the same neurons for all labels
        return torch.stack([kernel(x), kernel.label_part(x)])

    def progress(done: int, total: int) -> None:
        run.progress("levels of K_NTH", done, total)

    both = hoeffding(nth, len(y), method="quadratic", progress=progress).levels.flatten(2).sum(2)
    sums = {"K_NTH": both[:, 0], "label part of K_NTH": both[:, 1]}
    for name, alone in (("K_HR", False), ("label part of K_HR", True)):
        values = function_of_labels(aware, x, x, label_part=alone)
        sums[name] = hoeffding(values, len(y), method="quadratic").levels.flatten(1).sum(1)
    found = {}
    for name in KERNELS:
        zero, one, two, above = (sums[name] / sums[name].sum()).tolist()
        found[name] = zero, one, two, above
    return found


def means_of(results: Results[Settings, Sample, Measured]) -> dict[str, NDArray[Any]]:
    """Return the means by kind of pairs, shape (sizes, draws)."""
    settings = results.settings
    return {
        name: np.array(
            [
                [results.values[Sample("means", size, draw)].means[name] for draw in range(settings.draws)]
                for size in settings.sizes
            ]
        )
        for name in MEANS
    }


def report(results: Results[Settings, Sample, Measured]) -> Report:
    """Show the means beside the paper's, and the levels."""
    settings, means = results.settings, means_of(results)
    levels = results.values[Sample("levels", settings.sizes[0], 0)].levels
    rows, claims = [], []
    for number, size in enumerate(settings.sizes):
        own = {name: values[number] for name, values in means.items()}
        texts = [f"{values.mean():.3g} ± {values.std(ddof=1) if len(values) > 1 else 0:.2g}" for values in own.values()]
        ratios = [f"{np.median(own[name] / own['inter']):.2f}" for name in MEANS[:2]]
        rows.append([f"{size} of each class", *texts, *ratios])
        quoted = results.from_file and settings.classes == (0, 8)
        claims.append(_larger_within(own["intra"], own["inter"], size, quoted))
    caption = (
        "Mean of width times the label-aware part of K_NTH (± standard deviation over draws), and the median ratio of intra "
        "to inter; the paper has 98 and 48, in a scale that it does not give"
    )
    shares = [
        [name, *(f"{100 * share:.4g}" if share > 1e-20 else "0" for share in values)] for name, values in levels.items()
    ]
    figure = new_figure(8.5, 3.2)
    plot_levels(figure.subplots(), levels)
    picture = Picture(
        figure,
        f"Hoeffding's levels on {2 * settings.sizes[0]} images: how much of each kernel depends on no label, on one, on two.",
        "Stacked bars of the shares of the levels, one bar per kernel.",
    )
    header = ["level 0", "level 1", "level 2", "above"]
    return Report(
        "The label-aware part of the tangent hierarchy",
        "Whether the label-aware part of the hierarchy kernel is larger within classes than between them, after section 2.3 "
        "of Chen, He and Su 2020, and how its dependence on labels splits into levels.",
        [
            Section(
                "Within classes and between them", [Table(["", *MEANS, "ratio", "ratio with i = j"], rows, caption)]
            ),
            Section(
                "Levels",
                [Table(["", *header], shares, "Share of each level in E K^2, in %, labels of fair coins"), picture],
            ),
        ],
        claims=claims,
    )


def _larger_within(intra: NDArray[Any], inter: NDArray[Any], size: int, quoted: bool) -> Claim:
    """Ask whether the values within classes are larger: by more than two standard errors over draws, if there are several.

    Their ratio is only shown: the values between classes may be near zero or below, so that its spread is wider than itself.
    """
    ratios = intra / inter
    more = int((intra > inter).sum())
    holds = is_positive((intra - inter).tolist()) if len(intra) > 1 else more == 1
    return Claim(
        f"{size} of each class: mean of the label-aware part within classes and between them",
        f"{PAPER['intra']:g} and {PAPER['inter']:g}: larger within" if quoted else "-",
        f"{intra.mean():.3g} and {inter.mean():.3g}, larger in {more} of {len(intra)} draws; ratios from {ratios.min():.3g} to "
        f"{ratios.max():.3g}, median {np.median(ratios):.3g}",
        holds if size >= _PAPER_SIZE else None,
        f"{size} of each class, {len(intra)} draws",
        f"{_PAPER_SIZE} of each class, 1 draw",
    )


_TRIAL = 128  # random neurons of the smaller of two trials


def estimate(run: Run[Settings]) -> Estimate:
    """Time each kind of cell with few random neurons, in whose number the work is linear."""
    settings = run.settings

    def fit(samples: int, size: int) -> None:
        compute(replace(run, settings=replace(settings, samples=samples)), Sample("means", size, 0))

    first, largest = settings.sizes[0], max(settings.sizes)
    count = len(settings.sizes) * settings.draws
    seconds = count * fitted_seconds(lambda samples: fit(samples, largest), _TRIAL, 1)(settings.samples)
    # The levels need the kernel for no labels, each one and each pair of them.
    pairs = 1 + 2 * first + first * (2 * first - 1)
    seconds += pairs * duration(lambda: fit(settings.level_samples, first))
    # Fourth derivatives of each neuron between all pairs of images, some of them at a time.
    memory = 8.0 * settings.samples * (2 * largest) ** 2
    basis = f"Measured here: cells with {_TRIAL} and {2 * _TRIAL} random neurons, all as the largest."
    return Estimate(seconds, memory, basis, "fewer draws (--draws) or random neurons (--samples)")


EXPERIMENT = experiment_of(
    globals(),
    name="hierarchy_planes_ships",
    title="The label-aware part of the tangent hierarchy within classes and between them, and its levels.",
    reproduces="Chen, He, Su 2020, section 2.3 and Lemma 2.2",
    embedded="digits",
    files=FILES,
    selects=("sizes", "draws"),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
