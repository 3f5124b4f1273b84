"""Local elasticity of a two-layer network before and after training, of the exact NTK, and of the label-aware NTK.

Table 3 of Chen, He and Su 2020 at a size of your choice, compared with the paper's figures. Run it with
``python -m ntkit_studies local_elasticity_cifar --data cifar.npz`` (arrays ``x_train``, ``x_test`` of shape (n, 32, 32, 3),
uint8, and ``y_train``, ``y_test``); without data it uses scikit-learn's 8x8 digits, for which the paper has no figures.

The rows of the kernels have no sampling: a pair has all images of two classes. With ``--inputs signed --diagonal with``, as the
authors' code has it, they are the paper's numbers but for rounding.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Literal

import torch
from torch import Tensor, nn

from ntkit import Kernel, LabelAware, infinite_width, initialize, local_elasticity, parametrize_ntk
from ntkit.errors import InputError
from ntkit.labels import STRENGTHS
from ntkit.plots import new_figure

from ._by_seed import reaches
from ._images import FILES, Images, images_size, load_images, pair_name
from ._networks import dense_network
from ._rates import image_shape, product_rate
from .methods import elasticity_course
from .plots import Picture, Section, Table, plot_accuracies
from .skeleton import (
    Claim,
    Comparison,
    Estimate,
    Report,
    Results,
    Run,
    Size,
    check_at_least,
    experiment_of,
    fitted_seconds,
)

__all__ = [
    "CIFAR_PAIRS", "DIGIT_PAIRS", "EXPERIMENT", "KINDS", "METHODS", "PAPER", "QUICK", "Pair", "Ratios", "Settings", "main", "run",
]  # fmt: skip

METHODS = ("NN-init", "NN-trained", "expected init", "NTK", "LANTK")
KINDS = ("train-train", "test-train")
MEASURES = ("network", "kernels", "expected init")
_EXACT = 0.02  # points by which a row without sampling may be off: two roundings, and float32 in the authors' code
_UNITS_PER_INPUT = 40960 / 3072  # of the paper's network
CIFAR_PAIRS = ((6, 8), (6, 9), (4, 8), (5, 9), (2, 9), (4, 9))
DIGIT_PAIRS = ((3, 8), (4, 9), (1, 7), (5, 6), (0, 1), (2, 3))

PAPER: dict[str, dict[str, tuple[float, ...]]] = {
    "train-train": {
        "NN-init": (58.37, 55.07, 57.50, 54.75, 52.93, 54.86),
        "NN-trained": (71.99, 68.36, 69.98, 66.35, 63.99, 65.96),
        "NTK": (63.83, 58.31, 62.43, 58.05, 55.01, 58.02),
        "LANTK": (66.62, 60.57, 64.90, 59.75, 55.94, 59.59),
    },
    "test-train": {
        "NN-init": (58.31, 55.06, 57.64, 54.62, 52.93, 54.94),
        "NN-trained": (71.45, 67.91, 69.73, 65.80, 63.58, 65.53),
        "NTK": (63.76, 58.30, 62.67, 57.84, 55.00, 58.14),
        "LANTK": (66.53, 60.08, 65.20, 59.54, 55.97, 59.77),
    },
}
"""RR in % in Table 3, for the pairs frog/ship, frog/truck, deer/ship, dog/truck, bird/truck, deer/truck."""


_SIGNIFICANT = 0.46
"""Half the least difference, in points, that the paper calls significant: that of LANTK and NTK on bird/truck, train-train."""


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    pairs
        Pairs of classes; the default are the paper's for images and six pairs of digits otherwise.
    tasks
        ``"table"``: those pairs. ``"all"``: every pair of the classes 0 to 9, of which the paper says that training raises RR.
    train, test
        Images of each pair, even numbers: both classes have equally many.
    pool
        Average the pixels of squares of this side first: a smaller network then has as many units per input as the paper's.
    width
        Hidden units; the paper has 40960 for 3072 inputs.
    steps, rate
        Of Adam on the squared error of all training images at once; the paper has 500 epochs of more and smaller steps, at 3e-4.
    parametrization
        ``"torch"``: PyTorch's own, with biases. ``"ntk"``: the one of the infinite-width kernel, without biases.
    strength
        Strength of LANTK-KR-V1; the authors' code has 0.1.
    strengths
        Other strengths, measured beside it.
    inputs
        ``"standardised"`` by channel; or ``"signed"``, as in the authors' code: pixels in [-1, 1], with a constant 1 appended in
        place of the first layer's biases, and no others.
    diagonal
        Whether an image paired with itself counts: ``"with"`` is the authors' sum.
    measures
        The rows: of the network before and after training, of NTK and LANTK, or of the expected kernel before training.
    """

    pairs: tuple[tuple[int, int], ...] = DIGIT_PAIRS
    tasks: Literal["table", "all"] = "table"
    train: int = 200
    test: int = 100
    pool: int = 1
    width: int = 853
    steps: int = 300
    rate: float = 3e-3
    parametrization: Literal["torch", "ntk"] = "torch"
    strength: float = 0.1
    strengths: tuple[float, ...] = STRENGTHS
    inputs: Literal["standardised", "signed"] = "standardised"
    diagonal: Literal["without", "with"] = "without"
    measures: tuple[str, ...] = MEASURES

    def __post_init__(self) -> None:
        if not self.measures or not set(self.measures) <= set(MEASURES):
            raise InputError(f"measures must be some of {', '.join(MEASURES)}. Got {list(self.measures)}.")
        check_at_least(self, 1, "width", "steps", "pool")
        if not self.pairs or not all(0 <= one < math.inf for one in (self.strength, *self.strengths)):
            raise InputError("pairs must not be empty, and a strength must be finite and not negative.")

    @property
    def chosen(self) -> tuple[tuple[int, ...], ...]:
        """The pairs of classes that are measured."""
        return self.pairs if self.tasks == "table" else tuple(combinations(range(10), 2))


