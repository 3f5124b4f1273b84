"""Label-aware kernels against the kernel of their convolutional network, on pairs of classes and on all ten.

Tables 1 and 2 of Chen, He and Su 2020, with the paper's figures beside them. Run it with
``python -m ntkit.experiments.label_aware_cifar --data cifar.npz`` (arrays ``x_train`` and ``x_test`` of shape (n, 32, 32, 3),
uint8, and ``y_train``, ``y_test``), with ``--table 2`` for all classes; without data it uses scikit-learn's 8x8 digits. Kernels
and numbers are kept on disk as they are computed, so a run that was stopped goes on where it was.

The paper has 10,000 training and 2,000 test images a pair, once. Here the images of a task are put together, and each draw
splits them anew into training and test images, equally many of each class. Errors are standard errors over draws of the
difference to the base kernel on the same images. Draws of a task share images, so the errors leave out a part of what another
set of images would change.

Strengths are chosen on training images left out of the fit: by five folds in Table 1, which then takes about 25 minutes of one
core (``--validation 0.2``: about 15), on a fifth of the images in Table 2.
"best by validation" chooses the method so too. The paper reports the better of the four methods, and the best strength, without
saying on which images. That choice on the test images is "best of the four on test" (strengths by validation) and "best of all
on test" (strengths too): not what to expect of new images, since the larger of several noisy numbers is too large.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch
from torch import nn

from ntkit.errors import InputError
from ntkit.kernels import infinite_width
from ntkit.labels import STRENGTHS

from ._command_line import Progress, options_of, print_table, progress_bars, read_options
from ._finite_cells import Cell, fill
from ._images import load_images
from ._label_aware_report import differences_table, strengths_table, table
from ._label_aware_scores import Pool, Scores, cells_of, compute_on, scores_from
from ._stored_gram import stored_gram

__all__ = ["QUICK", "Settings", "Task", "main", "network", "run", "settings_of"]

_CLASSES = ("airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_PAIRS = ((4, 5), (3, 4), (3, 6), (4, 6), (2, 6))
_DIGITS = ((3, 8), (4, 9), (1, 7), (5, 6), (2, 7))
_STRIDES = (1, 1, 1, 2, 1, 1, 2)


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
    tasks
        The columns. Those of the same classes draw from the same images, as many as the largest needs.
    strengths
        Candidates for the size of the label-aware part relative to the kernel.
    validation
        Folds, or the share of the training images in a single validation set.
    """

    tasks: tuple[Task, ...]
    strengths: tuple[float, ...] = STRENGTHS
    validation: int | float = 5


QUICK = Settings(tuple(Task(f"{a} vs {b}", (a, b), 20, 20, 2) for a, b in _DIGITS[:2]), (0.01, 1.0), 2)


def settings_of(
    which: int = 1,
    images: bool = False,
    sizes: Sequence[int] | None = None,
    test: int | None = None,
    draws: Sequence[int] | None = None,
    validation: int | float | None = None,
) -> Settings:
    """Give what is run for Table 1 or 2.

    Parameters
    ----------
    which
        The number of the table.
    images
        Whether for a file of images; else for the digits.
    sizes
        Training images; one number in Table 1.
    test
        Test images.
    draws
        Splits; one number, or one for each size.
    validation
        None is five folds in Table 1, and a fifth of the images in Table 2, where the cost of five folds grows too large.
    """
    defaults = {(1, True): ((2000,), 400), (2, True): ((2000, 5000), 2000), (1, False): ((200,), 100)}
    usual, usual_test = defaults.get((which, images), ((200, 500), 500))
    sizes, draws = tuple(sizes or usual), tuple(draws or (5,))
    test = usual_test if test is None else test
    if validation is None:
        validation = 5 if which == 1 else 0.2
    if which == 1 and len(sizes) != 1:
        raise InputError(f"Table 1 has one training size. Got {list(sizes)}.")
    if min(draws) < 1 or len(draws) not in (1, len(sizes)):
        raise InputError(
            f"draws must be positive, one number or one for each of {len(sizes)} sizes. Got {list(draws)}."
        )
    if which == 1:
        pairs = [(f"{_CLASSES[a]} vs {_CLASSES[b]}", (a, b)) for a, b in _PAIRS]
        pairs = pairs if images else [(f"{a} vs {b}", (a, b)) for a, b in _DIGITS]
        tasks = tuple(Task(name, pair, sizes[0], test, draws[0]) for name, pair in pairs)
    else:
        each = draws * len(sizes) if len(draws) == 1 else draws
        tasks = tuple(Task(f"{size}", None, size, test, count) for size, count in zip(sizes, each, strict=True))
    return Settings(tasks, validation=validation)


def network(channels: int, side: int) -> nn.Module:
    """Give the paper's network (section D.2) without biases; a width of one serves, since the limit does not depend on it."""
    layers: list[nn.Module] = []
    for number, stride in enumerate(_STRIDES):
        layers += [nn.Conv2d(1 if number else channels, 1, 3, stride, padding=1, bias=False), nn.ReLU()]
        side = (side - 1) // stride + 1
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(side * side, 1, bias=False))


