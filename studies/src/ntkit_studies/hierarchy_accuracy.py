"""LANTK-NTH as a classifier: its accuracy beside that of the NTK and of LANTK-HR, on the same images.

Chen, He and Su 2020 give no accuracy of LANTK-NTH, whose cost they call prohibitive, and conjecture that it would do as LANTK-
HR does (section 3). Here E K4 is contracted with few pairs of vectors instead of being formed. All kernels belong to one two-
layer network, trained to the end; kernel regression solves the indefinite systems as they are. Of more than two classes each
has a hierarchy of its own, whose labels say whether a point is of it. The label part is 1 / width, and every width is one
factor. Nothing is chosen on test images: all widths are shown, and the claim is about one that was fixed beforehand. Images are
scaled by one number to a mean square norm of one. Two of scikit-learn's 8x8 digits, or planes and ships with ``--data
cifar.npz``.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor, nn

from ntkit import LabelAware, TangentHierarchy, solve
from ntkit.errors import InputError
from ntkit.plots import new_figure

from ._by_seed import Seed, by_seed, is_positive
from ._images import FILES, images_size, load_images
from .plots import plot_accuracies
from .skeleton import Claim, Run, Size, check_at_least

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["EXPERIMENT", "QUICK", "Accuracies", "Settings", "measure"]

_CLAIMED = 1024  # the width of the claim, as in TangentHierarchy
_ENOUGH = (
    500  # training images, below which a pair of digits is too easy, and neurons too noisy, to answer the conjecture
)


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    classes
        Of the images, two or more.
    train
        Training images, equally many of each class; several sizes.
    test
        Test images.
    pool
        Average the pixels of squares of this side first.
    activation
        Of the network.
    widths
        Of the network.
    neurons
        Random ones, for the expectations.
    ridge
        Of all kernel regressions, relative to trace(K)/n.
    strength
        Of LANTK-HR (KR-V1).
    seeds
        How many draws of images and neurons.
    """

    classes: tuple[int, ...] = (3, 8)
    train: tuple[int, ...] = (50, 100)
    test: int = 200
    pool: int = 1
    activation: str = "erf"
    widths: tuple[int, ...] = (256, _CLAIMED, 4096)
    neurons: int = 4096
    ridge: float = 1e-3
    strength: float = 0.1
    seeds: int = 5

    def __post_init__(self) -> None:
        check_at_least(self, 1, "pool", "widths", "neurons", "seeds")
        check_at_least(self, 4, "train")
        check_at_least(self, 2, "test")
        if len(set(self.classes)) < 2 or len(set(self.classes)) < len(self.classes):
            raise InputError(f"classes must be two different ones or more. Got {list(self.classes)}.")


