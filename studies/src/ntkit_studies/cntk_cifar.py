"""Kernel regression with the exact kernels of convolutional networks of several depths, on all classes of images.

Table 1 of Arora et al. 2019 at a size of your choice, compared with the paper's figures. Run it with
``python -m ntkit_studies cntk_cifar --data cifar.npz`` (arrays ``x_train`` and ``x_test`` of shape (n, 32, 32, 3), uint8, and
``y_train``, ``y_test``); without data it uses scikit-learn's 8x8 digits. Kernels are kept on disk as they are computed.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import Literal

import numpy as np
from torch import nn

from ntkit import NTKClassifier, infinite_width
from ntkit.errors import InputError

from ._images import FILES, Images, images_size, load_images
from ._networks import conv_network
from ._rates import CUBIC, cholesky_rate, entry_seconds, image_shape
from ._stored_gram import train_and_test
from .plots import Section, Table
from .skeleton import Comparison, Estimate, Report, Results, Run, Size, experiment_of

__all__ = ["EXPERIMENT", "PAPER", "QUICK", "Accuracy", "Depth", "Settings", "label", "main", "network", "run"]

PAPER = {
    "flatten": {2000: {3: 40.94, 4: 42.54, 6: 43.43, 11: 43.42, 21: 42.53},
                50000: {3: 64.47, 4: 65.52, 6: 66.03, 11: 65.90, 21: 64.09}},
    "average": {2000: {3: 49.71, 4: 51.06, 6: 51.73, 11: 51.92, 21: 52.22},
                50000: {3: 70.47, 4: 75.93, 6: 76.73, 11: 77.43, 21: 77.08}},
}  # fmt: skip
"""Accuracy in % in Table 1, by head, training images and depth."""

_NAMES = {"flatten": "CNTK-V", "average": "CNTK-GAP"}
_PAPER_TEST = 10_000


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    depths
        Layers with weights, the last one included, as in the paper.
    head
        ``"flatten"`` (the paper's CNTK-V) or ``"average"`` (CNTK-GAP, first and last layer fixed).
    train, test
        Images, equally many of each class.
    """

    depths: tuple[int, ...] = (3, 4, 6, 11, 21)
    head: Literal["flatten", "average"] = "flatten"
    train: int = 500
    test: int = 500

    def __post_init__(self) -> None:
        if self.head not in PAPER:
            raise InputError(f'head must be "flatten" or "average". Got {self.head!r}.')
        if not self.depths or min(self.depths) < 2:
            raise InputError(f"depths must be at least 2: one convolution and the last layer. Got {list(self.depths)}.")


QUICK = Settings(depths=(3, 4), train=50, test=50)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    return {"quick": QUICK, "default": Settings(), "full": Settings(train=50000, test=10000)}[size]


@dataclass(frozen=True)
class Depth:
    """A cell: the kernel of one depth."""

    depth: int


@dataclass(frozen=True)
class Accuracy:
    """The result for the kernel of one depth.

    Attributes
    ----------
    accuracy
        Fraction of the test images that kernel regression without ridge classifies correctly.
    """

    accuracy: float


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    images: Images


def cells(run: Run[Settings]) -> list[Depth]:
    """Return one cell per depth."""
    return [Depth(depth) for depth in run.settings.depths]


def prepare(run: Run[Settings]) -> _Shared:
    """Draw the images."""
    return _Shared(run, load_images(run.settings.train, run.settings.test, run.seed, run.data))


def network(depth: int, head: str, channels: int, side: int) -> nn.Module:
    """Return the paper's network; a width of one serves, since the limit does not depend on it.

    Parameters
    ----------
    depth
        As in the paper, "the total number of layers (including both convolution layers and fully-connected layers)":
        ``depth - 1`` convolutions with ReLU, and the linear layer.
    head
        ``"flatten"`` (CNTK-V) or ``"average"`` (CNTK-GAP, first and last layer fixed).
    channels, side
        Of the images.
    """
    return conv_network(depth - 1, 1, head == "average", channels, side)


