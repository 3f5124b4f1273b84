"""Time, operations and accuracy of training with the kernels of the Myrtle network, against the images' resolution.

Figure 8 of Golikov et al. 2022: two classes of STL-10 with the binary cross-entropy. Run it with
``python -m ntkit_studies myrtle_by_resolution --data stl.npz``; without data it uses scikit-learn's 8x8 digits. Images are
resized to every side; the report says from which, since smaller ones such as CIFAR-10's hold no more when they are enlarged.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass

import numpy as np

from ntkit.errors import InputError

from ._deep_networks import myrtle
from ._flow_costs import REGIMES, Block, Case, Flow, Inputs, Outcome, Shared, Work, case_cells, share
from ._flow_costs import compute as compute_cost
from ._flow_estimate import Part, flow_estimate
from ._flow_report import cost_picture, cost_table, costs, growth, nngp_beside_ntk, pair_seconds
from ._images import FILES, load_images
from ._rates import image_shape
from .plots import Section
from .skeleton import Comparison, Estimate, Report, Results, Run, Size, check_at_least, experiment_of

__all__ = ["EXPERIMENT", "PAPER_DAYS", "QUICK", "Original", "Pixels", "Settings", "main", "run"]

PAPER_DAYS = 150.0
"""Section 9, for 500 images of 224 pixels and a GTX 1080Ti: "around 150 days of computations"."""

_DAY = 24 * 3600
_PAIRS = 500 * 501 // 2
_PAPER_SIDE = 96
_PAPER_SIZE = f"500 images of STL-10, up to {_PAPER_SIDE} pixels"


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    sides
        Of the images in pixels, multiples of four, to which the data are resized.
    train, test
        Images, even numbers.
    pair
        The two classes.
    steps
        Training time T: that of so many steps of gradient descent on the mean loss at learning rate one, as gradient flow.
        The paper has 10,000 and names no learning rate.
    draws
        Random sets of images.
    """

    sides: tuple[int, ...] = (8, 16, 32)
    train: int = 40
    test: int = 40
    pair: tuple[int, int] = (0, 1)
    steps: float = 1e4
    draws: int = 3

    def __post_init__(self) -> None:
        check_at_least(self, 2, "train", "test")
        check_at_least(self, 1, "draws")
        check_at_least(self, 4, "sides")
        odd = [side for side in self.sides if side % 4]
        if odd:
            raise InputError(f"sides must be multiples of 4, since the network pools twice. Got {odd[0]}.")


QUICK = Settings(sides=(4, 8, 16), train=16, test=16, draws=2)


def sizes(size: Size, from_file: bool) -> Settings:
    """Give the settings of a size."""
    full = Settings(sides=(8, 16, 32, 48, 64, 96), train=500, test=100)
    return {"quick": QUICK, "default": Settings(), "full": full}[size]


def _cases(run: Run[Settings]) -> list[Case]:
    settings = run.settings
    return [
        Case(regime, 2, side, draw) for side in settings.sides for regime in REGIMES for draw in range(settings.draws)
    ]


@dataclass(frozen=True)
class Original:
    """A cell: the images before they are resized."""


@dataclass(frozen=True)
class Pixels:
    """What the images were before.

    Attributes
    ----------
    side
        In pixels.
    """

    side: int


def cells(run: Run[Settings]) -> list[Block | Flow | Original]:
    """Give the images' own side, the blocks of the kernels and the flows."""
    return [Original(), *case_cells(_cases(run), (run.settings.train,))]


def prepare(run: Run[Settings]) -> Shared:
    """Draw images, make kernels."""
    settings = run.settings
    inputs = Inputs((settings.train,), settings.test, settings.pair, run.seed, run.data)
    return share(inputs, settings.steps, run.folder / "kernels", _cases(run), myrtle)


