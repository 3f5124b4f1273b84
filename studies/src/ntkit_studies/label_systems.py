"""Local elasticity under two label systems of the same images, while a network trains on one of them.

Figure 1(b) and 1(c) of Chen, He and Su 2020, with their appendix D.1: 200 images with two objects each, labelled by the one or
by the other. The paper has photographs of MS COCO (cat or dog, with bench or chair). Here an image is two pictures side by side,
50 for each of the four combinations: two digits without data, and cat or dog beside car or truck of CIFAR-10 with ``--data
cifar.npz``. The relative ratio RR (their equation 9) of the tangent kernel is measured by the labels that the network is trained
on, and by the others.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._by_seed import Seed, by_seed, mean_and_spread
from ._images import FILES, load_images, pair_name
from ._networks import drawn_network
from .methods import elasticity_course
from .plots import plot_elasticity
from .skeleton import Claim, Run, Size, check_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "QUICK", "Course", "Settings", "measure", "paired_images"]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    classes
        The two classes of the left picture, and the two of the right one.
    group, test_group
        Training and test images of each of the four combinations; the paper has 50 and no test.
    pool
        Average the pixels of squares of this side first.
    width
        Hidden units.
    rate
        Of Adam on the squared error of all training images at once.
    record
        Steps at which RR is measured, besides the start; the last is the end.
    seeds
        How many draws of images and weights.
    """

    classes: tuple[int, int, int, int] = (3, 8, 4, 9)
    group: int = 50
    test_group: int = 20
    pool: int = 1
    width: int = 1706
    rate: float = 3e-3
    record: tuple[int, ...] = (1, 3, 10, 30, 100, 300)
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "group", "test_group", "pool", "width", "record", "seeds")
        if len(set(self.classes)) < 4:
            raise InputError(f"classes must be four different ones. Got {self.classes}.")


QUICK = Settings(group=3, test_group=2, width=16, record=(2, 4), seeds=2)
_CIFAR = (3, 5, 1, 9)


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size."""
    if size == "quick":
        return replace(QUICK, classes=_CIFAR) if from_file else QUICK
    if not from_file:
        return Settings()
    if size == "full":
        return Settings(_CIFAR, width=40960, rate=3e-4, record=(1, 3, 10, 30, 100, 300, 500))
    return Settings(_CIFAR, pool=4, width=5120)


@dataclass(frozen=True)
class Course:
    """RR with one draw of images and weights.

    Attributes
    ----------
    train, test
        Of train-train and test-train pairs, shape (2, 2, records): trained on, measured by, step.
    from_file
        Whether the images came from a file.
    """

    train: list[list[list[float]]]
    test: list[list[list[float]]]
    from_file: bool


def paired_images(x: Tensor, y: NDArray[np.int64], classes: tuple[int, int, int, int]) -> tuple[Tensor, Tensor]:
    """Put two pictures side by side in every combination of classes, each picture used once.

    Parameters
    ----------
    x
        Pictures, shape (8 g, channels, side, side), 2 g of each class.
    y
        Their classes, shape (8 g,).
    classes
        The two of the left picture, and the two of the right one.

    Returns
    -------
    x
        Shape (4 g, channels, side, 2 side).
    labels
        0 or 1 in both label systems, shape (4 g, 2).
    """
    members = [torch.from_numpy(np.flatnonzero(y == one)) for one in classes]
    g = len(members[0]) // 2
    images, labels = [], []
    for a in (0, 1):
        for b in (0, 1):
            left, right = members[a][b * g : (b + 1) * g], members[2 + b][a * g : (a + 1) * g]
            images.append(torch.cat([x[left], x[right]], -1))
            labels += [(a, b)] * g
    return torch.cat(images), torch.tensor(labels)


def _draw_images(
    settings: Settings, seed: int, data: Path | None
) -> tuple[tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    found = load_images(8 * settings.group, 8 * settings.test_group, seed, data, settings.classes)
    x, x_test = (nn.functional.avg_pool2d(one, settings.pool) for one in (found.x, found.x_test))
    return paired_images(x, found.y, settings.classes), paired_images(x_test, found.y_test, settings.classes)


def measure(run: Run[Settings], cell: Seed) -> Course:
    """Train one network on each label system, from the same start."""
    settings = run.settings
    (x, labels), (x_test, labels_test) = _draw_images(settings, cell.seed, run.data)
    course = elasticity_course(
        drawn_network(x[0].numel(), settings.width, 1000 + cell.seed),
        x,
        {"left": labels[:, 0], "right": labels[:, 1]},
        x_test=x_test,
        labels_test={"left": labels_test[:, 0], "right": labels_test[:, 1]},
        method="adam",
        lr=settings.rate,
        steps=max(settings.record),
        record=settings.record,
    )
    assert course.test is not None
    return Course(course.train.tolist(), course.test.tolist(), run.data is not None)


def _names(settings: Settings, records: list[Course]) -> list[str]:
    return [pair_name(settings.classes[k : k + 2], records[0].from_file) for k in (0, 2)]


def claims(settings: Settings, records: list[Course]) -> list[Claim]:
    """Ask whether RR rises with training, and more for the labels that are learned."""
    found = []
    names = _names(settings, records)
    for kind in ("train", "test"):
        ratios = 100 * np.array([getattr(record, kind) for record in records])  # (seeds, 2, 2, records)
        rises = ratios[..., -1] - ratios[..., 0]
        for own, name in enumerate(names):
            values = ratios[:, own, own]
            text = f"{mean_and_spread(values[:, 0].tolist())} to {mean_and_spread(values[:, -1].tolist())}"
            what = f"{name}, {kind}-train pairs: RR in %"
            found.append(Claim(what, "increases", text, bool((rises[:, own, own] > 0).all())))
            other = rises[:, own, 1 - own]
            text = f"{mean_and_spread(rises[:, own, own].tolist())} and {mean_and_spread(other.tolist())}"
            what = f"{name}, {kind}-train pairs: rise of RR by these labels and by the others, in points"
            found.append(Claim(what, "labels play a role", text, bool((rises[:, own, own] > other).all())))
    return found


def draw(settings: Settings, records: list[Course]) -> dict[str, Figure]:
    """Draw RR against the steps: trained on the left picture's labels, and on the right one's."""
    names, steps = _names(settings, records), [0, *sorted(set(settings.record))]
    ratios = np.array([record.train for record in records])
    figure = new_figure(10, 3.8)
    for own, ax in enumerate(figure.subplots(1, 2, sharey=True)):
        curves = {f"by {names[k]}": ratios[:, own, k] for k in (own, 1 - own)}
        plot_elasticity(ax, steps, {name: rows.mean(0) for name, rows in curves.items()}, xlabel="step")
        for line, rows in zip(ax.lines, curves.values(), strict=False):
            ax.fill_between(steps, 100 * rows.min(0), 100 * rows.max(0), color=line.get_color(), alpha=0.2, linewidth=0)
        ax.set_title(f"({'bc'[own]}) trained on {names[own]}", fontsize="medium")
    return {"figure1(b), (c)": figure}


EXPERIMENT = by_seed(
    globals(),
    "label_systems",
    "Local elasticity of a network in training, by the labels it learns and by other labels of the same images.",
    "Chen, He, Su 2020, Fig. 1 (b), (c)",
    embedded="digits",
    files=FILES,
    grows=("group", "width", "record"),
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
