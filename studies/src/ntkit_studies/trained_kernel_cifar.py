"""Do labels help the features? Kernel regression with a network's tangent kernel after training, and before.

Figure 1(a) of Chen, He and Su 2020: the gain in test accuracy from using the kernel K_t of a trained two-layer network instead of
K_0, that of the same network before training, on six pairs of classes: those of CIFAR-10 with ``--data cifar.npz``, pairs of
scikit-learn's 8x8 digits without. The paper takes the weights with the best test accuracy; here they are those at the end.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import Schedule, empirical, solve, train
from ntkit.plots import new_figure

from ._by_seed import Seed, by_seed, is_positive, mean_and_spread
from ._images import FILES, images_size, load_images, pair_name
from ._networks import drawn_network
from ._rates import CUBIC, cholesky_rate, image_shape, product_rate
from .local_elasticity_cifar import CIFAR_PAIRS, DIGIT_PAIRS, bytes_of_training, products_of_training
from .plots import plot_accuracies
from .skeleton import Claim, Estimate, Run, Size, check_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "QUICK", "Accuracies", "Settings", "accuracy", "measure"]


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    pairs
        Pairs of classes.
    train, test
        Images of each pair, even numbers: both classes have equally many. The paper has 10,000 and 2,000.
    pool
        Average the pixels of squares of this side first.
    width
        Hidden units; the paper has 40,960 for 3,072 inputs.
    steps, rate
        Of Adam on the squared error of all training images at once.
    ridge
        Of both kernel regressions, relative to trace(K)/n; the paper does not give its own.
    seeds
        How many draws of images and weights.
    """

    pairs: tuple[tuple[int, int], ...] = DIGIT_PAIRS
    train: int = 40
    test: int = 300
    pool: int = 1
    width: int = 853
    steps: int = 300
    rate: float = 3e-3
    ridge: float = 1e-3
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 2, "train", "test")
        check_at_least(self, 1, "pool", "width", "steps", "seeds")


