"""Label-aware kernels against the kernel of their convolutional network, on pairs of classes and on all ten.

Tables 1 and 2 of Chen, He and Su 2020, compared with the paper's figures. Run it with
``python -m ntkit_studies label_aware_cifar --data cifar.npz`` (arrays ``x_train`` and ``x_test`` of shape (n, 32, 32, 3),
uint8, and ``y_train``, ``y_test``), with ``--table 2`` for all classes; without data it uses scikit-learn's 8x8 digits.

The paper has 10,000 training and 2,000 test images per pair, once: all that CIFAR-10 has of two classes. So has ``--full``
(``--split given``, with the network and the pixels of the authors' code); a cell's errors are then paired over the test images.
Otherwise the images of a task are put together, and each draw splits them differently into training and test images, equally
many of each class. Errors are standard errors over draws of the difference to the base kernel on the same images. Draws of a task
share images, so the errors do not include all of the variation that another set of images would cause.

Strengths are chosen on training images left out of the fit: by five folds in Table 1, which then takes about 25 minutes of one
core (``--validation 0.2``: about 15), on a fifth of the images in Table 2.
"best by validation" chooses the method so too. The paper reports the better of the four methods, and the best strength, without
saying on which images. That choice on the test images is "best of the four on test" (strengths by validation) and "best of all
on test" (strengths too): not what to expect of new images, since the larger of several noisy numbers is too large.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Literal

import numpy as np
import torch
from torch import nn

from ntkit import infinite_width
from ntkit.errors import InputError
from ntkit.labels import STRENGTHS

from ._images import FILES, load_images, pair_name
from ._label_aware_report import claims, comparisons, differences_table, strengths_table, table
from ._label_aware_scores import BASE, METHODS, Draw, Pool, Scored, Scores, score, scores_from
from ._networks import blank, dense_network
from ._rates import entry_seconds, image_shape
from ._stored_gram import stored_gram
from .plots import Section
from .skeleton import Estimate, Report, Results, Run, Size, experiment_of, fitted_seconds

__all__ = ["EXPERIMENT", "QUICK", "Settings", "Split", "Task", "main", "network", "run", "scores_of", "tasks_of"]

_PAIRS = ((4, 5), (3, 4), (3, 6), (4, 6), (2, 6))
_DIGITS = ((3, 8), (4, 9), (1, 7), (5, 6), (2, 7))
_STRIDES = {"text": (1, 1, 1, 2, 1, 1, 2), "code": (1, 1, 1, 2, 1, 2, 1)}


@dataclass(frozen=True)
class Task:
    """A column of a table.

    Attributes
    ----------
    name
        Of the column.
    classes
        Those in it; None is all.
    train, test
        Images, equally many of each class.
    draws
        How many splits.
    """

    name: str
    classes: tuple[int, ...] | None
    train: int
    test: int
    draws: int


@dataclass(frozen=True)
class Settings:
    """What is run.

    Attributes
    ----------
    table
        Of the paper: 1 has pairs of classes, 2 has all classes.
    train
        Training images, equally many of each class; one number in Table 1, and a column for each in Table 2.
    test
        Test images; None is 400 for pairs of a file, 2000 for all its classes, and fewer for the digits.
    draws
        Splits; one number, or one for each of ``train``.
    pairs
        Of classes, in Table 1; None is the paper's for a file and five pairs of digits otherwise.
    strengths
        Candidates for the size of the label-aware part relative to the kernel.
    network
        ``"text"``, the paper's section D.2, with standardised pixels; ``"code"``, what the authors' code has: strides at the
        fourth and the sixth convolution, no ReLU after the last, pixels in [-1, 1], and zeros on one side where it strides.
    split
        ``"drawn"``: each draw splits all images anew. ``"given"``: test images are the file's own.
    methods
        The label-aware kernels.
    validation
        Folds, or the share of the training images in a single validation set; None is five folds in Table 1, and a fifth
        of the images in Table 2, where the cost of five folds grows too large.
    """

    table: Literal[1, 2] = 1
    train: tuple[int, ...] | None = None
    test: int | None = None
    draws: tuple[int, ...] = field(default=(5,), metadata={"also": ("--seeds",)})
    pairs: tuple[tuple[int, int], ...] | None = None
    strengths: tuple[float, ...] = STRENGTHS
    network: Literal["text", "code"] = "text"
    split: Literal["drawn", "given"] = "drawn"
    methods: tuple[str, ...] = METHODS
    validation: float | None = None

    def __post_init__(self) -> None:
        if self.table == 1 and self.train is not None and len(self.train) != 1:
            raise InputError(f"Table 1 has one training size. Got {list(self.train)}.")
        columns = 2 if self.train is None and self.table == 2 else len(self.train or (0,))
        if not self.draws or min(self.draws) < 1 or len(self.draws) not in (1, columns):
            raise InputError(
                f"draws must be positive, one number or one for each of {columns} sizes. Got {list(self.draws)}."
            )
        if not self.methods or not set(self.methods) <= set(METHODS):
            raise InputError(f"methods must be some of {', '.join(METHODS)}. Got {list(self.methods)}.")
        if min(self.strengths, default=0) <= 0:
            raise InputError(f"strengths must be positive, at least one. Got {list(self.strengths)}.")
        if self.validation is not None and self.validation >= 1 and self.validation != int(self.validation):
            raise InputError(f"validation must be a number of folds, or a share below 1. Got {self.validation}.")

    @property
    def left_out(self) -> int | float:
        """Folds, or the share of a single validation set."""
        chosen = (5 if self.table == 1 else 0.2) if self.validation is None else self.validation
        return int(chosen) if chosen >= 1 else chosen


QUICK = Settings(train=(20,), test=20, draws=(2,), pairs=_DIGITS[:2], strengths=(0.01, 1.0), validation=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    quick = Settings(train=(20,), test=20, draws=(2,), pairs=_PAIRS[:2], strengths=(0.01, 1.0), validation=2)
    full = Settings(train=(10000,), test=2000, draws=(1,), network="code", split="given", validation=0.2)
    return {"quick": quick if from_file else QUICK, "default": Settings(), "full": full}[size]


def tasks_of(settings: Settings, from_file: bool) -> list[Task]:
    """Return the columns of the table."""
    usual = {(1, True): ((2000,), 400), (2, True): ((2000, 5000), 2000), (1, False): ((200,), 100)}
    train, test = usual.get((settings.table, from_file), ((200, 500), 500))
    train = train if settings.train is None else settings.train
    test = test if settings.test is None else settings.test
    draws = settings.draws * len(train) if len(settings.draws) == 1 else settings.draws
    if settings.table == 2:
        return [Task(f"{size}", None, size, test, count) for size, count in zip(train, draws, strict=True)]
    pairs = settings.pairs or (_PAIRS if from_file else _DIGITS)
    return [Task(pair_name(pair, from_file), pair, train[0], test, draws[0]) for pair in pairs]


@dataclass(frozen=True)
class Split:
    """A cell: one method on one split of a task's images.

    Attributes
    ----------
    task, classes, train, test
        Of the task.
    pool
        Images that every draw of these classes splits.
    draw
        The number of the split.
    method
        A label-aware kernel, or the base kernel.
    """

    task: str
    classes: tuple[int, ...] | None
    train: int
    test: int
    pool: int
    draw: int
    method: str


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    pool: Callable[[tuple[int, ...] | None, int, int], Pool]
    split: Callable[[tuple[int, ...] | None, int, int, int, int], Draw]


def cells(run: Run[Settings]) -> list[Split]:
    """Return one cell per task, draw and method; tasks of the same classes draw from as many images as the largest needs."""
    tasks = tasks_of(run.settings, run.data is not None)
    found = []
    for task in tasks:
        largest = max(one.train for one in tasks if one.classes == task.classes)
        place = task.name, task.classes, task.train, task.test, largest
        methods = BASE, *run.settings.methods
        found += [Split(*place, draw, method) for draw in range(task.draws) for method in methods]
    return found


def prepare(run: Run[Settings]) -> _Shared:
    """Keep the images and kernel of the present task, and its present split, for the cells that share them."""

    @lru_cache(maxsize=1)
    def pool(classes: tuple[int, ...] | None, largest: int, test: int) -> Pool:
        return _pool(run, classes, largest, test)

    @lru_cache(maxsize=1)
    def split(classes: tuple[int, ...] | None, largest: int, train: int, test: int, draw: int) -> Draw:
        return Draw.of(pool(classes, largest, test), train, test, run.seed + draw)

    return _Shared(run, pool, split)


def network(channels: int, side: int, design: Literal["text", "code"] = "text") -> nn.Module:
    """Return the paper's network without biases; a width of one serves, since the limit does not depend on it.

    Parameters
    ----------
    channels, side
        Of the images.
    design
        ``"text"``: section D.2. ``"code"``: the authors' (see :class:`Settings`), written for JAX: where it strides over an even
        number of pixels, a single row and column of zeros follows the last.
    """

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        left = side
        for number, stride in enumerate(_STRIDES[design]):
            one_side = design == "code" and stride == 2 and left % 2 == 0
            layers += [nn.ZeroPad2d((0, 1, 0, 1))] if one_side else []
            padding = 0 if one_side else 1
            layers += [nn.Conv2d(1 if number else channels, 1, 3, stride, padding=padding, bias=False), nn.ReLU()]
            left = (left - 1) // stride + 1
        layers = layers[:-1] if design == "code" else layers
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(left * left, 1, bias=False))

    return blank(make)


def _pool(run: Run[Settings], classes: tuple[int, ...] | None, largest: int, test: int) -> Pool:
    settings = run.settings
    pixels: Literal["standardised", "signed"] = "signed" if settings.network == "code" else "standardised"
    images = load_images(largest, test, run.seed, run.data, classes, pixels)
    x = torch.cat([images.x, images.x_test])
    y = torch.from_numpy(np.concatenate([images.y, images.y_test]))
    kernel = infinite_width(network(x.shape[1], x.shape[2], settings.network)).ntk
    which = "all classes" if classes is None else pair_name(classes, run.data is not None)

    def progress(done: int, total: int) -> None:
        run.progress(f"kernel of {which}", done, total)

    gram = stored_gram(kernel, x, None, run.folder / "kernels", progress=progress)
    return Pool(x, y, kernel, gram, largest if settings.split == "given" else None)


def compute(shared: _Shared, cell: Split) -> Scored:
    """Score one method on one split."""
    run = shared.run
    pool = shared.pool(cell.classes, cell.pool, cell.test)
    draw = shared.split(cell.classes, cell.pool, cell.train, cell.test, cell.draw)
    settings = run.settings
    return score(pool, draw, cell.method, settings.strengths, settings.left_out, run.seed + cell.draw)


def scores_of(results: Results[Settings, Split, Scored]) -> dict[str, Scores]:
    """Put the results of each task together."""
    found: dict[str, dict[tuple[str, int], Scored]] = {}
    for cell, one in results.values.items():
        found.setdefault(cell.task, {})[cell.method, cell.draw] = one
    strengths = results.settings.strengths
    return {task: scores_from(own, strengths, 1 + max(draw for _, draw in own)) for task, own in found.items()}


def report(results: Results[Settings, Split, Scored]) -> Report:
    """Show accuracies, differences to the base kernel, and what each strength would have gained."""
    scores = scores_of(results)
    images = {cell.task: (cell.train, cell.test) for cell in results.values}
    return Report(
        "Label-aware kernels on images",
        "Kernel regression with the label-aware kernels of Chen, He and Su 2020 (Tables 1 and 2), beside the kernel of their "
        "convolutional network. Methods and strengths are chosen on training images left out of the fit, unless a row says "
        "that it chooses on test images, as the paper may have.",
        [
            Section("Accuracy", [table(scores), differences_table(scores)]),
            Section("Strengths", [strengths_table(scores)]),
        ],
        comparisons(scores, images) if results.from_file else [],
        claims(scores, images) if results.from_file else [],
    )


_TRIAL = 150  # images of the smaller of two trials: a second for all methods
_MATRICES = 14  # of the training images, held by one method at a time


def estimate(run: Run[Settings]) -> Estimate:
    """Time every method on few random points, whose algebra grows as n^3, and entries of the network's kernel."""
    settings, tasks = run.settings, tasks_of(run.settings, run.data is not None)
    channels, side = image_shape(run.data)
    entry = entry_seconds(infinite_width(network(channels, side, settings.network)).ntk, (channels, side, side))
    pools = {task.classes: max(one.train for one in tasks if one.classes == task.classes) + task.test for task in tasks}
    seconds = sum(n * (n + 1) / 2 for n in pools.values()) * entry

    def trial(n: int) -> None:
        count = 2 if settings.table == 1 else 10
        x, y = torch.randn(2 * n, 8, generator=torch.Generator().manual_seed(0)), torch.arange(2 * n) % count
        kernel = infinite_width(dense_network(8, 1)).ntk
        pool = Pool(x, y, kernel, kernel(x).numpy())
        draw = Draw.of(pool, n, n - n % count, 0)
        for method in (BASE, *settings.methods):
            score(pool, draw, method, settings.strengths, settings.left_out, 0)

    of_draw = fitted_seconds(trial, _TRIAL, 3)
    seconds += sum(task.draws * of_draw(task.train) for task in tasks)
    largest = max(task.train for task in tasks)
    basis = (
        f"Measured here: entries of the kernel, and all methods on {_TRIAL} and {2 * _TRIAL} points, which grow as n^3."
    )
    return Estimate(seconds, 8.0 * _MATRICES * largest**2, basis, "fewer training images (--train) or splits (--draws)")


EXPERIMENT = experiment_of(
    globals(),
    name="label_aware_cifar",
    title="Accuracy of label-aware kernels and of the kernel of their network, on pairs of classes and on all.",
    reproduces="Chen, He, Su 2020, Tables 1 and 2",
    embedded="digits",
    files=FILES,
    selects=("train", "test", "draws", "pairs", "methods"),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
