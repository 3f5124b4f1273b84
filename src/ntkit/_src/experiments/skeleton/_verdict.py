"""Our number and the paper's, and whether they agree: decided by one rule, never by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.stats import t as student

from ntkit._src.plots import Table

__all__ = ["Comparison", "Verdict", "comparison_table", "half_width", "verdict"]

_LEVEL = 0.95


class Verdict(Enum):
    """How our number compares with the paper's; the value is the sentence that tables show."""

    INSIDE = "inside the spread"
    ABOVE = "ours is higher, outside the spread"
    BELOW = "ours is lower, outside the spread"
    OTHER_SETTINGS = "not comparable: other settings than the paper's"
    NO_SPREAD = "no verdict: one value without a spread"
    NO_FIGURE = "the paper has no figure"


@dataclass(frozen=True)
class Comparison:
    """One number of a paper and ours.

    Attributes
    ----------
    quantity
        What the number is, such as ``"CNTK-V, depth 3, accuracy in %"``.
    ours
        Our values, one per draw; at least one.
    paper
        The paper's value; None if it has none.
    error
        Standard error of ours if there is a single value, such as that of a fit or of a finite test set; otherwise None.
    comparable
        Whether ours was computed with the paper's data and settings.
    """

    quantity: str
    ours: tuple[float, ...]
    paper: float | None = None
    error: float | None = None
    comparable: bool = True

    @property
    def mean(self) -> float:
        """The mean of ours."""
        return float(np.mean(self.ours))

    @property
    def spread(self) -> float | None:
        """The standard deviation of ours over draws, or the error of a single value."""
        return float(np.std(self.ours, ddof=1)) if len(self.ours) > 1 else self.error

    @property
    def verdict(self) -> Verdict:
        """How the two compare."""
        return verdict(self.ours, self.paper, self.error, self.comparable)


def verdict(ours: Sequence[float], paper: float | None, error: float | None = None, comparable: bool = True) -> Verdict:
    r"""Decide whether a published number agrees with ours.

    If the paper's number is one more draw of what we drew n times, with mean m and sample standard deviation s, then
    it lies in :math:`m \pm t_{n-1} s \sqrt{1 + 1/n}` with probability 95 %, t the quantile of Student's distribution.
    A single value with a standard error e has the interval :math:`m \pm 1.96 e` instead.

    Parameters
    ----------
    ours
        One value per draw.
    paper
        The published number; None if there is none.
    error
        Standard error of a single value; not used if there are several.
    comparable
        Whether ours was computed with the paper's data and settings.

    Examples
    --------
    >>> verdict([44.0, 45.0, 46.0], 43.4)
    <Verdict.INSIDE: 'inside the spread'>
    >>> verdict([44.0, 44.1, 44.2], 43.4).name
    'ABOVE'
    """
    if paper is None:
        return Verdict.NO_FIGURE
    if not comparable:
        return Verdict.OTHER_SETTINGS
    reach = half_width(ours, error)
    if reach is None or not math.isfinite(reach):
        return Verdict.NO_SPREAD
    difference = float(np.mean(ours)) - paper
    if abs(difference) <= reach:
        return Verdict.INSIDE
    return Verdict.ABOVE if difference > 0 else Verdict.BELOW


def half_width(ours: Sequence[float], error: float | None = None) -> float | None:
    """Return half the width of the interval of :func:`verdict`, or None for a single value without an error."""
    n = len(ours)
    if n > 1:
        quantile = float(student.ppf((1 + _LEVEL) / 2, n - 1))
        return quantile * float(np.std(ours, ddof=1)) * math.sqrt(1 + 1 / n)
    return None if error is None else 1.96 * error


def comparison_table(comparisons: Sequence[Comparison]) -> Table:
    """Show the paper's numbers, ours, the spread and the verdicts."""
    rows = []
    for one in comparisons:
        paper = "–" if one.paper is None else f"{one.paper:.4g}"
        spread = "–" if one.spread is None else f"{one.spread:.2g}"
        rows.append([one.quantity, paper, f"{one.mean:.4g}", spread, str(len(one.ours)), one.verdict.value])
    caption = (
        "The paper's value and ours: mean and standard deviation over draws (for a single value its standard error). "
        "Inside the spread: the paper's value lies in the 95 % interval for one more draw of ours."
    )
    return Table(["quantity", "paper", "ours", "spread", "draws", "verdict"], rows, caption)
