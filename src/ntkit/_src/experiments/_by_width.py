"""Cells of experiments that draw random networks of several widths."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["WidthCell", "by_width", "network_seed", "width_cells"]

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
