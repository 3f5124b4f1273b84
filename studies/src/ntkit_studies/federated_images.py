"""Rounds of communication that federated learning by tangent kernels needs, compared with averages of weights.

Yue et al. 2021 (Golikov et al. 2022, section 6.1.4) and Yu et al. 2022: images whose classes are spread unevenly over the
workers. Run it with ``python -m ntkit_studies federated_images --data fashion.npz``.
"""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.datasets import balanced_split, load_digits
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._seeded import seeded
from .methods import FederatedAveraging, FederatedNTK, TrainConvexifyTrain, Worker
from .plots import Picture, Section, Table, plot_spread
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "Cell", "Course", "Settings", "main", "run"]

KERNEL, TCT = "NTK", "train-convexify-train"
AVERAGING: dict[str, dict[str, Any]] = {
    "FedAvg, rate 0.1, 1 epoch": {"learning_rate": 0.1, "epochs": 1},
    "FedAvg, rate 0.1, 5 epochs": {"learning_rate": 0.1, "epochs": 5},
    "FedAvg, rate 0.3, 5 epochs": {"learning_rate": 0.3, "epochs": 5},
}
METHODS = (KERNEL, *AVERAGING, TCT)


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    images, test
        Training images over all workers, and test images.
    workers
        Number of workers.
    concentration
        Concentration of the Dirichlet distribution of each class over the workers; small is uneven.
    width
        Of the hidden layer.
    partitions
        Draws of partition, images and weights.
    rounds
        Of averaging.
    kernel_rounds
        Of the tangent kernel.
    """

    images: int = 1000
    test: int = 1000
    workers: int = 10
    concentration: float = 0.1
    width: int = 100
    partitions: int = 5
    rounds: int = 30
    kernel_rounds: int = 10

    def __post_init__(self) -> None:
        check_at_least(self, 1, "workers", "width", "partitions", "rounds", "kernel_rounds")
        check_at_least(self, 10, "images", "test")
        if not self.concentration > 0:
            raise InputError(f"concentration must be positive. Got {self.concentration}.")


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    quick = Settings(100, 100, 4, 0.3, 16, 1, 4, 2)
    default = Settings() if from_file else Settings(images=500, test=500, width=32)
    return {"quick": quick, "default": default, "full": default}[size]


@dataclass(frozen=True)
class Cell:
    """One method on one partition."""

    method: str
    partition: int


@dataclass(frozen=True)
class Course:
    """How a method learnt.

    Attributes
    ----------
    accuracies
        On the test images before the first round and after every one.
    note
        Further remarks.
    """

    accuracies: tuple[float, ...]
    note: str


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    y: Tensor
    x_test: Tensor
    y_test: Tensor


def load_flat(data: Path | None, train: int, test: int, seed: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return flattened images between 0 and 1 and their classes, training then test, equally many of each class."""
    if data is None:
        digits = load_digits()
        first, second = balanced_split(digits.labels, [train, test], seed)
        x, y = digits.images.float().flatten(1), digits.labels
        x = x / x.max()
        return x[first], y[first], x[second], y[second]
    parts: list[Tensor] = []
    try:
        with np.load(data) as arrays:
            for part, size in (("train", train), ("test", test)):
                pixels = torch.from_numpy(np.asarray(arrays[f"x_{part}"]))
                labels = torch.from_numpy(np.asarray(arrays[f"y_{part}"], np.int64))
                if pixels.ndim < 3 or pixels.dtype != torch.uint8 or labels.shape != (len(pixels),):
                    raise InputError(
                        f"x_{part} must be uint8 of shape (n, side, side, ...) and y_{part} of shape (n,)."
                    )
                (chosen,) = balanced_split(labels, [size], seed)
                parts += [pixels[chosen].flatten(1).float() / 255, labels[chosen]]
    except (OSError, KeyError, ValueError) as error:
        raise InputError(f"{data} must be an .npz file with x_train, y_train, x_test and y_test: {error}") from error
    return parts[0], parts[1], parts[2], parts[3]


def partition(labels: NDArray[Any], workers: int, concentration: float, seed: int) -> list[NDArray[np.int64]]:
    """Share points out: of each class the shares of the workers follow a Dirichlet distribution; empty workers are left out."""
    random = np.random.default_rng(seed)
    parts: list[list[int]] = [[] for _ in range(workers)]
    for one in np.unique(labels):
        points = random.permutation(np.flatnonzero(labels == one))
        cuts = (np.cumsum(random.dirichlet([concentration] * workers))[:-1] * len(points)).round().astype(int)
        for worker, piece in enumerate(np.split(points, cuts)):
            parts[worker] += piece.tolist()
    return [np.array(sorted(part)) for part in parts if part]


def cells(run: Run[Settings]) -> list[Cell]:
    """Return one cell per method and partition."""
    return [Cell(method, number) for number in range(run.settings.partitions) for method in METHODS]


def prepare(run: Run[Settings]) -> _Shared:
    """Read the images."""
    return _Shared(run, *load_flat(run.data, run.settings.images, run.settings.test, run.seed))