QUICK = Settings(pairs=DIGIT_PAIRS[:2], train=12, test=20, width=16, steps=5, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size; the paper's pairs for a file."""
    if not from_file:
        return QUICK if size == "quick" else Settings()
    if size == "full":
        return Settings(CIFAR_PAIRS, train=10000, test=2000, width=40960, steps=5000, rate=3e-4)
    usual = Settings(CIFAR_PAIRS, train=400, test=400, pool=4, width=2560)
    return replace(QUICK, pairs=CIFAR_PAIRS[:2]) if size == "quick" else usual


@dataclass(frozen=True)
class Accuracies:
    """Test accuracies with one draw of images and weights, each one for every pair of classes.

    Attributes
    ----------
    before, after
        Of kernel regression with K_0 and with K_t.
    network
        Of the trained network itself.
    from_file
        Whether the images came from a file.
    """

    before: tuple[float, ...]
    after: tuple[float, ...]
    network: tuple[float, ...]
    from_file: bool


def accuracy(net: nn.Module, x: Tensor, y: Tensor, x_test: Tensor, y_test: Tensor, ridge: float) -> float:
    """Give the test accuracy of kernel regression with a network's tangent kernel; labels are -1 and +1, shape (n,)."""
    kernel = empirical(net).ntk
    coefficients = solve(kernel(x).double(), y.double(), ridge=ridge).value
    return float(((kernel(x_test, x).double() @ coefficients > 0) == (y_test > 0)).double().mean())


def measure(run: Run[Settings], cell: Seed) -> Accuracies:
    """Train a network on each pair of classes and compare its kernels."""
    settings, rows = run.settings, []
    for number, pair in enumerate(settings.pairs):
        images = load_images(settings.train, settings.test, cell.seed, run.data, pair)
        x, x_test = (nn.functional.avg_pool2d(one, settings.pool) for one in (images.x, images.x_test))
        y, y_test = (torch.from_numpy(np.where(one == pair[1], 1.0, -1.0)).to(x) for one in (images.y, images.y_test))
        net = drawn_network(x[0].numel(), settings.width, cell.seed + 7919 * (number + 1))
        before = accuracy(net, x, y, x_test, y_test, settings.ridge)
        train(net, x, y[:, None], Schedule("adam", learning_rate=settings.rate, steps=settings.steps))
        with torch.no_grad():
            own = float(((net(x_test)[:, 0] > 0) == (y_test > 0)).double().mean())
        rows.append((before, accuracy(net, x, y, x_test, y_test, settings.ridge), own))
    before_all, after_all, own_all = zip(*rows, strict=True)
    return Accuracies(before_all, after_all, own_all, run.data is not None)


def claims(settings: Settings, records: list[Accuracies]) -> list[Claim]:
    """Ask of the paper's images, not of the digits, whether the gain is above zero by more than two standard errors."""
    before, after, network = (
        100 * np.array([getattr(record, name) for record in records]) for name in ("before", "after", "network")
    )
    gains, from_file = after - before, records[0].from_file
    both = _size(settings), _size(sizes("full", True))
    found = []
    for column, pair in enumerate(settings.pairs):
        what = f"{pair_name(pair, from_file)}: accuracy with K_t less that with K_0, in points"
        text = f"{mean_and_spread(gains[:, column].tolist())} ({before[:, column].mean():.1f} to {after[:, column].mean():.1f} %)"
        gain = is_positive(gains[:, column].tolist()) if from_file else None
        found.append(Claim(what, "positive", text, gain, *both))
    means = gains.mean(1)
    holds = is_positive(means.tolist()) if from_file else None
    return [
        *found,
        Claim("mean over the pairs, in points", "positive", mean_and_spread(means.tolist()), holds, *both),
        Claim(
            "accuracy of the networks, mean over the pairs, in %",
            "-",
            mean_and_spread(network.mean(1).tolist()),
            None,
            *both,
        ),
    ]


def _size(settings: Settings) -> str:
    return f"{images_size(settings.train, settings.test, settings.pool)}, {settings.width:,} units"


def draw(settings: Settings, records: list[Accuracies]) -> dict[str, Figure]:
    """Draw the gains, and the accuracies they are between."""
    names = [pair_name(pair, records[0].from_file) for pair in settings.pairs]
    before, after = (np.array([getattr(record, name) for record in records]) for name in ("before", "after"))
    figure = new_figure(11, 4.0)
    left, right = figure.subplots(1, 2)
    gains = 100 * (after - before)
    left.bar(range(len(names)), gains.mean(0), color="C0", width=0.6)
    left.vlines(range(len(names)), gains.min(0), gains.max(0), color="0.2")
    left.axhline(0, color="black", linewidth=0.8)
    left.set_xticks(range(len(names)), names)
    left.set_ylabel("gain from K_t, points")
    left.set_title("K_t instead of K_0: mean and range over draws", fontsize="medium")
    plot_accuracies(right, names, np.stack([before.mean(0), after.mean(0)], 1), ("K_0", "K_t"))
    for ax in (left, right):
        ax.tick_params("x", labelrotation=30)
    return {"figure1(a)": figure}


def estimate(run: Run[Settings]) -> Estimate:
    """Count the products of training and of the two kernels, and their factorisations."""
    settings = run.settings
    channels, side = image_shape(run.data)
    n, inputs, width = settings.train, channels * (side // settings.pool) ** 2, settings.width
    kernels = 2 * 2.0 * (n + settings.test) * n * (width + inputs)
    products = products_of_training(n, inputs, width, settings.steps) + kernels
    each = products / product_rate() + 2 * n**3 / 3 / cholesky_rate()
    basis = f"Measured here: products of matrices, and {CUBIC}."
    change = "fewer training images (--train), steps (--steps) or hidden units (--width, with --pool)"
    memory = max(bytes_of_training(n, inputs, width), 8.0 * 4 * n**2)
    return Estimate(settings.seeds * len(settings.pairs) * each, memory, basis, change)


EXPERIMENT = by_seed(
    globals(),
    "trained_kernel_cifar",
    "Gain in accuracy from the tangent kernel of a trained network over that before training.",
    "Chen, He, Su 2020, Fig. 1 (a)",
    embedded="digits",
    files=FILES,
    grows=("train", "test", "width"),
    paper={"train": 10_000, "test": 2_000, "width": 40_960, "pool": 1},
)

if __name__ == "__main__":
    sys.exit(EXPERIMENT.main())
