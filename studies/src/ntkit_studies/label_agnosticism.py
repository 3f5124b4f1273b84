"""The curse of label-agnosticism: a kernel that works on some labels fails on others that are as natural to it.

Claim 1.1 of Chen, He and Su 2020, by the construction of their appendix A.1 (eq. 10, Fig. 2): with w1 the direction that kernel
regression fits to the labels and w2 one orthogonal to it in the kernel's features, a point's new label says whether its two
coordinates differ in sign. Kernel regression with a linear kernel and with the tangent kernel of a two-layer network is scored on
the old labels and on the new ones, beside label-aware kernels: LANTK, which adds an estimate of "same class?", and the tangent
kernel of a network after training on the labels. Once on Gaussian points, labelled by the sign of a coordinate, where the other
directions of a linear kernel tell nothing, as in the appendix; once on images: two of scikit-learn's 8x8 digits, or planes and
ships with ``--data cifar.npz``.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import Kernel, LabelAware, Schedule, empirical, infinite_width, train
from ntkit.labels import STRENGTHS
from ntkit.plots import new_figure

from ._by_seed import Seed, by_seed, is_positive, mean_and_spread
from ._images import FILES, load_images
from ._networks import blank, dense_network, drawn_network
from .methods import Curse, LabelAwareModel, curse_of_label_agnosticism
from .plots import plot_accuracies, plot_relabelling
from .skeleton import Claim, Run, Size, check_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["AGNOSTIC", "EXPERIMENT", "QUICK", "SOURCES", "Scores", "Settings", "TrainedKernel", "measure"]

AGNOSTIC = ("linear", "NTK")
SOURCES = ("Gaussian points", "images")


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    inputs
        Dimensions of the Gaussian points.
    classes
        The two classes of images whose labels are the old ones.
    train, test
        Points and images, even numbers: both classes of images have equally many.
    pool
        Average the pixels of squares of this side first.
    ridge
        Of all kernel regressions, relative to trace(K)/n.
    width, steps, rate
        Of the network trained, by Adam on the squared error of all training images at once.
    seeds
        How many draws of images and weights.
    """

    inputs: int = 10
    classes: tuple[int, int] = (3, 8)
    train: int = 200
    test: int = 140
    pool: int = 1
    ridge: float = 1e-3
    width: int = 853
    steps: int = 300
    rate: float = 3e-3
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 10, "train")
        check_at_least(self, 4, "inputs")
        check_at_least(self, 2, "test")
        check_at_least(self, 1, "pool", "width", "steps", "seeds")


