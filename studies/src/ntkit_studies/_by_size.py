"""Training with the kernels of a network against the number of images: settings, cells and report of two experiments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from torch import nn

from ._flow_costs import REGIMES, Block, Case, Flow, Inputs, Outcome, Shared, Work, case_cells, share
from ._flow_estimate import Part, flow_estimate
from ._flow_report import (
    PAPER_IMAGES,
    cost_picture,
    cost_table,
    costs,
    dominance,
    growth,
    nngp_beside_ntk,
    pair_seconds,
)  # fmt: skip
from ._images import pair_name
from ._rates import image_shape
from .plots import Section
from .skeleton import Claim, Comparison, Estimate, Report, Results, Run, check_at_least

__all__ = ["Settings", "cells", "estimate", "prepare", "report"]

_YEAR = 365.25 * 24 * 3600
_MILLION = 1_000_000 * 1_000_001 / 2


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    sizes
        Training images, each set the beginning of the next; multiples of the number of classes.
    test
        Test images.
    classes
        Tasks by their number of classes: 2, and all of the data's.
    pair
        The two classes of the binary task.
    steps
        Training time T: that of so many steps of gradient descent on the mean loss at learning rate one, as gradient flow.
        The paper has 10,000 and names no learning rate.
    draws
        Random sets of images.
    empirical
        Training images up to which the tangent kernel of a random network is measured too, which takes longest by far for
        deep networks; None is all sizes, 0 none.
    """

    sizes: tuple[int, ...] = (20, 40, 80)
    test: int = 60
    classes: tuple[int, ...] = (2, 10)
    pair: tuple[int, int] = (0, 1)
    steps: float = 1e4
    draws: int = 3
    empirical: int | None = None

    def __post_init__(self) -> None:
        check_at_least(self, 2, "sizes", "classes", "test")
        check_at_least(self, 1, "draws")
        if self.empirical is not None:
            check_at_least(self, 0, "empirical")

    def sizes_of(self, regime: str) -> list[int]:
        """Return the training images of a kernel."""
        most = max(self.sizes) if self.empirical is None or regime != "empirical NTK" else self.empirical
        return [n for n in self.sizes if n <= most]


def _cases(run: Run[Settings]) -> list[Case]:
    settings = run.settings
    return [
        Case(regime, classes, 0, draw)
        for classes in settings.classes
        for regime in REGIMES
        if settings.sizes_of(regime)
        for draw in range(settings.draws)
    ]


def cells(run: Run[Settings]) -> list[Block | Flow]:
    """Give the blocks of the kernels and the flows."""
    return [cell for case in _cases(run) for cell in case_cells([case], run.settings.sizes_of(case.regime))]


def prepare(run: Run[Settings], network: Callable[[int, int], nn.Module]) -> Shared:
    """Draw images, make kernels of the network, given by the images' channels and its width."""
    settings = run.settings
    inputs = Inputs(settings.sizes, settings.test, settings.pair, run.seed, run.data)
    return share(inputs, settings.steps, run.folder / "kernels", _cases(run), network)


def estimate(run: Run[Settings], network: Callable[[int, int], nn.Module]) -> Estimate:
    """Tell what a run takes."""
    settings = run.settings
    channels, side = image_shape(run.data)
    parts = [
        Part(regime, classes, side, settings.sizes_of(regime), settings.draws)
        for classes in settings.classes
        for regime in REGIMES
        if settings.sizes_of(regime)
    ]
    change = "smaller sizes (--sizes), or networks of finite width on fewer images (--empirical)"
    return flow_estimate(parts, settings.test, channels, settings.steps, network, change)


def report(
    results: Results[Settings, Block | Flow, Work | Outcome],
    network: str,
    figures: Mapping[int, int],
    paper: Mapping[int, float],
) -> Report:
    """Draw seconds and accuracies; extrapolate to a million images.

    Parameters
    ----------
    results
        Of a run.
    network
        Its name.
    figures
        The paper's figure of the task with two classes and of that with more, by 2 and 10.
    paper
        The seconds that the paper extrapolates for the Gram matrix of a million images, for the NTK and by the same keys.
    """
    settings = results.settings
    found = costs(results.values, results.seconds)
    comparisons: list[Comparison] = []
    claims: list[Claim] = []
    sections = []
    for classes in settings.classes:
        here = [one for one in found if one.case.classes == classes]
        task = f"{classes} classes" if classes > 2 else pair_name(settings.pair, results.from_file)
        kind = 10 if classes > 2 else 2
        figure = f"Figure {figures[kind]}" if kind in figures else "No figure of the paper"
        threads = results.manifest.machine.threads
        size = f"up to {max(one.n for one in here):,} images, {threads} {'thread' if threads == 1 else 'threads'}"
        for regime in ("NTK", "NNGP"):
            each = pair_seconds([one for one in here if one.case.regime == regime])
            ours = tuple(seconds * _MILLION / _YEAR for seconds in each)
            # Another machine: never a verdict, whatever the numbers.
            said = paper[kind] / _YEAR if results.from_file and regime == "NTK" and kind in paper else None
            quantity = f"{figure}, {task}, {regime}: years for the Gram matrix of a million images"
            beside = size, f"{PAPER_IMAGES:,} images, GTX 1080Ti" if said is not None else ""
            comparisons.append(Comparison(quantity, ours, said, None, False, *beside))
        both = size, f"up to {PAPER_IMAGES:,} images"
        for claim in (
            growth(here, "n", 2, 0.25, results.from_file, both, PAPER_IMAGES),
            dominance(here, results.from_file, both),
            nngp_beside_ntk(here, results.from_file, both),
        ):
            claims.append(replace(claim, what=f"{task}: {claim.what}"))
        loss = "cross-entropy" if classes > 2 else "binary cross-entropy"
        caption = (
            f"{task}, {loss}, {settings.test} test images, T = {settings.steps:g}; seconds and operations: means of "
            f"{settings.draws} draws; accuracy: mean and standard deviation. The Gram matrix is one triangle."
        )
        picture = cost_picture(
            here,
            "n",
            "Left: seconds of each stage against the number of training images. Right: test accuracy.",
            "Rising lines of seconds on logarithmic axes, and curves of accuracy, one colour per kernel.",
        )
        sections.append(Section(f"{figure}: {task}", [cost_table(here, "n", caption), picture]))
    introduction = (
        "Training by gradient flow with the exact NTK, the exact NNGP kernel and the tangent kernel of a random network with 64 "
        "channels, after section 9 of Golikov et al. 2022, who ran neural-tangents on a GTX 1080Ti. Years for a million "
        "images are the seconds per entry at the largest size times the entries of one triangle. Operations of exact kernels "
        "are those of the layers with ReLU, on the entries of the covariance that are computed; of others, those of products "
        "and convolutions. A fused multiplication and addition counts as two."
    )
    return Report(f"{network} against the number of images", introduction, sections, comparisons, claims)
