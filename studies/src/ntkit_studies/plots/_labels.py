"""Figures of label systems: local elasticity during training, relabelled points, accuracies side by side."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntkit.errors import InputError
from ntkit.plots import CurveStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_accuracies", "plot_elasticity", "plot_relabelling"]

_PLUS, _MINUS = "#D55E00", "#0072B2"


def plot_elasticity(
    ax: Axes,
    times: ArrayLike,
    ratios: Mapping[str, ArrayLike],
    styles: Mapping[str, CurveStyle] | None = None,
    xlabel: str = "training time t",
) -> Axes:
    """Draw the relative ratio RR of a network's tangent kernel against training time (Chen, He, Su 2020, Fig. 1b, 1c).

    Parameters
    ----------
    ax
        Where to draw.
    times
        Shape (m,); times, or steps.
    ratios
        RR at each time by name, shape (m,), such as ``{"cat vs dog": course.train[0, 0]}``.
    styles
        How to draw some or all of them. Default None.
    xlabel
        Label of the time axis, default "training time t".

    Returns
    -------
    Axes
        ``ax``; a thin line at one half marks a kernel that does not distinguish the classes.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_elasticity(new_figure().subplots(), [0, 1, 10], {"train": [0.55, 0.6, 0.7], "test": [0.55, 0.58, 0.65]})
    >>> len(ax.lines), ax.get_ylabel()
    (3, 'relative ratio RR (%)')
    """
    t = _numbers("times", times, 1)
    for name, given in ratios.items():
        values = _numbers(f"ratios of {name!r}", given, 1)
        if len(values) != len(t):
            raise InputError(f"ratios of {name!r} must have shape ({len(t)},), one for each time. Got {values.shape}.")
        style = (styles or {}).get(name, CurveStyle())
        ax.plot(t, 100 * values, markersize=4, linewidth=1.6, label=name, **style.options)
    ax.axhline(50, color="black", linewidth=0.6, label="_chance")
    if len(t) and t[0] == 0 and len(t) > 1 and t[-1] > 20 * t[1]:
        ax.set_xscale("symlog", linthresh=t[1])  # the start is at zero
        ax.set_xlim(0, t[-1] * 1.1)
    ax.set_xlabel(xlabel)
    ax.set_ylabel("relative ratio RR (%)")
    ax.legend(frameon=False)
    return ax


def plot_relabelling(ax: Axes, coordinates: ArrayLike, labels: ArrayLike) -> Axes:
    """Draw points in the plane of two directions of a kernel's features, with their labels (Chen, He, Su 2020, Fig. 2).

    Parameters
    ----------
    ax
        Where to draw.
    coordinates
        Inner products with w1 and w2, shape (n, 2): ``Relabelling.coordinates(x)``.
    labels
        Shape (n,), positive or not: the old labels or ``Relabelling.labels(x)``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_relabelling(new_figure().subplots(), [[1, 1], [1, -1]], [-1, 1])
    >>> ax.get_xlabel()
    '⟨w1, φ(x)⟩'
    """
    where, classes = _numbers("coordinates", coordinates, 2), _numbers("labels", labels, 1)
    if where.shape != (len(classes), 2):
        raise InputError(f"coordinates must have shape ({len(classes)}, 2), two for each label. Got {where.shape}.")
    for chosen, marker, color, name in ((classes > 0, "+", _PLUS, "+1"), (classes <= 0, "_", _MINUS, "-1")):
        ax.scatter(where[chosen, 0], where[chosen, 1], marker=marker, color=color, s=28, linewidths=1.2, label=name)
    ax.axvline(0, color="black", linewidth=1.0)
    ax.axhline(0, color="black", linewidth=1.0, linestyle="--")
    ax.set_xlabel("⟨w1, φ(x)⟩")
    ax.set_ylabel("⟨w2, φ(x)⟩")
    ax.legend(frameon=False)
    return ax


def plot_accuracies(
    ax: Axes, names: Sequence[str], accuracy: ArrayLike, systems: Sequence[str], chance: ArrayLike | None = None
) -> Axes:
    """Draw the accuracy of several kernels under several label systems, side by side.

    Parameters
    ----------
    ax
        Where to draw, one group of bars per kernel.
    names
        The k kernels.
    accuracy
        Shape (k, s), between 0 and 1, such as ``Curse.accuracy``.
    systems
        Names of the s label systems.
    chance
        The accuracy of guessing in each system, shape (s,); drawn as lines. Default None.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_accuracies(new_figure().subplots(), ["linear"], [[0.97, 0.51]], ["old labels", "new labels"], [0.5, 0.5])
    >>> len(ax.patches), ax.get_ylabel()
    (2, 'test accuracy (%)')
    """
    values = _numbers("accuracy", accuracy, 2)
    if values.shape != (len(names), len(systems)):
        raise InputError(f"accuracy must have shape ({len(names)}, {len(systems)}). Got {values.shape}.")
    guess = None if chance is None else _numbers("chance", chance, 1)
    if guess is not None and len(guess) != len(systems):
        raise InputError(f"chance must have shape ({len(systems)},). Got {guess.shape}.")
    width = 0.8 / len(systems)
    for number, system in enumerate(systems):
        place = np.arange(len(names)) + (number - (len(systems) - 1) / 2) * width
        ax.bar(place, 100 * values[:, number], width=0.92 * width, color=f"C{number}", label=system)
        if guess is not None:
            ax.axhline(100 * float(guess[number]), color=f"C{number}", linewidth=1.0, linestyle=":", label="_chance")
    ax.set_xticks(np.arange(len(names)), list(names))
    ax.set_ylim(0, 100)
    ax.set_ylabel("test accuracy (%)")
    ax.legend(
        frameon=False, loc="lower center", bbox_to_anchor=(0.5, 1.0), ncols=len(systems)
    )  # the bars fill the axes
    return ax


def _numbers(name: str, values: ArrayLike, ndim: int) -> NDArray[Any]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != ndim or array.size == 0:
        raise InputError(
            f"{name} must have {ndim} dimension{'s' if ndim > 1 else ''} and no axis of length 0. Got {array.shape}."
        )
    if not np.isfinite(array).all():
        raise InputError(f"{name} must be finite. Got NaN or infinite values.")
    return array
