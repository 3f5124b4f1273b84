"""Networks that diverge at one epoch or another: error barriers and kernels, and whether training has two phases.

After Fort et al. 2020, on a small network. Run it with ``python -m ntkit_studies spawn_phases``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ntkit.datasets import load_digits
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._networks import blank
from .methods import spawn_study
from .plots import Picture, Section, Table, plot_spread
from .skeleton import Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "QUICK", "Draw", "Parted", "Settings", "main", "run"]

_FALL = 0.25


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    spawn
        Epochs at which networks diverge.
    epochs
        All are trained to this epoch.
    draws
        Number of initial networks, each with its own orders of batches.
    train
        Digits to train on; the others are the test set.
    width
        Of the two hidden layers.
    batch_size
        Of stochastic gradient descent.
    rate
        Learning rate.
    probe
        Test points that kernels are compared on.
    """

    spawn: tuple[int, ...] = (0, 1, 2, 3, 5, 8, 12, 18)
    epochs: int = 30
    draws: int = 3
    train: int = 1000
    width: int = 64
    batch_size: int = 16
    rate: float = 0.2
    probe: int = 50

    def __post_init__(self) -> None:
        check_at_least(self, 0, "spawn")
        check_at_least(self, 1, "epochs", "draws", "train", "width", "batch_size", "probe")
        if max(self.spawn) > self.epochs:
            raise InputError(f"spawn must not be after the last epoch, {self.epochs}. Got {self.spawn}.")


