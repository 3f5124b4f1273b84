"""Cells of experiments that draw random networks of several widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from .plots import fit_power_law

__all__ = ["WidthCell", "by_width", "mean_exponent", "network_seed", "width_cells"]

R = TypeVar("R")


@dataclass(frozen=True)
class WidthCell:
    """One random network.

    Attributes
    ----------
    curve
        The kind of network.
    width
        Its hidden units or channels; 0 stands for infinitely many, if an experiment says so.
    draw
        Its index among the networks of the same width.
    """

    curve: str
    width: int
    draw: int


def width_cells(curves: Sequence[str], widths: Sequence[int], draws: int) -> list[WidthCell]:
    """Return a cell for each curve, width and draw, in that order."""
    return [WidthCell(curve, width, draw) for curve in curves for width in widths for draw in range(draws)]


def network_seed(seed: int, cell: WidthCell, widths: Sequence[int], draws: int) -> int:
    """Return the seed of a network: the same for all curves, another for each width and draw."""
    return seed + 7919 * (draws * list(widths).index(cell.width) + cell.draw)


def by_width(
    values: Mapping[WidthCell, R], widths: Sequence[int], draws: int, number: Callable[[R], float]
) -> dict[str, NDArray[Any]]:
    """Return the numbers of each curve, shape (widths, draws)."""
    curves = dict.fromkeys(cell.curve for cell in values)
    return {
        curve: np.array([[number(values[WidthCell(curve, w, d)]) for d in range(draws)] for w in widths])
        for curve in curves
    }


def mean_exponent(widths: Sequence[int], values: NDArray[Any]) -> tuple[float, float | None]:
    """Fit a power law of the width to each draw, and return the mean exponent and its standard error over draws.

    The residuals of a single fit to root mean squares do not say how much these vary from one set of networks to the next: a few
    large errors make up most of them, and the fit bends with them. Networks of different widths are independent, so any pairing
    of draws gives the variance of the mean. A rate is no draw: it is compared with the mean.

    Parameters
    ----------
    widths
        At least two.
    values
        Positive, shape (widths, draws).

    Returns
    -------
    tuple
        The mean, and its standard error; None for a single draw.
    """
    exponents = [fit_power_law(widths, column).exponent for column in values.T]
    error = float(np.std(exponents, ddof=1)) / len(exponents) ** 0.5 if len(exponents) > 1 else None
    return float(np.mean(exponents)), error
