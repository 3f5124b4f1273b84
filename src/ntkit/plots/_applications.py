"""Figures of applications: accuracy by rounds of communication, proxies of architectures against accuracy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ntkit.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_proxy", "plot_rounds"]


def plot_rounds(ax: Axes, courses: Mapping[str, Sequence[Sequence[float]]]) -> Axes:
    """Draw accuracy against rounds of communication: the mean over draws, and a band from the worst to the best.

    Parameters
    ----------
    ax
        Where to draw.
    courses
        Accuracies by method, between 0 and 1, shape (draws, rounds + 1); the first is before any round.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_rounds(new_figure().subplots(), {"NTK": [[0.1, 0.7, 0.8]]})
    >>> ax.get_xlabel()
    'rounds'
    """
    for name, values in courses.items():
        percent = 100 * np.asarray(values, dtype=np.float64)
        if percent.ndim != 2:
            raise InputError(f"the courses of {name!r} must have shape (draws, rounds + 1). Got {percent.shape}.")
        rounds = np.arange(percent.shape[1])
        (line,) = ax.plot(rounds, percent.mean(axis=0), label=name, linewidth=1.5)
        ax.fill_between(
            rounds, percent.min(axis=0), percent.max(axis=0), color=line.get_color(), alpha=0.15, linewidth=0
        )
    ax.set_xlabel("rounds")
    ax.set_ylabel("test accuracy (%)")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False, fontsize="small")
    return ax


def plot_proxy(
    ax: Axes, proxy: ArrayLike, accuracy: ArrayLike, groups: Sequence[str], label: str, logarithmic: bool = False
) -> Axes:
    """Draw the accuracy of trained networks against a proxy computed before training, coloured by group.

    Parameters
    ----------
    ax
        Where to draw.
    proxy, accuracy
        Shape (m,); accuracy between 0 and 1. Networks whose proxy is not finite are left out.
    groups
        Group of each network, such as its head.
    label
        Axis label of the proxy.
    logarithmic
        Whether the proxy's axis is logarithmic.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_proxy(new_figure().subplots(), [1.0, 2.0], [0.5, 0.6], ["gap", "flatten"], "condition number")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['gap', 'flatten']
    """
    x, y = np.asarray(proxy, dtype=np.float64), 100 * np.asarray(accuracy, dtype=np.float64)
    if x.shape != y.shape or x.ndim != 1 or len(groups) != len(x):
        raise InputError(
            f"proxy, accuracy and groups must have the same length. Got {x.shape}, {y.shape}, {len(groups)}."
        )
    for group in dict.fromkeys(groups):
        shown = np.isfinite(x) & (np.asarray(groups) == group)
        ax.plot(x[shown], y[shown], "o", label=group, markersize=4, alpha=0.8)
    if logarithmic:
        ax.set_xscale("log")
    ax.set_xlabel(label)
    ax.set_ylabel("test accuracy (%)")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False, fontsize="small")
    return ax