QUICK = Settings(spawn=(0, 1, 2), epochs=3, draws=2, train=200, width=16, probe=20)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size."""
    full = Settings(spawn=(0, 1, 2, 3, 5, 8, 12, 18, 25, 35, 50), epochs=80, draws=10)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


@dataclass(frozen=True)
class Draw:
    """One cell: an initial network and its children."""

    draw: int


@dataclass(frozen=True)
class Parted:
    """One study; every tuple has one value per epoch of divergence, except ``velocity``, which has one per epoch.

    Attributes
    ----------
    barrier, kernel_distance, hamming, disagreement, error
        Between the two children, and the mean of their test errors.
    velocity
        Kernel velocity of the parent per epoch.
    """

    barrier: tuple[float, ...]
    kernel_distance: tuple[float, ...]
    hamming: tuple[float, ...]
    disagreement: tuple[float, ...]
    error: tuple[float, ...]
    velocity: tuple[float, ...]


@dataclass(frozen=True)
class _Shared:
    run: Run[Settings]
    x: Tensor
    y: Tensor


def cells(run: Run[Settings]) -> list[Draw]:
    """Return one cell per initial network."""
    return [Draw(draw) for draw in range(run.settings.draws)]


def prepare(run: Run[Settings]) -> _Shared:
    """Shuffle the images."""
    digits = load_digits()
    order = torch.randperm(len(digits.labels), generator=torch.Generator().manual_seed(run.seed))
    images = digits.images[order].float()
    return _Shared(run, (images - images.mean()) / images.std(), digits.labels[order])


def compute(shared: _Shared, cell: Draw) -> Parted:
    """Train one parent and its children."""
    settings, w = shared.run.settings, shared.run.settings.width
    net = blank(
        lambda: nn.Sequential(
            nn.Flatten(), nn.Linear(64, w), nn.ReLU(), nn.Linear(w, w), nn.ReLU(), nn.Linear(w, 10)
        )
    )  # fmt: skip
    seed = shared.run.seed + 7919 * cell.draw
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():  # He's initialisation, in the standard parametrisation
        for layer in net.modules():
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0, (2 / layer.in_features) ** 0.5, generator=generator)
    n = settings.train
    study = spawn_study(
        net,
        shared.x[:n],
        shared.y[:n],
        shared.x[n:],
        shared.y[n:],
        spawn=settings.spawn,
        epochs=settings.epochs,
        learning_rate=settings.rate,
        batch_size=settings.batch_size,
        seed=seed,
        probe=settings.probe,
    )
    return Parted(
        tuple(study.barrier.tolist()),
        tuple(study.kernel_distance.tolist()),
        tuple(study.hamming.tolist()),
        tuple(study.disagreement.tolist()),
        tuple(study.errors.mean(1).tolist()),
        tuple(study.parent.velocity[1:].tolist()),
    )


def report(results: Results[Settings, Draw, Parted]) -> Report:
    """Draw the curves with their spread, and say whether they fall together."""
    settings = results.settings
    spawn = sorted(set(settings.spawn))

    def stacked(read: Callable[[Parted], tuple[float, ...]]) -> NDArray[Any]:
        return np.array([read(found) for found in results.values.values()]).T

    curves = {
        "test error barrier": stacked(lambda found: found.barrier),
        "kernel distance": stacked(lambda found: found.kernel_distance),
        "ReLU Hamming distance": stacked(lambda found: found.hamming),
        "disagreement": stacked(lambda found: found.disagreement),
    }
    velocity = stacked(lambda found: found.velocity)
    figure = new_figure(10, 4.4)
    left, right = figure.subplots(1, 2)
    shown = {name: values / values[0].mean() for name, values in curves.items() if values[0].mean() > 0}
    plot_spread(left, spawn, shown, "epoch T of parting", "at the end of training, relative to T = 0")
    plot_spread(
        right, np.arange(1, len(velocity) + 1), {"kernel velocity": velocity}, "epoch", "kernel distance per epoch"
    )
    right.set_yscale("log")
    rows = [
        [name, *(f"{row.mean():.4f} ± {row.std(ddof=1) if len(row) > 1 else 0:.4f}" for row in values)]
        for name, values in curves.items()
    ]
    errors = stacked(lambda found: found.error)
    rows.append(["test error of the children", *(f"{row.mean():.4f}" for row in errors)])
    return Report(
        "Networks that part in training",
        f"{settings.draws} networks with two hidden layers of {settings.width}, trained on {settings.train} digits by stochastic "
        "gradient descent in the standard parametrisation. From epoch T on two copies see the batches in different orders. "
        + " ".join(verdicts(spawn, curves, velocity)),
        [
            Section(
                "By the epoch of parting",
                [
                    Table(
                        ["between two children", *map(str, spawn)], rows, "Mean and standard deviation over networks"
                    ),
                    Picture(
                        figure,
                        "Left: how far two children are apart at the end, against the epoch at which they part. Right: kernel "
                        "velocity of the parent. Bands are the extremes over networks.",
                        "Curves against the epoch of parting, and the kernel velocity against the epoch.",
                    ),
                ],
            )
        ],
    )


def verdicts(spawn: list[int], curves: dict[str, NDArray[Any]], velocity: NDArray[Any]) -> list[str]:
    """Say of each curve when, if at all, it has fallen below a quarter of its start."""
    found = []
    for name, values in curves.items():
        mean, spread = values.mean(1), values[0].std(ddof=1) if values.shape[1] > 1 else 0.0
        below = [T for T, value in zip(spawn, mean, strict=True) if value < _FALL * mean[0]]
        if mean[0] <= 2 * spread:
            found.append(
                f"The {name} at T = 0 is {mean[0]:.3g}, not above its spread of {spread:.2g}: no phases can be told."
            )
        elif below:
            found.append(f"The {name} falls below a quarter of its value at T = 0 from T = {below[0]} on.")
        else:
            found.append(f"The {name} does not fall to a quarter of its value at T = 0.")
    speed = velocity.mean(1)
    slow = [epoch for epoch, value in enumerate(speed, 1) if value < _FALL * speed[0]]
    found.append(
        f"The kernel velocity is below a quarter of that of the first epoch from epoch {slow[0]} on."
        if slow
        else "The kernel velocity does not fall to a quarter of that of the first epoch."
    )
    return found


EXPERIMENT = experiment_of(
    globals(),
    name="spawn_phases",
    title="Error barrier and kernel distance of networks that share their training to an epoch.",
    reproduces="Golikov et al. 2022, Fig. 3 (Fort et al. 2020), on a small network",
    embedded="digits",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
