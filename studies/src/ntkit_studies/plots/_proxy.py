"""Figures of applications: proxies of architectures against accuracy."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike

from ntkit.errors import InputError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_proxy"]


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