def compute(shared: _Shared, cell: Cell) -> Course:
    """Train by one method on one partition."""
    settings, seed = shared.run.settings, 1000 * shared.run.seed + cell.partition
    parts = partition(shared.y.numpy(), settings.workers, settings.concentration, seed)
    workers = [Worker(shared.x[part], shared.y[part]) for part in parts]
    with seeded(seed):
        classes = int(shared.y.max()) + 1
        net = nn.Sequential(nn.Linear(shared.x.shape[1], settings.width), nn.ReLU(), nn.Linear(settings.width, classes))

    def accuracy(outputs: Tensor) -> float:
        return float((outputs.argmax(1) == shared.y_test).double().mean())

    with torch.no_grad():
        found = [accuracy(net(shared.x_test))]
    note = f"{len(parts)} workers with data"
    if cell.method == KERNEL:
        # Blocks of the kernel from pairs of workers are what their derivatives would give, at a fraction of the cost.
        federated = FederatedNTK(net, workers, loss="cross_entropy", share="gram", allow_pairs=True)
        for _ in range(settings.kernel_rounds):
            federated.round()
            with torch.no_grad():
                found.append(accuracy(federated.module(shared.x_test)))
        note += f"; steps {', '.join(str(one.steps) for one in federated.rounds)}"
    elif cell.method == TCT:
        half = max(1, settings.rounds // 3)
        tct = TrainConvexifyTrain(net, workers, learning_rate=0.1, epochs=1, features=1000, ridge=1e-2, seed=seed)
        for _ in range(half):
            tct.averaging.round()
            with torch.no_grad():
                found.append(accuracy(tct.module(shared.x_test)))
        tct.fit(0)
        found.append(accuracy(tct.predict(shared.x_test)))
    else:
        averaging = FederatedAveraging(net, workers, seed=seed, **AVERAGING[cell.method])
        for _ in range(settings.rounds):
            averaging.round()
            with torch.no_grad():
                found.append(accuracy(averaging.module(shared.x_test)))
    return Course(tuple(found), note)


def rounds_to(accuracies: tuple[float, ...], target: float) -> float:
    """Return the first round after which the accuracy is at least the target; infinity if there is none."""
    return next((float(number) for number, one in enumerate(accuracies) if number and one >= target), math.inf)


def report(results: Results[Settings, Cell, Course]) -> Report:
    """Set the rounds that the kernel needs beside the best that averaging reaches."""
    rows, needed = [], []
    for number in range(results.settings.partitions):
        courses = {cell.method: one for cell, one in results.values.items() if cell.partition == number}
        best = max(max(courses[name].accuracies) for name in AVERAGING)
        needed.append(rounds_to(courses[KERNEL].accuracies, best))
        reached = needed[-1]
        rows.append(
            [
                str(number),
                *(f"{max(courses[name].accuracies):.3f}" for name in AVERAGING),
                f"{max(courses[KERNEL].accuracies):.3f}",
                f"{reached:.0f}" if math.isfinite(reached) else f"not in {results.settings.kernel_rounds}",
                f"{courses[TCT].accuracies[-1]:.3f} ({len(courses[TCT].accuracies) - 1})",
            ]
        )
    median = float(np.median(needed))
    figure = new_figure(8.0, 4.5)
    ax = figure.subplots()
    for method in METHODS:
        drawn = [one.accuracies for cell, one in results.values.items() if cell.method == method]
        percent = 100 * np.array(drawn, dtype=np.float64).T
        plot_spread(ax, np.arange(len(percent)), {method: percent}, "rounds", "test accuracy (%)")
    header = [
        "partition",
        *(f"best of {name}" for name in AVERAGING),
        "best of NTK",
        "rounds of NTK to the best average",
    ]
    caption = (
        f"Test accuracies, and how many rounds the kernel needs to reach the best of {len(AVERAGING)} settings "
        f"of averaging in {results.settings.rounds} rounds: median {median:g}, from {min(needed):g} to {max(needed):g}. "
        "Train-convexify-train: accuracy and rounds in all"
    )
    return Report(
        "Federated learning by tangent kernels",
        f"{results.settings.images} images on {results.settings.workers} workers, classes spread by a Dirichlet distribution of "
        f"concentration {results.settings.concentration:g}, a network of one hidden layer of {results.settings.width} units. One "
        "round of the kernel sends derivatives (here blocks of the kernel made of them), one round of averaging sends weights; "
        "rounds are counted, not bytes.",
        [
            Section(
                "Rounds",
                [
                    Table([*header, "train-convexify-train"], rows, caption),
                    Picture(
                        figure,
                        "Mean test accuracy against rounds over the partitions; bands reach from the worst to the best.",
                        "Curves of accuracy against rounds for the tangent kernel, three settings of averaging, and "
                        "train-convexify-train.",
                    ),
                ],
            )
        ],
    )


EXPERIMENT = experiment_of(
    globals(),
    name="federated_images",
    title="Rounds that federated learning by tangent kernels needs for the accuracy of averaged weights.",
    reproduces="Golikov et al. 2022, section 6.1.4",
    embedded="digits",
    files="images as an .npz file with x_train, y_train, x_test, y_test, uint8 (scikit-learn's digits)",
    selects=("partitions",),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
