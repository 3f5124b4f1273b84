"""Kernels of finite random networks (random features) against the exact convolutional kernels, on two classes of images.

Section 5.2 and Table 2 of Arora et al. 2019 at a size of your choice: the tangent kernel of one random network with finitely
many channels, against that of infinitely many. Run it with ``python -m ntkit_studies random_features_cifar --data cifar.npz``
(arrays ``x_train`` and ``x_test`` of shape (n, 32, 32, 3), uint8, and ``y_train``, ``y_test``); without data it uses
scikit-learn's 8x8 digits.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray

from ntkit import NTKClassifier, empirical, infinite_width, initialize, parametrize_ntk
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._by_seed import is_positive
from ._by_width import WidthCell, by_width, network_seed, width_cells
from ._images import FILES, Images, images_size, load_images
from ._networks import conv_network
from ._rates import CUBIC, cholesky_rate, entry_seconds, image_shape
from ._stored_gram import train_and_test
from .cntk_cifar import Accuracy
from .plots import Picture, Section, Table, plot_random_features
from .skeleton import Claim, Comparison, Estimate, Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "NETWORKS", "PAPER", "QUICK", "Settings", "main", "run"]

NETWORKS = ("CNTK-V", "CNTK-GAP")
PAPER = {
    "CNTK-V": {3: (87.25, 92.15), 4: (87.78, 92.80), 6: (88.73, 93.10), 11: (87.80, 93.05), 21: (85.35, 91.95)},
    "CNTK-GAP": {3: (51.10, 71.05), 4: (52.85, 94.50), 6: (53.98, 95.25), 11: (56.55, 95.40), 21: (90.65, 95.70)},
}
"""Accuracy in % in Table 2, by network and layers with weights: of random features with 128 channels, and exact."""

_EXACT = 0  # stands for infinitely many channels
_PAPER_CHANNELS, _PAPER_TRAIN, _PAPER_TEST, _PAPER_DRAWS = 128, 10_000, 2_000, 10
_PAPER_SIZE = f"{images_size(_PAPER_TRAIN, _PAPER_TEST)}, {_PAPER_DRAWS} networks"
_ENOUGH = 200  # training images, below which accuracies say nothing of kernels


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    widths
        Channels of the finite networks; the paper has 128. None at all, ``()`` in a file of settings, leaves the exact kernels.
    draws
        Random networks of each width; the paper takes the median of 10.
    depth
        Convolutions, one less than the paper's depth.
    train, test
        Images, even numbers: both classes have equally many.
    classes
        The two classes.
    networks
        CNTK-V, CNTK-GAP or both.
    """

    widths: tuple[int, ...] = (8, 16, 32, 64, 128)
    draws: int = 5
    depth: int = 3
    train: int = 60
    test: int = 200
    classes: tuple[int, int] = (3, 9)
    networks: tuple[str, ...] = NETWORKS

    def __post_init__(self) -> None:
        check_at_least(self, 1, "depth", "draws", *(["widths"] if self.widths else []))
        if not self.networks or not set(self.networks) <= set(NETWORKS):
            raise InputError(f"networks must be some of {', '.join(NETWORKS)}. Got {list(self.networks)}.")
        if len(set(self.classes)) < 2:
            raise InputError(f"classes must be two different ones. Got {self.classes}.")


