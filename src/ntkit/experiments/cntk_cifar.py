"""Kernel regression with the exact kernels of convolutional networks of several depths, on all classes of images.

Table 1 of Arora et al. 2019 at a size of your choice, with the paper's figures beside it. Run it with
``python -m ntkit.experiments.cntk_cifar --data cifar.npz`` (arrays ``x_train`` and ``x_test`` of shape (n, 32, 32, 3), uint8, and
``y_train``, ``y_test``); without data it uses scikit-learn's 8x8 digits. Kernels are kept on disk as they are computed, so a run
that was stopped goes on where it was.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from torch import nn

from ntkit.errors import InputError
from ntkit.estimators import NTKClassifier
from ntkit.kernels import infinite_width
from ntkit.plots import Table

from ._command_line import Progress, given, options_of, print_table, progress_bars, read_options
from ._files import write_json
from ._images import Images, load_images
from ._stored_gram import stored_gram

__all__ = ["PAPER", "DepthResult", "Settings", "main", "network", "run"]

PAPER = {
    "flatten": {2000: {3: 40.94, 4: 42.54, 6: 43.43, 11: 43.42, 21: 42.53},
                50000: {3: 64.47, 4: 65.52, 6: 66.03, 11: 65.90, 21: 64.09}},
    "average": {2000: {3: 49.71, 4: 51.06, 6: 51.73, 11: 51.92, 21: 52.22},
                50000: {3: 70.47, 4: 75.93, 6: 76.73, 11: 77.43, 21: 77.08}},
}  # fmt: skip
"""Accuracy in % in Table 1, by head, training images and depth."""


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    depths
        Layers with weights, the last one included, as in the paper.
    head
        ``"flatten"`` (the paper's CNTK-V) or ``"average"`` (CNTK-GAP, first and last layer fixed).
    train, test
        Images, equally many of each class.
    """

    depths: tuple[int, ...] = (3, 4, 6, 11, 21)
    head: str = "flatten"
    train: int = 500
    test: int = 500


QUICK = Settings(depths=(3, 4), train=50, test=50)


@dataclass(frozen=True)
class DepthResult:
    """What the kernel of one depth gave.

    Attributes
    ----------
    depth
        Layers with weights.
    accuracy
        Share of the test images that kernel regression without ridge classifies rightly.
    kernel_seconds, fit_seconds
        Time on the clock for the kernel's entries, and for the regression.
    """

    depth: int
    accuracy: float
    kernel_seconds: float
    fit_seconds: float


def network(depth: int, head: str, channels: int, side: int) -> nn.Module:
    """Give the paper's network; a width of one serves, since the limit does not depend on it."""
    layers: list[nn.Module] = []
    for number in range(depth - 1):
        layers += [nn.Conv2d(1 if number else channels, 1, 3, padding=1, bias=False), nn.ReLU()]
    if head == "average":
        layers.append(nn.AdaptiveAvgPool2d(1))
    net = nn.Sequential(*layers, nn.Flatten(), nn.Linear(1 if head == "average" else side * side, 1, bias=False))
    if head == "average":
        net[0].requires_grad_(False)
        net[-1].requires_grad_(False)
    return net


def run(
    settings: Settings | None = None,
    seed: int = 0,
    data: Path | None = None,
    folder: Path | None = None,
    progress: Progress | None = None,
) -> list[DepthResult]:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is a size that takes about a minute with the digits.
    seed
        Decides the images.
    data
        An ``.npz`` file of images; None takes the digits.
    folder
        Where kernels are kept, about 4 bytes an entry; None keeps nothing.
    progress
        Called as the computation goes on.

    Examples
    --------
    >>> [result.depth for result in run(QUICK)]
    [3, 4]
    """
    settings = settings or Settings()
    _check(settings)
    if folder is None:
        with TemporaryDirectory() as temporary:
            return run(settings, seed, data, Path(temporary), progress)
    images = load_images(settings.train, settings.test, seed, data)
    folder.mkdir(parents=True, exist_ok=True)
    return [_depth(settings, depth, images, folder, progress) for depth in settings.depths]


def _depth(settings: Settings, depth: int, images: Images, folder: Path, progress: Progress | None) -> DepthResult:
    kernel = infinite_width(network(depth, settings.head, images.x.shape[1], images.x.shape[2])).ntk
    name = f"{settings.head}-{depth}"
    parts = []
    for which, x1, x2 in (("train", images.x, None), ("test", images.x_test, images.x)):
        path = folder / f"{name}-{which}.npy"

        def report(done: int, total: int, label: str = f"depth {depth}, {which}") -> None:
            if progress is not None:
                progress(label, done, total)

        parts.append(stored_gram(kernel, x1, x2, path, name, progress=report))
    (gram, seconds), (cross, test_seconds) = parts
    start = time.perf_counter()
    model = NTKClassifier(kernel="precomputed", calibration=None).fit(np.asarray(gram, np.float64), images.y)
    accuracy = float(np.mean(model.predict(np.asarray(cross, np.float64)) == images.y_test))
    return DepthResult(depth, accuracy, seconds + test_seconds, time.perf_counter() - start)


def _check(settings: Settings) -> None:
    if settings.head not in PAPER:
        raise InputError(f'head must be "flatten" or "average". Got {settings.head!r}.')
    if not settings.depths or min(settings.depths) < 2:
        raise InputError(f"depths must be at least 2: one convolution and the last layer. Got {list(settings.depths)}.")


def table(settings: Settings, results: Sequence[DepthResult], cifar: bool) -> Table:
    """Put the results beside the paper's figures, where the images are those of CIFAR-10."""
    rows = []
    for result in results:
        paper = [PAPER[settings.head][size].get(result.depth) if cifar else None for size in (2000, 50000)]
        error = 100 * (result.accuracy * (1 - result.accuracy) / settings.test) ** 0.5
        rows.append(
            [
                str(result.depth),
                f"{100 * result.accuracy:.2f} +- {error:.1f}",
                *("-" if value is None else f"{value:.2f}" for value in paper),
                f"{result.kernel_seconds:.0f}",
                f"{result.fit_seconds:.0f}",
            ]
        )
    header = ["depth", "accuracy", "paper, 2,000 images", "paper, 50,000", "kernel, s", "fit, s"]
    caption = (
        f"Test accuracy in % with {settings.train} training and {settings.test} test images, head: {settings.head}"
    )
    return Table(header, rows, caption)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status."""
    options = options_of(
        "cntk_cifar",
        __doc__,
        "ntkit-cntk",
        "a folder for kernels and results (%(default)s); one of the same settings is gone on from",
    )
    options.add_argument("--data", type=Path, help="images as an .npz file (scikit-learn's digits)")
    options.add_argument("--train", type=int, help="training images (500)")
    options.add_argument("--test", type=int, help="test images (500)")
    options.add_argument("--depths", type=int, nargs="+", help="layers with weights (3 4 6 11 21)")
    options.add_argument("--head", choices=list(PAPER), help="flatten")
    chosen = read_options(options, arguments)
    settings = replace(QUICK if chosen.quick else Settings(), **given(chosen, "train", "test", "depths", "head"))
    try:
        with progress_bars() as progress:
            results = run(settings, chosen.seed, chosen.data, chosen.output, progress)
    except (InputError, OSError) as error:
        options.error(str(error))
    write_json(chosen.output / "results.json", [asdict(result) for result in results])
    print_table(table(settings, results, chosen.data is not None))
    print(f"Kernels and numbers: {chosen.output.resolve()}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
