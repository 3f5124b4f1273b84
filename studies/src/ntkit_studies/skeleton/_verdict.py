"""Our number and the paper's, and whether they agree: decided by one rule, never by hand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import numpy as np
from scipy.stats import t as student

from ..plots import Table

__all__ = ["Comparison", "Verdict", "both_sizes", "comparison_table", "half_width", "verdict"]

_LEVEL = 0.95


class Verdict(Enum):
    """What a row says of the paper's number or sentence that it quotes; the value is what tables show.

    Every row that quotes a paper has one of these. A number is inside or outside; a sentence holds or does not; a run too small
    for either says so.
    """

    INSIDE = "inside"
    WIDE = "inside, but the spread is above a tenth of the value"
    OUTSIDE = "outside"
    HOLDS = "holds"
    FAILS = "does not hold"
    SMALLER = "smaller than the paper's (not compared)"
    UNDECIDED = "undecided: no spread, or one wider than the value"
    OURS = "ours"


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
        Whether the run is as large as the paper's in all that the number depends on, such as training and test images.
    size, paper_size
        The run's size and the paper's, in words, such as ``"500 images"``; the latter is needed where they differ.
    tolerance
        Of a number without sampling, whose data are the paper's own to the last image: how far it may be from ours, in place of
        an interval. None for all others.
    """

    quantity: str
    ours: tuple[float, ...]
    paper: float | None = None
    error: float | None = None
    comparable: bool = True
    size: str = ""
    paper_size: str = ""
    tolerance: float | None = None

    @property
    def mean(self) -> float:
        """The mean of ours."""
        return float(np.mean(self.ours))

    @property
    def spread(self) -> float | None:
        """The standard deviation of ours over draws, or the error of a single value; the tolerance if nothing is sampled."""
        found = _spread(self.ours, self.error) if self.tolerance is None else self.tolerance
        return None if math.isnan(found) else found

    @property
    def verdict(self) -> Verdict:
        """How the two compare."""
        if self.tolerance is not None and self.paper is not None and self.comparable:
            return Verdict.INSIDE if abs(self.mean - self.paper) <= self.tolerance else Verdict.OUTSIDE
        return verdict(self.ours, self.paper, self.error, self.comparable)


def verdict(ours: Sequence[float], paper: float | None, error: float | None = None, comparable: bool = True) -> Verdict:
    r"""Decide whether a published number agrees with ours.

    If the paper's number is one more draw of what we drew n times, with mean m and sample standard deviation s, then
    it lies in :math:`m \pm t_{n-1} s \sqrt{1 + 1/n}` with probability 95 %, t the quantile of Student's distribution.
    A single value with a standard error e has the interval :math:`m \pm 1.96 e` instead.

    A number that is inside only because the interval is wide does not agree with anything: the spread (s, or e) is compared with
    the size of the paper's number. Above a tenth of it the verdict says so, and a wider one than the number decides nothing.

    Parameters
    ----------
    ours
        One value per draw.
    paper
        The published number; None if there is none.
    error
        Standard error of a single value; not used if there are several.
    comparable
        Whether the run is as large as the paper's in all that the number depends on.

    Examples
    --------
    >>> verdict([44.0, 45.0, 46.0], 43.4)
    <Verdict.INSIDE: 'inside'>
    >>> verdict([44.0, 44.1, 44.2], 43.4).value
    'outside'
    >>> verdict([1.0, -3.0, 4.0], 2.0).value
    'undecided: no spread, or one wider than the value'
    """
    if paper is None:
        return Verdict.OURS
    if not comparable:
        return Verdict.SMALLER
    reach, mean = half_width(ours, error), float(np.mean(ours))
    if reach is None or not math.isfinite(reach):
        return Verdict.UNDECIDED
    if abs(mean - paper) > reach:
        return Verdict.OUTSIDE
    spread, scale = _spread(ours, error), abs(paper) or abs(mean)
    if spread > scale:
        return Verdict.UNDECIDED
    return Verdict.WIDE if spread > scale / 10 else Verdict.INSIDE


def _spread(ours: Sequence[float], error: float | None) -> float:
    return float(np.std(ours, ddof=1)) if len(ours) > 1 else float("nan") if error is None else error


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
        numbers = paper, f"{one.mean:.4g}", spread, str(len(one.ours))
        rows.append([one.quantity, *numbers, both_sizes(one.size, one.paper_size), one.verdict.value])
    caption = (
        "The paper's value and ours: mean and standard deviation over draws (for a single value its standard error). "
        "Inside: the paper's value lies in the 95 % interval for one more draw of ours; where nothing is sampled, it is as "
        "close as the spread says. Ours: the paper has no such figure."
    )
    return Table(["quantity", "paper", "ours", "spread", "draws", "size", "verdict"], rows, caption)


def both_sizes(run: str, paper: str) -> str:
    """Return the size of a run, and the paper's if it is another."""
    return f"{run} (paper: {paper})" if paper and paper != run else run
