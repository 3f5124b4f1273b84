"""Seconds, operations and accuracies of :mod:`._flow_costs` as tables, figures and claims."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.plots import CurveStyle, new_figure

from ._flow_costs import REGIMES, Block, Case, Flow, Outcome, Work
from .plots import Picture, Table, fit_power_law, plot_spread
from .skeleton import Claim

__all__ = [
    "PAPER_IMAGES", "Cost", "Sizes", "cost_picture", "cost_table", "costs", "dominance", "growth", "nngp_beside_ntk",
    "pair_seconds",
]  # fmt: skip

PAPER_IMAGES = 10_000
"""The largest training set of Golikov et al. 2022, section 9."""

Sizes = tuple[str, str]
"""The size of a run and the paper's, in words."""

STAGES = ("Gram matrix", "integration", "test kernel")
_STYLES = {"Gram matrix": "-", "integration": ":", "test kernel": "--"}
_COLORS: dict[str, str] = dict(zip(REGIMES, ("tab:blue", "tab:orange", "tab:green"), strict=True))


@dataclass(frozen=True)
class Cost:
    """What training on n images took and gave.

    Attributes
    ----------
    case, n
        Kernel, images and how many of them.
    seconds
        By stage.
    operations
        Of the Gram matrix and of the integration.
    pairs
        Entries of the Gram matrix computed: one triangle.
    outcome
        What training gave.
    """

    case: Case
    n: int
    seconds: Mapping[str, float]
    operations: tuple[float, float]
    pairs: int
    outcome: Outcome


def costs(values: Mapping[Block | Flow, Work | Outcome], seconds: Mapping[Block | Flow, float]) -> list[Cost]:
    """Add up the blocks of each training set."""
    found = []
    for flow, outcome in values.items():
        if not isinstance(flow, Flow) or not isinstance(outcome, Outcome):
            continue
        blocks = [one for one in values if isinstance(one, Block) and one.case == flow.case and one.last <= flow.n]
        own = [one for one in blocks if one.part == "train"]
        works = [work for work in (values[one] for one in own) if isinstance(work, Work)]
        taken = {
            "Gram matrix": sum(seconds[one] for one in own),
            "integration": seconds[flow],
            "test kernel": sum(seconds[one] for one in blocks if one.part == "test"),
        }
        operations = sum(work.operations for work in works), outcome.operations
        found.append(Cost(flow.case, flow.n, taken, operations, sum(work.pairs for work in works), outcome))
    return found


def pair_seconds(found: Sequence[Cost]) -> tuple[float, ...]:
    """Give the seconds per entry of the Gram matrix at the largest size, one per draw."""
    largest = max(one.n for one in found)
    return tuple(one.seconds["Gram matrix"] / one.pairs for one in found if one.n == largest)


def cost_table(found: Sequence[Cost], along: str, caption: str) -> Table:
    """Show seconds, operations and accuracy by regime and size, means over draws.

    Parameters
    ----------
    found
        Of one task.
    along
        What changes: ``"n"`` or ``"side"``.
    caption
        Of the table.
    """
    rows = []
    for regime in dict.fromkeys(one.case.regime for one in found):
        measured = [one for one in found if one.case.regime == regime]
        for at in _places(measured, along):
            here = [one for one in measured if _at(one, along) == at]
            taken = [f"{np.mean([one.seconds[stage] for one in here]):.3g}" for stage in STAGES]
            operations = [f"{np.mean([one.operations[which] for one in here]):.2g}" for which in (0, 1)]
            accuracies = [100 * one.outcome.test for one in here]
            spread = f" ± {np.std(accuracies, ddof=1):.1f}" if len(here) > 1 else ""
            loss = np.mean([one.outcome.loss for one in here])
            rows.append([regime, str(at), *taken, *operations, f"{np.mean(accuracies):.1f}{spread}", f"{loss:.2g}"])
    header = [
        "kernel",
        along,
        *(f"{stage}, s" for stage in STAGES),
        "operations: Gram",
        "integration",
        "test accuracy, %",
        "loss",
    ]
    return Table(header, rows, caption)


def cost_picture(found: Sequence[Cost], along: str, caption: str, alternative: str) -> Picture:
    """Draw seconds of every stage, and test accuracy, against the size."""
    figure = new_figure(11, 4.6)
    left, right = figure.subplots(1, 2)
    where = _places(found, along)
    times: dict[str, NDArray[Any]] = {}
    styles: dict[str, CurveStyle] = {}
    accuracies: dict[str, NDArray[Any]] = {}
    for regime in dict.fromkeys(one.case.regime for one in found):
        for stage in STAGES:
            times[f"{regime}: {stage}"] = _by_size(found, regime, along, lambda one, stage=stage: one.seconds[stage])
            styles[f"{regime}: {stage}"] = CurveStyle(color=_COLORS[regime], line=_STYLES[stage])
        accuracies[regime] = _by_size(found, regime, along, lambda one: 100 * one.outcome.test)
    plot_spread(left, where, times, along, "seconds", styles)
    left.set_xscale("log")
    left.set_yscale("log")
    left.legend(frameon=False, fontsize="x-small")
    plot_spread(
        right,
        where,
        accuracies,
        along,
        "test accuracy, %",
        {name: CurveStyle(color=_COLORS[name]) for name in accuracies},
    )
    right.set_xscale("log")
    return Picture(figure, caption, alternative)