QUICK = Settings(pairs=DIGIT_PAIRS[:2], train=12, test=8, width=16, steps=5, strengths=(0.1,))


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size; the paper's pairs for a file."""
    usual = Settings(pairs=CIFAR_PAIRS, train=400, test=200, pool=4, width=2560) if from_file else Settings()
    full = Settings(
        pairs=CIFAR_PAIRS if from_file else DIGIT_PAIRS, train=10000, test=2000, width=40960, steps=5000, rate=3e-4,
        inputs="signed", diagonal="with", strengths=(),
    )  # fmt: skip
    quick = replace(QUICK, pairs=CIFAR_PAIRS[:2]) if from_file else QUICK
    return {"quick": quick, "default": usual, "full": full}[size]


@dataclass(frozen=True)
class Pair:
    """A cell: what is measured on a pair of classes.

    Attributes
    ----------
    number
        Of the pair.
    classes
        The two classes.
    measure
        Which rows.
    """

    number: int
    classes: tuple[int, int]
    measure: Literal["network", "kernels", "expected init"]


@dataclass(frozen=True)
class Ratios:
    """The measurements on a pair of classes.

    Attributes
    ----------
    ratios
        By method: RR among training images, and between test and training images. ``"expected init"`` is the expected
        kernel before training of a network with as many units per input as the paper's (40,960 for 3,072), in PyTorch's
        parametrisation: there the last layer's part of the kernel grows with the width, and RR falls. ``"LANTK 0.1"`` is
        LANTK of strength 0.1; None where it is so strong that K(x, x) is negative somewhere, or the mean of similarities.
    """

    ratios: dict[str, tuple[float, float] | None]


def cells(run: Run[Settings]) -> list[Pair]:
    """Return a cell per pair of classes and measure."""
    order: tuple[Literal["network", "kernels", "expected init"], ...] = ("network", "kernels", "expected init")
    chosen = [which for which in order if which in run.settings.measures]
    return [Pair(n, (a, b), which) for n, (a, b) in enumerate(run.settings.chosen) for which in chosen]


def compute(run: Run[Settings], cell: Pair) -> Ratios:
    """Measure the network, or the kernels, on a pair of classes."""
    settings = run.settings
    found = load_images(settings.train, settings.test, run.seed, run.data, cell.classes, settings.inputs)
    side = found.x.shape[-1]
    if settings.pool > side:
        raise InputError(f"pool must be between 1 and the side of the images, {side}. Got {settings.pool}.")
    x, x_test = (nn.functional.avg_pool2d(one, settings.pool).flatten(1) for one in (found.x, found.x_test))
    if settings.inputs == "signed":
        x, x_test = (torch.cat([one, one.new_ones(len(one), 1)], 1) for one in (x, x_test))
    images = Images(x, found.y, x_test, found.y_test)
    return (
        _of_network(run, cell, images) if cell.measure == "network" else _of_kernels(run.settings, cell.measure, images)
    )