QUICK = Settings(train=20, test=20, width=16, steps=5, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size; planes and ships of a file."""
    if size == "quick":
        return QUICK
    return Settings(classes=(0, 8), train=800, test=800, pool=4, width=2560) if from_file else Settings()


@dataclass(frozen=True)
class Scores:
    """One draw of images and weights.

    Attributes
    ----------
    accuracy
        By base kernel and data (``"linear, images"``), then by kernel: test accuracy on the old labels and on the new ones.
    chance
        By base kernel and data: the share of the larger class among the test points, likewise.
    coordinates, old, new
        Of the Gaussian test points in the plane of w1 and w2 of the linear kernel, with their labels; empty but for the first
        seed.
    """

    accuracy: dict[str, dict[str, tuple[float, float]]]
    chance: dict[str, tuple[float, float]]
    coordinates: list[list[float]]
    old: list[float]
    new: list[float]


@dataclass(frozen=True)
class TrainedKernel:
    """The tangent kernel of a network after training on the labels that it is fitted to."""

    settings: Settings
    seed: int

    def fit(self, x: Tensor, y: Tensor) -> Kernel:
        """Train a network on labels -1 and +1, shape (n,), and give its kernel."""
        net = drawn_network(x[0].numel(), self.settings.width, self.seed).to(x.dtype)
        train(net, x, y[:, None], Schedule("adam", learning_rate=self.settings.rate, steps=self.settings.steps))
        return empirical(net).ntk


Split = tuple[Tensor, Tensor, Tensor, Tensor]
"""x, y, x_test, y_test; labels are -1 and +1."""


def _images(run: Run[Settings], seed: int) -> Split:
    settings = run.settings
    images = load_images(settings.train, settings.test, seed, run.data, settings.classes)
    x, x_test = (nn.functional.avg_pool2d(one, settings.pool).flatten(1).double() for one in (images.x, images.x_test))
    y, y_test = (torch.from_numpy(np.where(one == settings.classes[0], 1.0, -1.0)) for one in (images.y, images.y_test))
    return x, y, x_test, y_test


def _gaussian(settings: Settings, seed: int) -> Split:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(settings.train + settings.test, settings.inputs, generator=generator, dtype=torch.float64)
    y = torch.where(x[:, 0] > 0, 1.0, -1.0).to(x.dtype)
    return x[: settings.train], y[: settings.train], x[settings.train :], y[settings.train :]


def measure(run: Run[Settings], cell: Seed) -> Scores:
    """Relabel the points for each kernel and score it with its label-aware companions."""
    splits = dict(zip(SOURCES, (_gaussian(run.settings, cell.seed), _images(run, cell.seed)), strict=True))
    curses = {
        f"{base}, {source}": _curse(run.settings, base, split, cell.seed)
        for source, split in splits.items()
        for base in AGNOSTIC
    }
    shown = curses[f"linear, {SOURCES[0]}"] if cell.seed == run.seed else None
    return Scores(
        {name: _accuracies(curse) for name, curse in curses.items()},
        {name: _pair(curse.chance) for name, curse in curses.items()},
        [] if shown is None else shown.relabelling.coordinates(splits[SOURCES[0]][2]).tolist(),
        [] if shown is None else shown.y_test[:, 0].tolist(),
        [] if shown is None else shown.y_test[:, 1].tolist(),
    )


def _curse(settings: Settings, base: str, split: Split, seed: int) -> Curse:
    inputs = split[0].shape[1]
    if base == "linear":
        net = blank(lambda: nn.Linear(inputs, 1, bias=False), torch.float64)
    else:
        net = dense_network(inputs, 8, dtype=torch.float64)
    kernel = infinite_width(net).ntk
    generator = torch.Generator().manual_seed(seed)
    aware = {
        f"LANTK-{pairs.upper()}": LabelAware(kernel, pairs, STRENGTHS, ridge=settings.ridge, generator=generator)
        for pairs in ("kr-v1", "fjlt-v1")
    }
    models: dict[str, LabelAwareModel] = {**aware, "trained network": TrainedKernel(settings, 1000 + seed)}
    return curse_of_label_agnosticism(kernel, *split, aware=models, ridge=settings.ridge)


def _accuracies(curse: Curse) -> dict[str, tuple[float, float]]:
    return {name: _pair(row) for name, row in zip(curse.names, curse.accuracy, strict=True)}


def _pair(values: Tensor) -> tuple[float, float]:
    old, new = values.tolist()
    return old, new


def claims(settings: Settings, records: list[Scores]) -> list[Claim]:
    """Ask whether a kernel loses three quarters of what it has above chance, and whether label-aware ones gain on it."""
    found = []
    for base in records[0].accuracy:
        rows = {
            name: 100 * np.array([one.accuracy[base][name] for one in records]) for name in records[0].accuracy[base]
        }
        chance = 100 * np.array([one.chance[base] for one in records])
        own = rows["label-agnostic"]
        old, new = (own - chance).mean(0)
        text = f"{_text(own)}; chance {_text(chance)}"
        what = f"{base}: accuracy on the old and on the new labels, in %"
        found.append(Claim(what, "works, then arbitrarily bad", text, bool(new <= 0.25 * old)))
        for name, scores in rows.items():
            if name != "label-agnostic":
                gain = (scores - own)[:, 1]
                mean = round(float(gain.mean()), 1) + 0.0  # no minus zero
                text = f"{_text(scores)}; on the new {mean:+.1f} ± {gain.std():.1f} points"
                what = f"{name} beside {base}: accuracy on the same labels, in %"
                found.append(Claim(what, "adapts to the labels", text, is_positive(gain.tolist())))
    return found


def _text(values: np.ndarray) -> str:
    return " and ".join(mean_and_spread(column.tolist()) for column in values.T)


def draw(settings: Settings, records: list[Scores]) -> dict[str, Figure]:
    """Draw the points with their new labels, and the accuracies."""
    points = new_figure(9, 4.0)
    for ax, (title, labels) in zip(
        points.subplots(1, 2), (("old", records[0].old), ("new", records[0].new)), strict=True
    ):
        plot_relabelling(ax, records[0].coordinates, labels)
        ax.set_title(f"{title} labels", fontsize="medium")
    bases = list(records[0].accuracy)
    bars = new_figure(11, 7.5)
    for ax, base in zip(bars.subplots(2, -(-len(bases) // 2), squeeze=False).ravel(), bases, strict=False):
        names = list(records[0].accuracy[base])
        values = np.mean([[one.accuracy[base][name] for name in names] for one in records], axis=0)
        chance = np.mean([one.chance[base] for one in records], axis=0)
        plot_accuracies(ax, names, values, ("old labels", "new labels"), chance)
        ax.set_ylim(0, 115)
        ax.legend(frameon=False, ncols=2, loc="upper center")
        ax.set_title(f"labels made for: {base}", fontsize="medium")
        ax.tick_params("x", labelrotation=15)
    return {
        "figure2": points,
        "Test accuracy of kernel regression on the old labels and on the new ones, mean over draws; dotted: chance": bars,
    }


EXPERIMENT = by_seed(
    globals(),
    "label_agnosticism",
    "Accuracy of label-agnostic and of label-aware kernels on labels, and on the relabelling that is made to fail them.",
    "Chen, He, Su 2020, Claim 1.1",
    embedded="digits",
    files=FILES,
    grows=("train", "test", "width", "steps"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