def growth(
    found: Sequence[Cost], along: str, expected: float, reach: float, asked: bool, size: Sizes, paper: int
) -> Claim:
    """Compare the growth of the Gram matrix's seconds with a power, over the last doubling of the size.

    Fixed costs and the work that grows more slowly make an exponent smaller, never larger. So it holds within ``reach``, and
    does not hold above. Below, it does not hold if the sizes reach the paper's; smaller ones cannot tell.

    Parameters
    ----------
    found
        Of one task.
    along
        What grows: ``"n"`` or ``"side"``.
    expected, reach
        The power, and how far from it counts as equal.
    asked
        Whether the data allow an answer.
    size
        The run's size and the paper's, in words.
    paper
        The largest value in the paper.
    """
    picked = [one for one in found if one.case.regime == "NTK"]
    where = _places(picked, along)
    said = f"time of the Gram matrix grows as {along}^{expected:g}"
    what = f"exponent of the Gram matrix's seconds in {along}"
    if len(where) < 2:
        return Claim(what, said, "–", None, *size)
    seconds = _by_size(picked, "NTK", along, lambda one: one.seconds["Gram matrix"])
    first = min(len(where) - 2, next(place for place, at in enumerate(where) if 2 * at >= where[-1]))
    exponents = [fit_power_law(where[first:], column[first:]).exponent for column in seconds.T]
    steps = np.diff(np.log(seconds), axis=0) / np.diff(np.log(where))[:, None]
    local = ", ".join(f"{a} to {b}: {step:.2f}" for (a, b), step in zip(pairwise(where), steps.mean(1), strict=True))
    excess = float(np.mean(exponents)) - expected
    holds = abs(excess) <= reach if excess >= -reach or where[-1] >= paper else None
    words = f"{_mean(exponents)} (each step: {local})"
    return Claim(f"{what}, {where[first]} to {where[-1]}", said, words, holds if asked else None, *size)


def dominance(found: Sequence[Cost], asked: bool, size: Sizes) -> Claim:
    """Ask whether the Gram matrix takes longer than the integration, at the paper's n = 10,000 or above."""
    largest = max(one.n for one in found)
    picked = [one for one in found if one.case.regime == "NTK" and one.n == largest]
    ratios = [one.seconds["Gram matrix"] / one.seconds["integration"] for one in picked]
    said = f"the Gram matrix takes longest at n = {PAPER_IMAGES:,}"
    holds = min(ratios) > 1 if asked and largest >= PAPER_IMAGES else None
    what = f"seconds of the Gram matrix over those of the integration, n = {largest}"
    return Claim(what, said, _mean(ratios), holds, *size)


def nngp_beside_ntk(found: Sequence[Cost], asked: bool, size: Sizes) -> Claim:
    """Ask whether the NNGP kernel takes as long as the NTK, within half, at the largest size."""
    side, n = max((one.case.side, one.n) for one in found)
    seconds = {
        regime: [
            one.seconds["Gram matrix"]
            for one in found
            if one.case.regime == regime and (one.case.side, one.n) == (side, n)
        ]
        for regime in ("NTK", "NNGP")
    }
    ratios = [a / b for a, b in zip(seconds["NNGP"], seconds["NTK"], strict=False)]
    holds = 2 / 3 <= float(np.mean(ratios)) <= 3 / 2 if asked and ratios else None
    place = f"side = {side}" if side else f"n = {n}"
    what = f"seconds of the NNGP kernel over those of the NTK, {place}"
    return Claim(what, "almost the same", _mean(ratios), holds, *size)


def _at(one: Cost, along: str) -> int:
    return one.n if along == "n" else one.case.side


def _places(found: Sequence[Cost], along: str) -> list[int]:
    """Give the sizes that were measured, in order."""
    return sorted({_at(one, along) for one in found})


def _by_size(found: Sequence[Cost], regime: str, along: str, number: Any) -> NDArray[Any]:
    """Give numbers of shape (sizes, draws), NaN where this kernel was not measured."""
    draws = 1 + max(one.case.draw for one in found)
    numbers = np.full((len(_places(found, along)), draws), np.nan)
    for row, at in enumerate(_places(found, along)):
        for one in found:
            if one.case.regime == regime and _at(one, along) == at:
                numbers[row, one.case.draw] = number(one)
    return numbers


def _mean(values: Sequence[float]) -> str:
    if not values:
        return "–"
    return f"{np.mean(values):.3g}" + (f" ± {np.std(values, ddof=1):.2g}" if len(values) > 1 else "")