def run(
    settings: Settings | None = None,
    seed: int = 0,
    data: Path | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> dict[str, Scores]:
    """Run the experiment.

    Parameters
    ----------
    settings
        What; None is Table 1 with the digits, which takes about half a minute.
    seed
        Decides the images, the splits and the validation points.
    data
        An ``.npz`` file of images; None takes the digits.
    folder
        Where kernels (4 bytes an entry) and numbers are kept; None keeps nothing.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> run(QUICK)["3 vs 8"].by_validation("kr-v1").shape
    (2,)
    """
    settings = settings or settings_of()
    if min(settings.strengths, default=0) <= 0:
        raise InputError(f"strengths must be positive, at least one. Got {list(settings.strengths)}.")
    if folder is None:
        with TemporaryDirectory() as temporary:
            return run(settings, seed, data, Path(temporary), progress)
    folder.mkdir(parents=True, exist_ok=True)
    return {task.name: _scores(settings, task, seed, data, folder, progress) for task in settings.tasks}


def _scores(
    settings: Settings, task: Task, seed: int, data: Path | None, folder: Path, progress: Progress | None
) -> Scores:
    largest = max(one.train for one in settings.tasks if one.classes == task.classes)
    pool = _pool(task, largest, seed, data, folder, progress)
    compute = compute_on(pool, task.train, task.test, settings.strengths, settings.validation, seed)
    cells = cells_of(task.train, settings.strengths, task.draws)

    # Draws are no part of what a number depends on: a later run may ask for more of them.
    notes: dict[str, object] = {
        "experiment": "label_aware_cifar",
        "data": data.name if data else "digits",
        "images": largest + task.test,
    }
    notes |= {key: value for key, value in asdict(task).items() if key != "draws"}
    notes |= {"strengths": settings.strengths, "validation": settings.validation, "seed": seed}

    def value(cell: Cell) -> float:
        found = compute(cell)
        if progress is not None:
            progress(task.name, cells.index(cell) + 1, len(cells))
        return found

    found = fill(cells, value, notes, folder / f"{task.name.replace(' ', '-')}.json")
    if progress is not None:
        progress(task.name, len(cells), len(cells))
    return scores_from(found, task.train, settings.strengths, task.draws)


def _pool(task: Task, largest: int, seed: int, data: Path | None, folder: Path, progress: Progress | None) -> Pool:
    images = load_images(largest, task.test, seed, data, task.classes)
    x = torch.cat([images.x, images.x_test])
    y = torch.from_numpy(np.concatenate([images.y, images.y_test]))
    kernel = infinite_width(network(x.shape[1], x.shape[2])).ntk
    which = "all" if task.classes is None else "-".join(map(str, task.classes))

    def report(done: int, total: int) -> None:
        if progress is not None:
            progress(f"kernel of {which}", done, total)

    gram, _ = stored_gram(kernel, x, None, folder / f"kernel-{which}.npy", "label-aware-cnn", progress=report)
    return Pool(x, y, kernel, gram)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = options_of(
        "label_aware_cifar",
        __doc__,
        "ntkit-label-aware",
        "a folder for kernels and results (%(default)s); one of the same settings is gone on from",
    )
    options.add_argument("--table", type=int, choices=(1, 2), default=1, help="of the paper: pairs, or all classes (1)")
    options.add_argument("--data", type=Path, help="images as an .npz file (scikit-learn's digits)")
    options.add_argument("--train", type=int, nargs="+", help="training images (2000; 2000 5000 in Table 2)")
    options.add_argument("--test", type=int, help="test images (400; 2000 in Table 2)")
    options.add_argument("--seeds", type=int, nargs="+", help="draws, one number or one for each of --train (5)")
    options.add_argument("--validation", type=float, help="folds, or a share below 1 (5; 0.2 in Table 2)")
    chosen = read_options(options, arguments)
    try:
        settings = _settings(chosen)
        with progress_bars() as progress:
            results = run(settings, chosen.seed, chosen.data, chosen.output, progress)
    except (InputError, OSError) as error:
        options.error(str(error))
    images = chosen.data is not None
    for shown in (table(results, images), differences_table(results, images), strengths_table(results)):
        print_table(shown)
    print(f"Kernels and numbers: {chosen.output.resolve()}")
    return 0


def _settings(chosen: argparse.Namespace) -> Settings:
    validation = chosen.validation
    if validation is not None and validation >= 1:
        if validation != int(validation):
            raise InputError(f"--validation must be a number of folds, or a share below 1. Got {validation}.")
        validation = int(validation)
    given: list[Any] = [chosen.train, chosen.test, chosen.seeds, validation]
    if chosen.quick:
        given = [quick if value is None else value for value, quick in zip(given, ([20], 20, [2], 2), strict=True)]
    settings = settings_of(chosen.table, chosen.data is not None, *given)
    return replace(settings, tasks=settings.tasks[:2], strengths=QUICK.strengths) if chosen.quick else settings


if __name__ == "__main__":
    sys.exit(main())