QUICK = Settings(widths=(2, 4), draws=2, depth=2, train=10, test=20)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; the first two classes of a file, as in the paper."""
    full = Settings(widths=(_PAPER_CHANNELS,), draws=_PAPER_DRAWS, train=_PAPER_TRAIN, test=_PAPER_TEST)
    found = {"quick": QUICK, "default": Settings(train=200 if from_file else 60), "full": full}[size]
    return replace(found, classes=(0, 1)) if from_file else found


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    images: Images


def cells(run: Run[Settings]) -> list[WidthCell]:
    """Return one cell per network, width and draw, after the exact kernels."""
    names = run.settings.networks
    return [WidthCell(name, _EXACT, 0) for name in names] + width_cells(names, run.settings.widths, run.settings.draws)


def prepare(run: Run[Settings]) -> _Shared:
    """Draw the images."""
    settings = run.settings
    return _Shared(run, load_images(settings.train, settings.test, run.seed, run.data, settings.classes))


def compute(shared: _Shared, cell: WidthCell) -> Accuracy:
    """Classify the test images by kernel regression with one kernel."""
    settings, images = shared.run.settings, shared.images
    _, channels, side, _ = images.x.shape
    net = conv_network(settings.depth, cell.width or 8, cell.curve == "CNTK-GAP", channels, side)
    if cell.width == _EXACT:
        gram, cross = train_and_test(infinite_width(net).ntk, images, shared.run, f"{cell.curve}, exact")
    else:
        seed = network_seed(shared.run.seed, cell, settings.widths, settings.draws)
        kernel = empirical(initialize(parametrize_ntk(net), generator=torch.Generator().manual_seed(seed))).ntk
        gram, cross = kernel(images.x).double().numpy(), kernel(images.x_test, images.x).double().numpy()
    predicted = NTKClassifier(kernel="precomputed", calibration=None).fit(gram, images.y).predict(cross)
    return Accuracy(float(np.mean(predicted == images.y_test)))


def report(results: Results[Settings, WidthCell, Accuracy]) -> Report:
    """Draw the accuracies against width, with those of the exact kernels."""
    settings = results.settings
    exact = {name: results.values[WidthCell(name, _EXACT, 0)].accuracy for name in settings.networks}
    finite = {cell: found for cell, found in results.values.items() if cell.width != _EXACT}
    accuracy = by_width(finite, settings.widths, settings.draws, lambda found: found.accuracy)
    rows = [
        [name, *(f"{100 * np.median(row):.1f}" for row in accuracy.get(name, ())), f"{100 * exact[name]:.1f}"]
        for name in settings.networks
    ]
    caption = f"Test accuracy in % by channels, median of {settings.draws} networks, and of the exact kernel"
    comparisons, claims = [], []
    for name in settings.networks if results.from_file and settings.classes == (0, 1) else ():
        figures = PAPER[name].get(settings.depth + 1)
        if figures is not None:
            same = settings.train >= _PAPER_TRAIN and settings.test >= _PAPER_TEST
            own = (same, _size(settings), _PAPER_SIZE)
            images = images_size(settings.train, settings.test), images_size(_PAPER_TRAIN, _PAPER_TEST)
            share, error = exact[name], (exact[name] * (1 - exact[name]) / settings.test) ** 0.5
            place = f"{name}, depth {settings.depth + 1}"
            comparisons.append(
                Comparison(f"{place}, exact: accuracy in %", (100 * share,), figures[1], 100 * error, same, *images)
            )
            if _PAPER_CHANNELS in settings.widths:
                drawn = 100 * accuracy[name][settings.widths.index(_PAPER_CHANNELS)]
                ours = tuple(map(float, drawn))
                comparisons.append(Comparison(f"{place}, 128 channels: accuracy in %", ours, figures[0], None, *own))
                lost = 100 * share - drawn
                claims.append(
                    Claim(
                        f"{place}: accuracy of the exact kernel less that of 128 channels, in points",
                        f"random features are much worse by a large margin ({figures[1] - figures[0]:.1f})",
                        f"{lost.mean():.1f} ± {lost.std(ddof=1) / len(lost) ** 0.5 if len(lost) > 1 else 0:.1f}",
                        _by_half(lost, figures[1] - figures[0]) if settings.train >= _ENOUGH else None,
                        *own[1:],
                    )
                )
    pictures = []
    if settings.widths:
        figure = new_figure(7.5, 4.8)
        plot_random_features(figure.subplots(), settings.widths, accuracy, exact)
        below = (
            "Accuracy of kernel regression with the kernel of one random network against its channels: medians, bars from the "
            "worst network to the best; dashed, the exact kernel."
        )
        text = "Two rising curves of accuracy against channels with a dashed line each for the exact kernel."
        pictures.append(Picture(figure, below, text))
    return Report(
        "Random features and exact kernels",
        "Kernel regression with the tangent kernel of one random network of so many channels, and with that of infinitely "
        "many, on two classes of images, after section 5.2 and Table 2 of Arora et al. 2019.",
        [Section("Accuracy", [Table(["network", *map(str, settings.widths), "exact"], rows, caption), *pictures])],
        comparisons,
        claims,
    )


def _size(settings: Settings) -> str:
    return f"{images_size(settings.train, settings.test)}, {settings.draws} networks"


def _by_half(lost: NDArray[np.float64], margin: float) -> bool | None:
    """Tell whether what random features lose is at least half the paper's margin, and above zero by two standard errors."""
    positive = is_positive(lost.tolist())
    return None if positive is None else positive and bool(lost.mean() >= margin / 2)


def estimate(run: Run[Settings]) -> Estimate:
    """Count entries and factorisations of the exact kernels and of every random network's."""
    settings = run.settings
    n, m = settings.train, settings.test
    channels, side = image_shape(run.data)
    solutions = len(settings.networks) * (1 + len(settings.widths) * settings.draws)
    each = 0.0
    for name in settings.networks:
        for width in (_EXACT, *settings.widths):
            net = conv_network(settings.depth, width or 1, name == "CNTK-GAP", channels, side)
            kernel = infinite_width(net).ntk if width == _EXACT else empirical(parametrize_ntk(net)).ntk
            each += (settings.draws if width else 1) * entry_seconds(kernel, (channels, side, side))
    seconds = each * (n * (n + 1) / 2 + n * m) + solutions * n**3 / 3 / cholesky_rate()
    basis = f"Measured here: entries of every kernel in blocks of up to 64 images, and {CUBIC}."
    return Estimate(
        seconds, 8.0 * (3 * n**2 + n * m), basis, "fewer training images (--train) or networks (--draws, --widths)"
    )


EXPERIMENT = experiment_of(
    globals(),
    name="random_features_cifar",
    title="Accuracy of kernels of finite random networks and of the exact kernel, on two classes.",
    reproduces="Arora et al. 2019, Table 2",
    embedded="digits",
    files=FILES,
    selects=("networks",),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
