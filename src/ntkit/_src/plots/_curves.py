"""An empty figure, the style of curves, and accuracy against the number of training points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike

from ntkit.errors import InputError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Curves are spread over this factor in n, so that their error bars can be distinguished.
_DODGE = 1.16


@dataclass(frozen=True)
class CurveStyle:
    """The style of a curve.

    Attributes
    ----------
    color
        Any matplotlib colour; None uses the next one in the cycle.
    line
        A matplotlib line style.
    marker
        A matplotlib marker.
    """

    color: str | None = None
    line: str = "-"
    marker: str = "o"

    @property
    def options(self) -> dict[str, Any]:
        """The style as keyword arguments of matplotlib's ``plot``."""
        return {"color": self.color, "linestyle": self.line, "marker": self.marker}


def new_figure(width: float = 7.0, height: float = 4.2) -> Figure:
    """Return an empty matplotlib figure without a backend, width and height in inches.

    Raises
    ------
    MissingDependencyError
        If matplotlib is missing.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise MissingDependencyError("figures need matplotlib: pip install 'ntkit[plot]'") from error
    return Figure(figsize=(width, height), layout="constrained", facecolor="white")


def plot_accuracy(
    ax: Axes,
    sizes: Sequence[int],
    accuracy: Mapping[str, ArrayLike],
    styles: Mapping[str, CurveStyle] | None = None,
) -> Axes:
    """Draw the mean accuracy of each method against training size, with error bars of one standard deviation over training sets.

    Parameters
    ----------
    ax
        Where to draw; the legend is placed to its right.
    sizes
        Numbers of training points, increasing.
    accuracy
        Name and accuracies of each method, shape (len(sizes), draws), between 0 and 1; a single draw has no bars.
    styles
        How to draw some or all of them.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_accuracy(new_figure().subplots(), [20, 40], {"NTK": [[0.7, 0.8], [0.85, 0.95]]})
    >>> ax.get_ylabel()
    'test accuracy (%)'
    """
    shifts = np.geomspace(_DODGE**-0.5, _DODGE**0.5, len(accuracy)) if len(accuracy) > 1 else np.ones(1)
    for (name, values), shift in zip(accuracy.items(), shifts, strict=True):
        percent = 100 * np.asarray(values, dtype=np.float64)
        if percent.ndim != 2 or len(percent) != len(sizes):
            raise InputError(f"accuracies of {name!r} must have shape ({len(sizes)}, draws). Got {percent.shape}.")
        style, mean = (styles or {}).get(name, CurveStyle()), percent.mean(axis=1)
        ax.errorbar(
            np.asarray(sizes) * shift,
            mean,
            yerr=percent.std(axis=1, ddof=1) if percent.shape[1] > 1 else None,
            label=name,
            markersize=5,
            linewidth=1.5,
            elinewidth=1,
            **style.options,
        )
    ax.set_xscale("log")
    ax.set_xticks(list(sizes), [str(size) for size in sizes])
    ax.set_xticks([], minor=True)
    ax.set(xlabel="training images", ylabel="test accuracy (%)")
    ax.grid(axis="y", alpha=0.3)
    ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5), frameon=False)
    return ax