def compute(shared: Shared, cell: Block | Flow | Original) -> Work | Outcome | Pixels:
    """Compute a block, train, or look at the images."""
    if not isinstance(cell, Original):
        return compute_cost(shared, cell)
    inputs = shared.inputs
    return Pixels(load_images(2, 2, inputs.seed, inputs.data, inputs.pair).x.shape[-1])


def report(results: Results[Settings, Block | Flow | Original, Work | Outcome | Pixels]) -> Report:
    """Draw seconds and accuracies; extrapolate to 224 pixels."""
    settings, seconds = results.settings, results.seconds
    values: dict[Block | Flow, Work | Outcome] = {}
    for cell, value in results.values.items():
        if not isinstance(cell, Original) and not isinstance(value, Pixels):
            values[cell] = value
    found = costs(values, {cell: seconds[cell] for cell in values})
    side = max(settings.sides)
    original = results.values[Original()]
    assert isinstance(original, Pixels)
    source = _source(settings.sides, original.side, results.data.name if results.data is not None else "")
    size = f"{settings.train} images, up to {side} pixels ({source})"
    each = pair_seconds([one for one in found if one.case.regime == "NTK" and one.case.side == side])
    days = tuple(float(np.float64(one) * (224 / side) ** 4 * _PAIRS / _DAY) for one in each)
    quantity = "Figure 8, NTK: days for the Gram matrix of 500 images of 224 pixels"
    # Another machine: never a verdict, whatever the numbers.
    said = PAPER_DAYS if results.from_file else None
    beside = size, f"{_PAPER_SIZE}, GTX 1080Ti" if results.from_file else ""
    comparison = Comparison(quantity, days, said, None, False, *beside)
    caption = (
        f"{settings.train} training and {settings.test} test images, binary cross-entropy, T = {settings.steps:g}; seconds and "
        f"operations: means of {settings.draws} draws; accuracy: mean and standard deviation. The Gram matrix is one triangle."
    )
    picture = cost_picture(
        found,
        "side",
        "Left: seconds of each stage against the side of the images in pixels. Right: test accuracy.",
        "Rising lines of seconds on logarithmic axes, and curves of accuracy, one colour per kernel.",
    )
    introduction = (
        "Training by gradient flow with the exact NTK, the exact NNGP kernel and the tangent kernel of a random network with 64 "
        "channels on images of several sizes, after Fig. 8 of Golikov et al. 2022, who ran neural-tangents on a GTX 1080Ti. "
        f"Days at 224 pixels are the seconds per entry at {side} pixels times (224 / {side})^4. Images: {source}. The paper has "
        f"two classes of STL-10, {_PAPER_SIDE} pixels wide."
    )
    both = size, _PAPER_SIZE
    claims = [
        growth(found, "side", 4, 0.5, results.from_file, both, _PAPER_SIDE),
        nngp_beside_ntk(found, results.from_file, both),
    ]
    section = Section("Figure 8", [cost_table(found, "side", caption), picture])
    return Report("The Myrtle network against resolution", introduction, [section], [comparison], claims)


def estimate(run: Run[Settings]) -> Estimate:
    """Tell what a run takes."""
    settings = run.settings
    channels, _ = image_shape(run.data)
    parts = [Part(regime, 2, side, (settings.train,), settings.draws) for side in settings.sides for regime in REGIMES]
    change = "smaller images (--sides) or fewer of them (--train)"
    return flow_estimate(parts, settings.test, channels, settings.steps, myrtle, change)


def _source(sides: tuple[int, ...], own: int, name: str) -> str:
    """Say what the images were before they were resized."""
    larger = [str(side) for side in sides if side > own]
    enlarged = f", enlarged to {' and '.join(larger)}" if larger else ""
    return f"{name}, {own} pixels wide{enlarged}"


EXPERIMENT = experiment_of(
    globals(),
    name="myrtle_by_resolution",
    title="Time, operations and accuracy of training with the kernels of the Myrtle network, by resolution.",
    reproduces="Golikov et al. 2022, Fig. 8",
    embedded="digits",
    files=FILES,
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
