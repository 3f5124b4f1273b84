"""Figures of diagnostics: eigenvalues that decay as a power, and curves with their spread over draws."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ntkit.errors import InputError

from ._curves import CurveStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_eigenvalue_decay", "plot_spread"]


def plot_eigenvalue_decay(
    ax: Axes,
    degrees: ArrayLike,
    eigenvalues: Mapping[str, ArrayLike],
    styles: Mapping[str, CurveStyle] | None = None,
    xlabel: str = "degree k",
) -> Axes:
    """Draw eigenvalues against degree or frequency on logarithmic axes; values at or below zero are left out.

    Parameters
    ----------
    ax
        Where to draw.
    degrees
        Shape (m,); zero is left out.
    eigenvalues
        By name, shape (m,), such as ``{"p = 3": spectrum.eigenvalues}``; set those below their error to zero.
    styles
        How to draw some or all of them. Default None.
    xlabel
        Default "degree k".

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_eigenvalue_decay(new_figure().subplots(), [0, 1, 2], {"p = 2": [1.0, 0.5, 0.1]})
    >>> ax.get_xscale(), ax.get_yscale()
    ('log', 'log')
    """
    k = np.asarray(degrees, dtype=np.float64)
    for name, given in eigenvalues.items():
        values = np.asarray(given, dtype=np.float64)
        if k.ndim != 1 or values.shape != k.shape:
            raise InputError(f"eigenvalues of {name!r} must have the shape of degrees, {k.shape}. Got {values.shape}.")
        shown = (k > 0) & (values > 0)
        style = (styles or {}).get(name, CurveStyle(marker=""))
        ax.plot(
            k[shown],
            values[shown],
            color=style.color,
            linestyle=style.line,
            marker=style.marker,
            markersize=3,
            label=name,
        )
    ax.set_xscale("log")
    ax.set_yscale("log")
    ax.set_xlabel(xlabel)
    ax.set_ylabel("eigenvalue")
    ax.legend(frameon=False)
    return ax


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
        (line,) = ax.plot(
            where,
            values.mean(1),
            color=style.color,
            linestyle=style.line,
            marker=style.marker,
            markersize=4,
            label=name,
        )
        ax.fill_between(where, values.min(1), values.max(1), color=line.get_color(), alpha=0.2, linewidth=0)
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.legend(frameon=False)
    return ax
