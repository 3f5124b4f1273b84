"""Figures of kernels: a heat map sorted by class, spectra, levels of Hoeffding's decomposition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntkit.errors import InputError

from ._curves import CurveStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_LEVELS = (
    ("label-agnostic", "#BBBBBB"),
    ("one label", "#56B4E9"),
    ("two labels", "#0072B2"),
    ("more labels", "#D55E00"),
)

# Percentiles of the values off the diagonal that the colours span.
_RANGE = (2, 98)


def plot_heat_map(ax: Axes, gram: ArrayLike, labels: ArrayLike, title: str = "", normalize: bool = True) -> Axes:
    """Draw a kernel matrix with rows and columns sorted by class; colours span its 2nd to 98th percentile.

    Parameters
    ----------
    ax
        Where to draw; a colour bar is placed next to it.
    gram
        Shape (n, n), a kernel of n points with themselves.
    labels
        Shape (n,), their classes.
    title
        Written above.
    normalize
        Whether to draw the cosine K(x, x') / sqrt(K(x, x) K(x', x')), which makes kernels of different scale comparable.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> figure = new_figure()
    >>> ax = plot_heat_map(figure.subplots(), [[2.0, 0.5], [0.5, 1.0]], ["b", "a"], title="two points")
    >>> [tick.get_text() for tick in ax.get_xticklabels()]
    ['a', 'b']
    """
    matrix, classes = _square(gram), np.asarray(labels)
    if classes.shape != matrix.shape[:1]:
        raise InputError(f"labels must have shape {matrix.shape[:1]}. Got {classes.shape}.")
    if normalize:
        deviation = np.sqrt(np.diagonal(matrix))
        matrix = matrix / np.outer(deviation, deviation)
    order = np.argsort(classes, kind="stable")
    names, starts, counts = np.unique(classes[order], return_index=True, return_counts=True)
    # The diagonal, 1 for every normalised kernel, and a few outliers would use up the colour range.
    low, high = np.percentile(matrix[~np.eye(len(matrix), dtype=bool)] if len(matrix) > 1 else matrix, _RANGE)
    image = ax.imshow(matrix[np.ix_(order, order)], cmap="cividis", vmin=low, vmax=high, interpolation="nearest")
    for start in starts[1:]:
        ax.axhline(start - 0.5, color="white", linewidth=0.6)
        ax.axvline(start - 0.5, color="white", linewidth=0.6)
    middles = starts + (counts - 1) / 2
    ax.set_xticks(middles, [str(name) for name in names])
    ax.set_yticks(middles, [str(name) for name in names])
    ax.tick_params(length=0)
    ax.set(xlabel="class", ylabel="class", title=title)
    bar = ax.figure.colorbar(image, ax=ax, shrink=0.85, extend="both")
    bar.set_label("cosine" if normalize else "kernel")
    return ax


def plot_spectrum(ax: Axes, grams: Mapping[str, ArrayLike], styles: Mapping[str, CurveStyle] | None = None) -> Axes:
    """Draw the eigenvalues of kernel matrices by rank, largest first, both axes logarithmic.

    Each spectrum is divided by its sum, so that the scale of a kernel does not matter. Eigenvalues that rounding makes
    negative or zero are left out.

    Parameters
    ----------
    ax
        Where to draw.
    grams
        Name and matrix, shape (n, n), of each kernel.
    styles
        How to draw some or all of them.

    Returns
    -------
    Axes
        ``ax``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> figure = new_figure()
    >>> ax = plot_spectrum(figure.subplots(), {"diagonal": [[3.0, 0.0], [0.0, 1.0]]})
    >>> ax.lines[0].get_ydata()
    array([0.75, 0.25])
    """
    shares = {}
    for name, gram in grams.items():
        values = np.linalg.eigvalsh(_square(gram))[::-1]
        shares[name] = values / values.sum()
    return plot_shares(ax, shares, styles)


def plot_shares(ax: Axes, shares: Mapping[str, ArrayLike], styles: Mapping[str, CurveStyle] | None = None) -> Axes:
    """Draw known spectra, both axes logarithmic; values that are not positive are left out.

    Parameters
    ----------
    ax
        Where to draw.
    shares
        Name and eigenvalues of each kernel over their sum, shape (n,), decreasing.
    styles
        How to draw some or all of them.

    Returns
    -------
    Axes
        ``ax``.

    See Also
    --------
    plot_spectrum : from the kernel matrices.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_shares(new_figure().subplots(), {"K": [0.75, 0.25]})
    >>> ax.get_xlabel()
    'rank'
    """
    for name, values in shares.items():
        share = np.asarray(values, dtype=np.float64)
        shown = share > 0
        style = (styles or {}).get(name, CurveStyle())
        ranks = np.arange(1, len(share) + 1)
        ax.loglog(ranks[shown], share[shown], label=name, color=style.color, linestyle=style.line)
    ax.set(xlabel="rank", ylabel="eigenvalue / sum of eigenvalues")
    ax.grid(which="major", alpha=0.3)
    ax.legend(frameon=False)
    return ax


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
        ax.plot(k[shown], values[shown], markersize=3, label=name, **style.options)
    ax.set(xscale="log", yscale="log", xlabel=xlabel, ylabel="eigenvalue")
    ax.legend(frameon=False)
    return ax


def plot_levels(ax: Axes, shares: Mapping[str, ArrayLike]) -> Axes:
    """Draw the fraction of each kernel at each level of its Hoeffding decomposition.

    Parameters
    ----------
    ax
        Where to draw, one bar per kernel.
    shares
        Fractions of levels 0, 1, 2 and above by name, shape (4,): ``Hoeffding.shares``; or of levels 1, 2 and above, shape (3,):
        ``Hoeffding.variance_shares``. All of the same kind.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_levels(new_figure().subplots(), {"K_HR": [0.9, 0.0, 0.1, 0.0]})
    >>> [text.get_text() for text in ax.get_legend().get_texts()]
    ['label-agnostic', 'one label', 'two labels', 'more labels']
    """
    table = {name: np.asarray(given, dtype=np.float64) for name, given in shares.items()}
    shapes = {values.shape for values in table.values()}
    if shapes not in ({(3,)}, {(4,)}) or not all(np.isfinite(values).all() for values in table.values()):
        raise InputError(f"shares must be finite, and all of shape (4,), or all (3,). Got {table}.")
    names = list(table)
    left = np.zeros(len(names))
    for (level, color), column in zip(_LEVELS[-shapes.pop()[0] :], np.stack(list(table.values())).T, strict=True):
        ax.barh(names, 100 * column, left=left, color=color, label=level, height=0.6)
        left += 100 * column
    ax.invert_yaxis()
    ax.set_xlabel("share (%)")
    ax.legend(frameon=False, loc="center left", bbox_to_anchor=(1.01, 0.5))
    return ax


def _square(gram: ArrayLike) -> NDArray[Any]:
    matrix = np.asarray(gram, dtype=np.float64)
    if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
        raise InputError(f"a kernel of points with themselves must have shape (n, n). Got {matrix.shape}.")
    return matrix
