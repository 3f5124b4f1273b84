"""Local elasticity of a two-layer network before and after training, of the exact NTK, and of the label-aware NTK.

Table 3 of Chen, He and Su 2020 at a size of your choice, with the paper's figures beside it. Run it with
``python -m ntkit.experiments.local_elasticity_cifar --data cifar.npz`` (arrays ``x_train``, ``x_test`` of shape (n, 32, 32, 3),
uint8, and ``y_train``, ``y_test``); without data it uses scikit-learn's 8x8 digits, for which the paper has no figures.
"""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from ntkit.diagnostics import elasticity_course, local_elasticity
from ntkit.errors import InputError
from ntkit.finite import initialize, parametrize_ntk
from ntkit.kernels import Kernel, infinite_width
from ntkit.labels import STRENGTHS, LabelAware
from ntkit.plots import Table, new_figure, plot_accuracies

from ._command_line import Progress, given, print_table, progress_bars
from ._finite_cells import Cell, file_options, fill, read_file_options
from ._images import Images, load_images

__all__ = ["KINDS", "METHODS", "PAPER", "ElasticityResult", "Settings", "main", "run"]

METHODS = ("NN-init", "NN-trained", "expected init", "NTK", "LANTK")
KINDS = ("train-train", "test-train")
_UNITS_AN_INPUT = 40960 / 3072  # of the paper's network
_NAMES = ("plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck")
_CIFAR = ((6, 8), (6, 9), (4, 8), (5, 9), (2, 9), (4, 9))
_DIGITS = ((3, 8), (4, 9), (1, 7), (5, 6), (0, 1), (2, 3))

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


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    pairs
        Pairs of classes; the default are the paper's for images and six pairs of digits otherwise.
    train, test
        Images of each pair, even numbers: both classes have equally many.
    pool
        Average the pixels of squares of this side first: a smaller network then has as many units an input as the paper's.
    width
        Hidden units; the paper has 40960 for 3072 inputs.
    steps, rate
        Of Adam on the squared error of all training images at once; the paper has 500 epochs of more and smaller steps, at 3e-4.
    parametrization
        ``"torch"``: PyTorch's own, with biases. ``"ntk"``: the one of the infinite-width kernel, without biases.
    strengths
        Of LANTK-KR-V1, each measured; LANTK alone is the best of them in cross-validation on the training images.
    """

    pairs: tuple[tuple[int, int], ...] = _DIGITS
    train: int = 200
    test: int = 100
    pool: int = 1
    width: int = 853
    steps: int = 300
    rate: float = 3e-3
    parametrization: Literal["torch", "ntk"] = "torch"
    strengths: tuple[float, ...] = STRENGTHS


QUICK = Settings(pairs=_DIGITS[:2], train=12, test=8, width=16, steps=5, strengths=(0.1,))


@dataclass(frozen=True)
class ElasticityResult:
    """What the experiment found.

    Attributes
    ----------
    settings, seed
        What it was asked.
    ratios
        RR by kind of pairs and method, one for each pair of classes. ``"expected init"`` is the expected kernel before
        training of a network with as many units an input as the paper's (40,960 for 3,072), in PyTorch's parametrisation: there
        the last layer's part of the kernel grows with the width, and RR falls. ``"LANTK 0.1"`` is LANTK of strength
        0.1; NaN where it is so strong that K(x, x) is negative somewhere.
    strength
        The strength of LANTK for each pair of classes.
    """

    settings: Settings
    seed: int
    ratios: dict[str, dict[str, tuple[float, ...]]]
    strength: tuple[float, ...]


def network(settings: Settings, inputs: int, seed: int) -> nn.Module:
    """Give a two-layer network, its weights drawn from the seed."""
    ntk = settings.parametrization == "ntk"
    net = nn.Sequential(nn.Flatten(), *_two_layers(inputs, settings.width, bias=not ntk))
    generator = torch.Generator().manual_seed(seed)
    return (
        initialize(parametrize_ntk(net), generator=generator) if ntk else initialize(net, "torch", generator=generator)
    )


class ExpectedTorchKernel(Kernel):
    """The expected tangent kernel of a two-layer network in PyTorch's parametrisation, before training.

    The part of the last layer's weights is in proportion to the width, that of all other parameters does not depend on it:
    the kernels of two small widths give that of any.
    """

    def __init__(self, inputs: int, width: float) -> None:
        self._narrow, self._double = (
            infinite_width(_two_layers(inputs, w, bias=True), init="torch").ntk for w in (8, 16)
        )
        self._factor = (width - 8) / 8

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        narrow = self._narrow(x1, x2)
        return narrow + self._factor * (self._double(x1, x2) - narrow)

    def diag(self, x: Tensor) -> Tensor:
        narrow = self._narrow.diag(x)
        return narrow + self._factor * (self._double.diag(x) - narrow)


def _two_layers(inputs: int, width: int, bias: bool) -> nn.Sequential:
    with torch.device("meta"):  # nothing is drawn from torch's global generator
        net = nn.Sequential(nn.Linear(inputs, width, bias=bias), nn.ReLU(), nn.Linear(width, 1, bias=bias))
    net = net.to_empty(device="cpu")
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


def run(
    settings: Settings | None = None,
    seed: int = 0,
    data: Path | None = None,
    path: Path | None = None,
    progress: Progress | None = None,
) -> ElasticityResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is a size that takes about a minute on two cores with the digits.
    seed
        Decides images, weights and the folds of the cross-validation.
    data
        An ``.npz`` file of images; None takes the digits.
    path
        A JSON file to go on from and to keep the numbers in.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> result = run(QUICK)
    >>> len(result.ratios["test-train"]["LANTK"])
    2
    """
    settings = settings or Settings()

    @lru_cache(maxsize=1)  # one pair of classes is all cells of it
    def images(number: int) -> Images:
        found = load_images(settings.train, settings.test, seed, data, settings.pairs[number])
        if not 1 <= settings.pool <= found.x.shape[-1]:
            raise InputError(
                f"pool must be between 1 and the side of the images, {found.x.shape[-1]}. Got {settings.pool}."
            )
        x, x_test = (nn.functional.avg_pool2d(one, settings.pool) for one in (found.x, found.x_test))
        return Images(x, found.y, x_test, found.y_test)

    @lru_cache(maxsize=1)
    def networks(number: int) -> dict[Cell, float]:
        found, name = images(number), f"training on pair {number + 1}"
        net = network(settings, found.x[0].numel(), seed + 7919 * (number + 1))
        labels, labels_test = torch.from_numpy(found.y), torch.from_numpy(found.y_test)
        course = elasticity_course(
            net, found.x, {"pair": labels}, x_test=found.x_test, labels_test={"pair": labels_test},
            method="adam", lr=settings.rate, steps=settings.steps,
            progress=None if progress is None else (lambda _, done, total: progress(name, int(done), int(total))),
        )  # fmt: skip
        assert course.test is not None
        series = zip(KINDS, (course.train[0, 0], course.test[0, 0]), strict=True)
        return {
            (f"{kind} {method}", number, 0): float(values[index])
            for kind, values in series
            for method, index in (("NN-init", 0), ("NN-trained", -1))
        }

    @lru_cache(maxsize=1)
    def kernels(number: int) -> dict[Cell, float]:
        found = images(number)
        x, x_test = found.x.flatten(1).double(), found.x_test.flatten(1).double()
        y, y_test = torch.from_numpy(found.y), torch.from_numpy(found.y_test)
        ntk = infinite_width(_two_layers(x.shape[1], 8, bias=False)).ntk
        generator = torch.Generator().manual_seed(seed)
        aware = LabelAware(ntk, "kr-v1", settings.strengths, ridge=1e-6, generator=generator).fit(x, y)
        result: dict[Cell, float] = {("strength", number, 0): aware.strength}
        kernel: Kernel
        named = {f"LANTK {strength:g}": aware.with_strength(strength) for strength in settings.strengths}
        wide = ExpectedTorchKernel(x.shape[1], _UNITS_AN_INPUT * x.shape[1])
        for method, kernel in {"expected init": wide, "NTK": ntk, "LANTK": aware, **named}.items():
            diag, diag_test = kernel.diag(x), kernel.diag(x_test)
            # A label-aware kernel of large strength may be negative there, and then has no similarities.
            ratios = [math.nan, math.nan]
            if float(torch.cat([diag, diag_test]).min()) > 0:
                cross = local_elasticity(kernel(x_test, x), y_test, y, diag_test, diag)
                ratios = [float(local_elasticity(kernel(x), y)), float(cross)]
            for kind, ratio in zip(KINDS, ratios, strict=True):
                result[f"{kind} {method}", number, 0] = ratio
        return result

    def value(cell: Cell) -> float:
        trained = cell[0].removeprefix("train-train ").removeprefix("test-train ") in ("NN-init", "NN-trained")
        return (networks if trained else kernels)(cell[1])[cell]

    methods = (*METHODS, *(f"LANTK {strength:g}" for strength in settings.strengths))
    names = ["strength", *(f"{kind} {method}" for kind in KINDS for method in methods)]
    cells = [(name, number, 0) for number in range(len(settings.pairs)) for name in names]
    source = {"experiment": "local_elasticity_cifar", "data": data.name if data else "digits"}
    found = fill(cells, value, {**source, **asdict(settings), "seed": seed}, path, None)
    everything = range(len(settings.pairs))
    ratios = {k: {m: tuple(found[f"{k} {m}", i, 0] for i in everything) for m in methods} for k in KINDS}
    return ElasticityResult(settings, seed, ratios, tuple(found["strength", i, 0] for i in everything))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = file_options("local_elasticity_cifar", __doc__)
    options.add_argument("--data", type=Path, help="images as an .npz file (scikit-learn's digits)")
    options.add_argument("--train", type=int, help="training images of each pair (200; 400 with --data)")
    options.add_argument("--test", type=int, help="test images of each pair (100; 200 with --data)")
    options.add_argument("--width", type=int, help="hidden units (853; 2560 with --data; the paper has 40960)")
    options.add_argument("--pool", type=int, help="side of squares of pixels to average first (1; 4 with --data)")
    options.add_argument("--steps", type=int, help="of Adam on all images (300; the paper has 500 epochs)")
    options.add_argument("--rate", type=float, help="learning rate (3e-3; the paper has 3e-4)")
    options.add_argument("--parametrization", choices=("torch", "ntk"), help="of the network (torch)")
    options.add_argument("--strengths", type=float, nargs="+", help="of LANTK (0.001 0.01 0.1 1)")
    chosen = read_file_options(options, arguments)
    try:
        settings = _settings(chosen)
        with progress_bars() as progress:
            result = run(settings, chosen.seed, chosen.data, chosen.output, progress)
    except InputError as error:
        options.error(str(error))
    images = chosen.data is not None
    pairs = [" vs ".join(_NAMES[c] if images else str(c) for c in pair) for pair in settings.pairs]
    figure = new_figure(11, 4.8)
    for ax, kind in zip(figure.subplots(1, 2), KINDS, strict=True):
        plot_accuracies(
            ax, pairs, [[_bar(result.ratios[kind][m][i]) for m in METHODS] for i in range(len(pairs))], METHODS
        )
        ax.set_title(kind)
        ax.set_ylabel("relative ratio RR (%)")
        ax.set_ylim(40, 90)
        ax.tick_params("x", labelrotation=30)
    figure.savefig(chosen.output.with_suffix(".png"), dpi=160)
    for kind in KINDS:
        print_table(_table(result, kind, pairs, images))
    print(f"The numbers: {chosen.output.resolve()}, the figure beside it: {chosen.output.with_suffix('.png').name}")
    return 0