def network(settings: Settings, inputs: int, seed: int) -> nn.Module:
    """Return a two-layer network, its weights drawn from the seed."""
    ntk = settings.parametrization == "ntk"
    bias = not ntk and settings.inputs != "signed"
    net = nn.Sequential(nn.Flatten(), *dense_network(inputs, settings.width, bias=bias).children())
    generator = torch.Generator().manual_seed(seed)
    return (
        initialize(parametrize_ntk(net), generator=generator) if ntk else initialize(net, "torch", generator=generator)
    )


def _of_network(run: Run[Settings], cell: Pair, images: Images) -> Ratios:
    settings, name = run.settings, f"training on pair {cell.number + 1}"
    net = network(settings, images.x[0].numel(), run.seed + 7919 * (cell.number + 1))
    course = elasticity_course(
        net, images.x, {"pair": torch.from_numpy(images.y)}, x_test=images.x_test,
        labels_test={"pair": torch.from_numpy(images.y_test)}, method="adam", lr=settings.rate, steps=settings.steps,
        diagonal=settings.diagonal == "with",
        progress=lambda done, total: run.progress(name, done, total),
    )  # fmt: skip
    assert course.test is not None
    train, test = course.train[0, 0], course.test[0, 0]
    ends = {"NN-init": 0, "NN-trained": -1}
    return Ratios({method: (float(train[at]), float(test[at])) for method, at in ends.items()})


def _of_kernels(settings: Settings, which: str, images: Images) -> Ratios:
    x, x_test = images.x.double(), images.x_test.double()
    y, y_test = torch.from_numpy(images.y), torch.from_numpy(images.y_test)
    ntk = infinite_width(dense_network(x.shape[1], 8)).ntk
    ratios: dict[str, tuple[float, float] | None] = {}

    def measure(method: str, gram: Tensor, cross: Tensor, diag_test: Tensor) -> None:
        # A label-aware kernel of large strength may be negative on its diagonal, and then has no similarities.
        if float(torch.cat([gram.diagonal(), diag_test]).min()) > 0:
            own = local_elasticity(gram, y, diagonal=settings.diagonal == "with")
            ratios[method] = float(own), float(local_elasticity(cross, y_test, y, diag_test, gram.diagonal()))
        else:
            ratios[method] = None

    if which == "expected init":
        bias = settings.inputs != "signed"
        wide = ExpectedTorchKernel(x.shape[1], _UNITS_PER_INPUT * (x.shape[1] - (not bias)), bias)
        measure("expected init", wide(x), wide(x_test, x), wide.diag(x_test))
        return Ratios(ratios)
    k, cross, diag_test = ntk(x), ntk(x_test, x), ntk.diag(x_test)
    measure("NTK", k, cross, diag_test)
    aware = LabelAware(ntk, "kr-v1", 1.0)
    part = aware.fit_gram(x, y, k).sub_(k)  # of strength 1; every strength has so many times it
    parts = aware.from_base(cross, x_test, x) - cross, aware.diag(x_test) - diag_test
    named = {"LANTK": settings.strength} | {f"LANTK {strength:g}": strength for strength in settings.strengths}
    for method, s in named.items():
        try:
            measure(method, torch.add(k, part, alpha=s), cross + s * parts[0], diag_test + s * parts[1])
        except InputError:  # the similarities of the base kernel had a mean above zero, those of this strength have not
            ratios[method] = None
    return Ratios(ratios)


class ExpectedTorchKernel(Kernel):
    """The expected tangent kernel of a two-layer network in PyTorch's parametrisation, before training.

    The part of the last layer's weights is in proportion to the width, that of all other parameters does not depend on it:
    the kernels of two small widths give that of any.
    """

    def __init__(self, inputs: int, width: float, bias: bool = True) -> None:
        self._narrow, self._double = (
            infinite_width(dense_network(inputs, w, bias=bias), init="torch").ntk for w in (8, 16)
        )
        self._factor = (width - 8) / 8

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        narrow = self._narrow(x1, x2)
        return narrow + self._factor * (self._double(x1, x2) - narrow)

    def diag(self, x: Tensor) -> Tensor:
        narrow = self._narrow.diag(x)
        return narrow + self._factor * (self._double.diag(x) - narrow)


