"""Curves with their spread over draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ntkit.errors import InputError
from ntkit.plots import CurveStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_spread"]


def plot_spread(
    ax: Axes,
    x: ArrayLike,
    curves: Mapping[str, ArrayLike],
    xlabel: str,
    ylabel: str,
    styles: Mapping[str, CurveStyle] | None = None,
) -> Axes:
    """Draw the mean of each curve over draws, and a band from the smallest to the largest draw.

    Parameters
    ----------
    ax
        Where to draw.
    x
        Shape (m,).
    curves
        By name, shape (m, draws).
    xlabel, ylabel
        Of the axes.
    styles
        How to draw some or all of them. Default None.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_spread(new_figure().subplots(), [0, 1], {"barrier": [[0.3, 0.5], [0.0, 0.1]]}, "epoch", "error")
    >>> ax.lines[0].get_ydata().tolist()
    [0.4, 0.05]
    """
    where = np.asarray(x, dtype=np.float64)
    for name, given in curves.items():
        values = np.asarray(given, dtype=np.float64)
        if where.ndim != 1 or values.ndim != 2 or len(values) != len(where):
            raise InputError(f"curve {name!r} must have shape ({where.size}, draws). Got {values.shape}.")
        style = (styles or {}).get(name, CurveStyle())
        (line,) = ax.plot(where, values.mean(1), markersize=4, label=name, **style.options)
        ax.fill_between(where, values.min(1), values.max(1), color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.legend(frameon=False)
    return ax