def _bar(ratio: float) -> float:
    return ratio if math.isfinite(ratio) else 0.0


def _table(result: ElasticityResult, kind: str, pairs: Sequence[str], images: bool) -> Table:
    settings = result.settings
    rows = []
    for method, ratios in result.ratios[kind].items():
        cells = [f"{100 * value:.2f}" if math.isfinite(value) else "none" for value in ratios]
        if images and method in METHODS:
            paper = PAPER[kind]["NN-init" if method == "expected init" else method]
            cells = [f"{own} ({other:.2f})" for own, other in zip(cells, paper, strict=False)]
        rows.append([method, *cells])
    rows.append(["LANTK strength", *(f"{value:g}" for value in result.strength)])
    caption = f"RR in %, {kind} pairs, {settings.train} training images, {settings.width} hidden units"
    return Table(["", *pairs], rows, caption + (" (in parentheses Table 3, with 40,960)" if images else ""))


def _settings(chosen: argparse.Namespace) -> Settings:
    quick = chosen.quick
    base = asdict(QUICK if quick else Settings())
    if chosen.data is not None:
        base["pairs"] = _CIFAR[: len(base["pairs"])] if quick else _CIFAR
        base |= {} if quick else {"train": 400, "test": 200, "pool": 4, "width": 2560}
    base |= given(chosen, "train", "test", "pool", "width", "steps", "rate", "parametrization", "strengths")
    settings = Settings(**base)
    for name in ("width", "steps"):
        if getattr(settings, name) < 1:
            raise InputError(f"{name} must be positive. Got {getattr(settings, name)}.")
    return settings


if __name__ == "__main__":
    sys.exit(main())