Table3 = dict[str, dict[str, tuple[float | None, ...]]]


def ratios_of(results: Results[Settings, Pair, Ratios]) -> Table3:
    """Return RR by kind of pairs and method, one for each pair of classes; None where there is none."""
    named = [f"LANTK {strength:g}" for strength in results.settings.strengths]
    found: Table3 = {kind: {} for kind in KINDS}
    for method in (*METHODS, *named):
        own = [value.ratios[method] for value in results.values.values() if method in value.ratios]
        for place, kind in enumerate(KINDS):
            found[kind][method] = tuple(None if one is None else one[place] for one in own)
    return found


def report(results: Results[Settings, Pair, Ratios]) -> Report:
    """Show RR beside the paper's, where the images come from a file."""
    settings, found = results.settings, ratios_of(results)
    pairs = [pair_name(pair, results.from_file) for pair in settings.chosen]
    figure = new_figure(11 if len(pairs) <= 10 else 30, 4.8)
    for ax, kind in zip(figure.subplots(1, 2), KINDS, strict=True):
        shown = [method for method in METHODS if found[kind][method]]
        bars = [[found[kind][method][i] or 0.0 for method in shown] for i in range(len(pairs))]
        plot_accuracies(ax, pairs, bars, shown)
        ax.set_title(kind)
        ax.set_ylabel("relative ratio RR (%)")
        ax.set_ylim(40, 90)
        ax.tick_params("x", labelrotation=30)
    picture = Picture(
        figure,
        "Relative ratio by pair of classes and method. At 50 % a kernel finds images of one class no more alike than others.",
        "Two groups of bars of relative ratios, for pairs of training images and for pairs of test and training images.",
    )
    parts = [_table(found[kind], kind, pairs, settings) for kind in KINDS]
    quoted = results.from_file and settings.chosen == CIFAR_PAIRS[: len(pairs)]
    return Report(
        "Local elasticity before and after training",
        "The relative ratio RR of Chen, He and Su 2020 (eq. 9, Table 3): how much more alike a kernel finds images of one class "
        "than images of two, for a two-layer network before and after training, the exact kernel, and the label-aware one.",
        [Section("Relative ratios", [*parts, picture])],
        _comparisons(results, found, pairs) if quoted else [],
        _claims(results, found) if quoted or (results.from_file and settings.tasks == "all") else [],
    )


def _comparisons(results: Results[Settings, Pair, Ratios], found: Table3, pairs: Sequence[str]) -> list[Comparison]:
    settings = results.settings
    full = sizes("full", True)
    images = reaches(settings, full, ("train", "test")) and settings.pool == 1
    exact = images and settings == replace(settings, inputs="signed", diagonal="with", strength=full.strength)
    comparisons = []
    for kind in KINDS:
        for method, figures in PAPER[kind].items():
            kernel = method in ("NTK", "LANTK")
            same = images if kernel else images and reaches(settings, full, ("width", "steps"))
            for pair, ours, paper in zip(pairs, found[kind][method], figures, strict=False):
                if ours is not None:
                    quantity = f"{kind}, {method}, {pair}: RR in %"
                    both = _size(settings, kernel), _size(full, kernel)
                    tolerance = _EXACT if kernel and exact else None
                    comparisons.append(Comparison(quantity, (100 * ours,), paper, None, same, *both, tolerance))
    return comparisons


def _size(settings: Settings, kernel: bool = False) -> str:
    images = images_size(settings.train, settings.test, settings.pool)
    return images if kernel else f"{images}, {settings.width:,} units, {settings.steps:,} steps"