QUICK = Settings(train=(12,), test=20, widths=(64, _CLAIMED), neurons=256, seeds=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size; planes and ships of a file."""
    if size == "quick":
        return QUICK
    full = Settings(train=(500, 2000), test=2000, neurons=2**16)
    found = Settings() if size == "default" else full
    return Settings(**{**vars(found), "classes": (0, 8), "pool": 2}) if from_file else found


@dataclass(frozen=True)
class Accuracies:
    """One draw.

    Attributes
    ----------
    accuracy
        By training images, then by kernel: ``"NTK"``, ``"LANTK-HR"`` and ``"LANTK-NTH 1024"`` of every width.
    share
        By training images: mean absolute label part of width 1024 over that of the rest of the kernel, on average over classes.
    error
        By training images: largest standard error of a label part on the training images, relative to its largest entry.
    """

    accuracy: dict[str, dict[str, float]]
    share: dict[str, float]
    error: dict[str, float]


def measure(run: Run[Settings], cell: Seed) -> Accuracies:
    """Classify the test images of one draw with every kernel."""
    settings = run.settings
    accuracy: dict[str, dict[str, float]] = {}
    share, error = {}, {}
    for n in settings.train:
        found = load_images(n, settings.test, cell.seed, run.data, settings.classes)
        x, x_test = (
            nn.functional.avg_pool2d(one, settings.pool).flatten(1).double() for one in (found.x, found.x_test)
        )
        scale = float(x.square().sum(1).mean()) ** 0.5
        numbers, y, y_test = _numbers(found.y, found.y_test)
        accuracy[str(n)], share[str(n)], error[str(n)] = _classify(
            settings, (x / scale, y), (x_test / scale, y_test), len(numbers), cell.seed
        )
        run.progress(f"seed {cell.seed}", settings.train.index(n) + 1, len(settings.train))
    return Accuracies(accuracy, share, error)


def _numbers(y: object, y_test: object) -> tuple[Tensor, Tensor, Tensor]:
    both, codes = torch.unique(
        torch.from_numpy(np.concatenate([np.asarray(y), np.asarray(y_test)])), return_inverse=True
    )
    return both, codes[: len(np.asarray(y))], codes[len(np.asarray(y)) :]


def _classify(
    settings: Settings, train: tuple[Tensor, Tensor], test: tuple[Tensor, Tensor], classes: int, seed: int
) -> tuple[dict[str, float], float, float]:
    (x, y), (x_test, y_test) = train, test
    targets = torch.nn.functional.one_hot(y, classes).double() - 1 / classes

    def scores(gram: Tensor, cross: Tensor, target: Tensor) -> Tensor:
        return cross @ solve(gram, target, method="indefinite", ridge=settings.ridge).value

    def right(values: Tensor) -> float:
        return float((values.argmax(1) == y_test).double().mean())

    columns: dict[int, list[Tensor]] = {width: [] for width in settings.widths}
    shares, errors = [], []
    # Two classes have one hierarchy: the label part is quadratic in the labels.
    for number in range(1 if classes == 2 else classes):
        generator = torch.Generator().manual_seed(seed)
        nth = TangentHierarchy(
            settings.activation, width=_CLAIMED, n_samples=settings.neurons, ridge=settings.ridge, generator=generator
        ).fit(x, 2.0 * (y == number).double() - 1)
        free, cross = nth.label_free(x), nth.label_free(x_test, x)
        part, part_test = nth.label_part(x), nth.label_part(x_test, x)
        shares.append(float(part.abs().mean() / free.abs().mean()))
        errors.append(nth.accuracy_.error)
        target = targets if classes == 2 else targets[:, number : number + 1]
        for width in settings.widths:
            factor = _CLAIMED / width
            columns[width].append(scores(free + factor * part, cross + factor * part_test, target))
        if number == 0:
            base, base_cross, frozen = free, cross, nth.at(0.0)
    aware = LabelAware(frozen, "kr-v1", settings.strength)
    gram = aware.fit_gram(x, y, base)
    found = {
        "NTK": right(scores(base, base_cross, targets)),
        "LANTK-HR": right(scores(gram, aware.from_base(base_cross, x_test, x), targets)),
    }
    found |= {f"LANTK-NTH {width}": right(torch.cat(values, 1)) for width, values in columns.items()}
    return found, float(np.mean(shares)), max(errors)


def draw(settings: Settings, records: Sequence[Accuracies]) -> Mapping[str, Figure]:
    """Draw the mean accuracies."""
    names = list(records[0].accuracy[str(settings.train[0])])
    bars = [[float(np.mean([one.accuracy[str(n)][name] for one in records])) for name in names] for n in settings.train]
    figure = new_figure(8, 4.4)
    axes = figure.subplots()
    plot_accuracies(axes, [f"{n} images" for n in settings.train], bars, names)
    axes.set_ylabel("test accuracy")
    return {"Test accuracy of kernel regression with the kernels of one two-layer network, mean over draws": figure}


def claims(settings: Settings, records: Sequence[Accuracies]) -> list[Claim]:
    """Ask whether LANTK-NTH of the width fixed beforehand beats the NTK, and show every width beside it."""
    found = []
    for n in settings.train:
        rows = [one.accuracy[str(n)] for one in records]
        size = f"{images_size(n, settings.test)}, {settings.neurons:,} neurons, {len(records)} draws"
        paper_size = images_size(10_000, 2_000)
        base = 100 * np.array([row["NTK"] for row in rows])
        for name in rows[0]:
            gains = 100 * np.array([row[name] for row in rows]) - base
            conjectured = name == f"LANTK-NTH {_CLAIMED}"
            holds = is_positive(gains.tolist()) if conjectured and n >= _ENOUGH else None
            error = gains.std(ddof=1) / len(gains) ** 0.5 if len(gains) > 1 else float("nan")
            text = f"{base.mean():.2f}" if name == "NTK" else f"{gains.mean():+.2f} ± {error:.2f}"
            what = (
                f"NTK, {n} images: accuracy in %"
                if name == "NTK"
                else f"{name} less NTK, {n} images, in points of accuracy"
            )
            said = "we conjecture that similar results would hold for K(NTH)" if conjectured else "-"
            found.append(Claim(what, said, text, holds, size, paper_size))
        mean_share = 100 * np.mean([one.share[str(n)] for one in records])
        worst = 100 * max(one.error[str(n)] for one in records)
        what = f"{n} images: label part of width {_CLAIMED:,} over the kernel, mean sizes in %; its largest relative error in %"
        found.append(Claim(what, "-", f"{mean_share:.1f}; {worst:.0f}", None, size, paper_size))
    return found


EXPERIMENT = by_seed(
    globals(),
    "hierarchy_accuracy",
    "Accuracy of LANTK-NTH, the label-aware kernel of the tangent hierarchy, beside the NTK and LANTK-HR.",
    "Chen, He, Su 2020, section 3: a conjecture, no figure of theirs",
    grows=("train", "test", "neurons", "seeds"),
    paper={},
    embedded="digits",
    files=FILES,
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