def label(depth: int, head: str) -> str:
    """Name the network of :func:`network` as the paper does.

    Examples
    --------
    >>> label(4, "flatten")
    'CNTK-V, depth 4'
    """
    return f"{_NAMES[head]}, depth {depth}"


def compute(shared: _Shared, cell: Depth) -> Accuracy:
    """Compute the kernel of one depth and classify the test images with it."""
    run, images = shared.run, shared.images
    kernel = infinite_width(network(cell.depth, run.settings.head, images.x.shape[1], images.x.shape[2])).ntk
    gram, cross = train_and_test(kernel, images, run, f"depth {cell.depth}")
    model = NTKClassifier(kernel="precomputed", calibration=None).fit(gram, images.y)
    return Accuracy(float(np.mean(model.predict(cross) == images.y_test)))


def report(results: Results[Settings, Depth, Accuracy]) -> Report:
    """Put the accuracies beside the paper's, where the images come from a file."""
    settings, seconds = results.settings, results.seconds
    paper = PAPER[settings.head]
    rows, comparisons = [], []
    for cell, found in results.values.items():
        error = 100 * (found.accuracy * (1 - found.accuracy) / settings.test) ** 0.5
        figures = [paper[size].get(cell.depth) if results.from_file else None for size in (2000, 50000)]
        rows.append(
            [
                str(cell.depth),
                f"{100 * found.accuracy:.2f} ± {error:.1f}",
                *("–" if value is None else f"{value:.2f}" for value in figures),
                f"{seconds[cell]:.0f}",
            ]
        )
        nearest = min(paper, key=lambda size: abs(size - settings.train))
        if results.from_file and cell.depth in paper[nearest]:
            comparable = settings.train == nearest and settings.test >= _PAPER_TEST
            quantity = f"{label(cell.depth, settings.head)}, {settings.train} images: accuracy in %"
            ours, size = (100 * found.accuracy,), images_size(settings.train, settings.test)
            theirs = images_size(nearest, _PAPER_TEST)
            comparisons.append(Comparison(quantity, ours, paper[nearest][cell.depth], error, comparable, size, theirs))
    caption = (
        f"Test accuracy in % with {settings.train} training and {settings.test} test images, head: {settings.head}; ± is the "
        "standard error that the test images leave"
    )
    header = ["depth", "accuracy", "paper, 2,000 images", "paper, 50,000", "seconds"]
    introduction = (
        "Kernel regression without ridge with the exact tangent kernel of a convolutional ReLU network, by depth, after "
        "Table 1 of Arora et al. 2019."
    )
    return Report(
        "Exact convolutional kernels by depth",
        introduction,
        [Section("Accuracy", [Table(header, rows, caption)])],
        comparisons,
    )


def estimate(run: Run[Settings]) -> Estimate:
    """Count entries and factorisations of all depths; the Gram matrix and its factor are held in float64."""
    settings = run.settings
    n, m = settings.train, settings.test
    channels, side = image_shape(run.data)
    least = min(settings.depths)
    kernel = infinite_width(network(least, settings.head, channels, side)).ntk
    convolution = entry_seconds(kernel, (channels, side, side)) / (least - 1)
    entries = n * (n + 1) / 2 + n * m
    seconds = sum(entries * (depth - 1) * convolution + n**3 / 3 / cholesky_rate() for depth in settings.depths)
    basis = f"Measured here: entries of the kernel of depth {least}, others in proportion to their convolutions, and {CUBIC}."
    return Estimate(
        seconds, 8.0 * (2 * n**2 + n * m), basis, "fewer training images (--train), with whose square both grow"
    )


EXPERIMENT = experiment_of(
    globals(),
    name="cntk_cifar",
    title="Accuracy of exact convolutional kernels by depth, on all classes of images.",
    reproduces="Arora et al. 2019, Table 1",
    embedded="digits",
    files=FILES,
    selects=("depths",),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