def _claims(results: Results[Settings, Pair, Ratios], found: Table3) -> list[Claim]:
    """Ask of each kind of pairs whether RR is higher in every pair of classes, by what counts as significant."""
    settings, claims, default = results.settings, [], sizes("default", True)
    for kind in KINDS:
        for before, after, said in (
            ("NN-init", "NN-trained", "RR significantly increases after training"),
            ("NTK", "LANTK", "LANTK is significantly more locally elastic than NTK"),
        ):
            if not found[kind][before] or (settings.tasks == "all" and before == "NTK"):
                continue
            kernel = before == "NTK"
            enough = reaches(settings, default, ("train", "test") if kernel else ("train", "test", "width"))
            enough = enough and len(settings.chosen) >= len(CIFAR_PAIRS)
            theirs = 45 if settings.tasks == "all" else len(CIFAR_PAIRS)
            least = min(b - a for a, b in zip(PAPER[kind][before], PAPER[kind][after], strict=True))
            rises = [
                100 * (b - a)
                for a, b in zip(found[kind][before], found[kind][after], strict=True)
                if a is not None and b is not None
            ]
            whole = "for all 45 binary classification tasks in CIFAR-10, " if settings.tasks == "all" else ""
            by = f" (by {least:.2f} points or more)" if settings.tasks == "table" else ""
            claims.append(
                Claim(
                    f"{kind}: RR of {after} less that of {before}, in points, over {len(rises)} pairs of classes",
                    f"{whole}{said}{by}",
                    f"{min(rises):+.2f} to {max(rises):+.2f}" if rises else "none",
                    len(rises) == len(settings.chosen) and min(rises) >= _SIGNIFICANT if enough else None,
                    f"{_size(settings, kernel)}, {len(settings.chosen)} pairs of classes",
                    f"{_size(sizes('full', True), kernel)}, {theirs} pairs of classes",
                )
            )
    return claims


def _table(ratios: dict[str, tuple[float | None, ...]], kind: str, pairs: Sequence[str], settings: Settings) -> Table:
    rows = [
        [method, *("none" if value is None else f"{100 * value:.2f}" for value in values)]
        for method, values in ratios.items()
        if values
    ]
    units = f"{settings.width} hidden units; " if "network" in settings.measures else ""
    caption = (
        f"RR in %, {kind} pairs, {settings.train} training images, {units}"
        f"LANTK has strength {settings.strength:g} unless its row says another"
    )
    return Table(["", *pairs], rows, caption)


_TRIAL = 100  # images of the smaller of two trials


def estimate(run: Run[Settings]) -> Estimate:
    """Count the products of training, and time the kernels on few images, whose entries are all there is to compute."""
    settings = run.settings
    channels, side = image_shape(run.data)
    n, inputs = settings.train, channels * (side // settings.pool) ** 2
    trains, measured = "network" in settings.measures, [one for one in settings.measures if one != "network"]
    each = products_of_training(n, inputs, settings.width, settings.steps) / product_rate() if trains else 0.0

    def trial(images: int) -> None:
        generator = torch.Generator().manual_seed(run.seed)
        x, y = torch.randn(2 * images, inputs, generator=generator), torch.arange(2 * images).numpy() % 2
        for which in measured:
            _of_kernels(settings, which, Images(x[:images], y[:images], x[images:], y[images:]))

    seconds = len(settings.chosen) * (each + (fitted_seconds(trial, _TRIAL, 2)(n) if measured else 0.0))
    memory = max(bytes_of_training(n, inputs, settings.width) if trains else 0.0, 8.0 * 8 * n**2)
    basis = (
        f"Measured here: products of matrices, and label-aware kernels of {_TRIAL} and {2 * _TRIAL} points (as n^2)."
    )
    change = "fewer training images (--train), steps (--steps) or hidden units (--width, with --pool)"
    return Estimate(seconds, memory, basis, change)


def products_of_training(n: int, inputs: int, width: int, steps: int) -> float:
    """Count the operations of training a wide two-layer network on all images: a product forward, one for the gradient."""
    return 4.0 * n * inputs * width * steps


def bytes_of_training(n: int, inputs: int, width: int) -> float:
    """Count what that holds: hidden layer, activation and gradient of all images; weights, gradient, two moments, a copy."""
    return 4.0 * width * (3 * n + 5 * inputs)


EXPERIMENT = experiment_of(
    globals(),
    name="local_elasticity_cifar",
    title="Local elasticity of a network before and after training, of the exact and of the label-aware kernel.",
    reproduces="Chen, He, Su 2020, Table 3",
    embedded="digits",
    files=FILES,
    selects=("pairs", "tasks", "measures"),
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
