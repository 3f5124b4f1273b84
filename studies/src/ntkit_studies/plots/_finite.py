"""Finite networks and their infinite limit: errors that fall as a power of the width, and accuracies that approach a line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from ntkit.errors import InputError
from ntkit.plots import CurveStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["PowerLaw", "fit_power_law", "plot_random_features", "plot_width_errors"]


class PowerLaw(NamedTuple):
    """factor x^exponent, with the standard error of the exponent (NaN for two points)."""

    factor: float
    exponent: float
    error: float


def fit_power_law(x: Sequence[float], y: ArrayLike) -> PowerLaw:
    """Fit a power law by least squares on logarithms.

    Parameters
    ----------
    x
        Positive, at least two different values.
    y
        Positive, shape (len(x),) or (len(x), draws); draws are averaged first, as root mean square.

    Examples
    --------
    >>> law = fit_power_law([1, 4, 16], [3.0, 1.5, 0.75])
    >>> round(law.factor, 6), round(law.exponent, 6)
    (3.0, -0.5)
    """
    values = np.asarray(y, dtype=np.float64)
    values = values if values.ndim == 1 else np.sqrt(np.mean(values**2, axis=1))
    where = np.asarray(x, dtype=np.float64)
    if where.shape != values.shape or len(set(where.tolist())) < 2:
        raise InputError(
            f"x and y must have the same length and at least two different x. Got {where.shape}, {values.shape}."
        )
    if not (np.isfinite(values).all() and (values > 0).all() and (where > 0).all()):
        raise InputError("a power law needs positive, finite values.")
    a, b = np.log(where), np.log(values)
    spread = a - a.mean()
    exponent = float(spread @ b / (spread @ spread))
    offset = float(b.mean() - exponent * a.mean())
    rest = b - offset - exponent * a
    error = float(np.sqrt(rest @ rest / (len(a) - 2) / (spread @ spread))) if len(a) > 2 else float("nan")
    return PowerLaw(float(np.exp(offset)), exponent, error)


def plot_width_errors(
    ax: Axes,
    widths: Sequence[int],
    errors: Mapping[str, ArrayLike],
    ylabel: str,
    fit: bool = True,
    styles: Mapping[str, CurveStyle] | None = None,
) -> Axes:
    """Draw errors against width on logarithmic axes: root mean squares over draws, each draw faintly, and fitted power laws.

    Parameters
    ----------
    ax
        Where to draw.
    widths
        Increasing.
    errors
        By name, shape (len(widths), draws), positive.
    ylabel
        What the errors are.
    fit
        Whether to fit and draw a power law for each, with its exponent in the legend.
    styles
        How to draw some or all of them.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_width_errors(new_figure().subplots(), [1, 4], {"MLP": [[2.0], [1.0]]}, "error")
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['MLP: width^-0.50']
    """
    for number, (name, values) in enumerate(errors.items()):
        matrix = np.asarray(values, dtype=np.float64)
        if matrix.ndim != 2 or len(matrix) != len(widths):
            raise InputError(f"errors of {name!r} must have shape ({len(widths)}, draws). Got {matrix.shape}.")
        style = (styles or {}).get(name, CurveStyle(f"C{number}"))
        color = style.color or f"C{number}"
        label, line = name, style.line
        if fit:
            law = fit_power_law(widths, matrix)
            label = f"{name}: width^{law.exponent:.2f}"
            ax.plot(widths, law.factor * np.asarray(widths, dtype=np.float64) ** law.exponent, color=color, linewidth=1)
            line = "none"
        ax.plot(
            widths, np.sqrt(np.mean(matrix**2, axis=1)), color=color, marker=style.marker, linestyle=line, label=label
        )
        ax.plot(np.repeat(widths, matrix.shape[1]), matrix.ravel(), ".", color=color, alpha=0.25, markersize=4)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(list(widths), [str(width) for width in widths])
    ax.set_xlabel("width")
    ax.set_ylabel(ylabel)
    ax.grid(which="major", alpha=0.3)
    ax.legend(frameon=False)
    return ax


def plot_random_features(
    ax: Axes, widths: Sequence[int], accuracy: Mapping[str, ArrayLike], exact: Mapping[str, float]
) -> Axes:
    """Draw the accuracy of kernels of finite networks against their width, and that of the exact kernel as a line.

    Parameters
    ----------
    ax
        Where to draw.
    widths
        Increasing.
    accuracy
        By name, shape (len(widths), draws), between 0 and 1: medians are joined, bars reach from the worst to the best.
    exact
        Accuracies of the exact kernels, by the same names.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_random_features(new_figure().subplots(), [8, 16], {"CNTK": [[0.7], [0.8]]}, {"CNTK": 0.9})
    >>> ax.get_ylabel()
    'test accuracy (%)'
    """
    for number, (name, values) in enumerate(accuracy.items()):
        percent = 100 * np.asarray(values, dtype=np.float64)
        if percent.ndim != 2 or len(percent) != len(widths):
            raise InputError(f"accuracies of {name!r} must have shape ({len(widths)}, draws). Got {percent.shape}.")
        middle = np.median(percent, axis=1)
        reach = np.stack([middle - percent.min(axis=1), percent.max(axis=1) - middle])
        ax.errorbar(widths, middle, yerr=reach, color=f"C{number}", marker="o", label=f"{name}, random features")
        ax.axhline(100 * exact[name], color=f"C{number}", linestyle="--", label=f"{name}, exact")
    ax.set_xscale("log", base=2)
    ax.set_xticks(list(widths), [str(width) for width in widths])
    ax.set_xlabel("channels")
    ax.set_ylabel("test accuracy (%)")
    ax.grid(alpha=0.3)
    ax.legend(frameon=False)
    return ax
