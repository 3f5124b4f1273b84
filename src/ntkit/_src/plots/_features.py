"""Figures of feature learning: correlations and losses during training, feature matrices as images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from torch import Tensor

from ntkit._src.features import History
from ntkit.errors import InputError

from ._curves import new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_TITLES = {
    "uncentred": "uncentred NFA",
    "centred": "centred NFA",
    "double_centred": "double-centred NFA",
    "ptk_centred": "PTK-centred NFA",
    "centred_ratio": "centred / uncentred",
    "double_ratio": "double-centred / centred",
    "movement": "|W - W0| / |W|",
}


def plot_against_steps(
    ax: Axes, steps: ArrayLike, curves: Mapping[str, ArrayLike], title: str, styles: Mapping[str, Any] | None = None
) -> Axes:
    """Draw curves against training steps, with gaps where a value is nan.

    Parameters
    ----------
    ax
        Where to draw.
    steps
        Shape (m,).
    curves
        By name, shape (m,), or (seeds, m): then the mean, with the range over seeds shaded.
    title
        Written above.
    styles
        By name, keyword arguments of ``Axes.plot``.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_against_steps(new_figure().subplots(), [0, 5], {"layer 0": [float("nan"), 0.5]}, "centred NFA")
    >>> ax.get_xlabel()
    'step'
    """
    where = np.asarray(steps)
    for number, (name, values) in enumerate(curves.items()):
        rows = np.atleast_2d(np.asarray(values, dtype=np.float64))
        if rows.shape[1] != len(where):
            raise InputError(f"curve {name!r} must have {len(where)} values, one for each step. Got {rows.shape[1]}.")
        style = {"color": f"C{number}", **(styles or {}).get(name, {})}
        ax.plot(where, rows.mean(axis=0), label=name, **style)
        if len(rows) > 1:
            ax.fill_between(where, rows.min(axis=0), rows.max(axis=0), color=style["color"], alpha=0.2, linewidth=0)
    ax.set_xlabel("step")
    ax.set_title(title, fontsize="medium")
    ax.grid(alpha=0.3)
    return ax


def plot_metric_diagonal(ax: Axes, diagonal: ArrayLike, relevant: Sequence[int] = (), title: str = "") -> Axes:
    """Draw the diagonal of a learned metric M as bars over the inputs.

    Parameters
    ----------
    ax
        Where to draw.
    diagonal
        Shape (d,), or (seeds, d): then the means, with the range over seeds as lines.
    relevant
        Inputs that the targets are known to depend on, drawn in another colour.
    title
        Written above.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_metric_diagonal(new_figure().subplots(), [1.0, 0.9, 0.1], relevant=[0, 1])
    >>> len(ax.patches), ax.get_xlabel()
    (3, 'input')
    """
    rows = np.atleast_2d(np.asarray(diagonal, dtype=np.float64))
    if rows.ndim != 2 or rows.size == 0 or not np.isfinite(rows).all():
        raise InputError(f"diagonal must be finite, of shape (d,) or (seeds, d). Got shape {rows.shape}.")
    inputs = np.arange(rows.shape[1])
    matters = np.isin(inputs, list(relevant))
    if matters.sum() != len(set(relevant)):
        raise InputError(f"relevant must name inputs from 0 to {len(inputs) - 1}. Got {list(relevant)}.")
    mean = rows.mean(axis=0)
    ax.bar(inputs, mean, width=0.9, color=np.where(matters, "C1", "C0").tolist())
    if len(rows) > 1:
        ax.vlines(inputs, rows.min(axis=0), rows.max(axis=0), color="0.2", linewidth=0.8)
    ax.set_xlabel("input")
    ax.set_ylabel("diagonal of M")
    ax.set_title(title, fontsize="medium")
    return ax


def figure_history(
    history: History, measures: Sequence[str] = ("uncentred", "centred", "centred_ratio"), losses: bool = True
) -> Figure:
    """Draw what a :class:`ntkit.features.Recorder` recorded: a panel for each measure, a curve for each layer; scaled losses.

    Parameters
    ----------
    history
        ``recorder.history``.
    measures
        Fields of :class:`ntkit.features.NFA`.
    losses
        Whether to draw the losses too, each divided by its maximum, in a separate panel.

    Examples
    --------
    >>> import torch
    >>> from torch import nn
    >>> from ntkit.features import Recorder
    >>> recorder = Recorder(nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 1)), torch.ones(4, 2))
    >>> len(figure_history(recorder.history).axes)
    3
    """
    unknown = [name for name in measures if name not in _TITLES]
    if unknown or not measures:
        raise InputError(f"measures must be some of {', '.join(_TITLES)}. Got {list(measures)}.")
    with_losses = losses and bool(history.losses)
    count = len(measures) + with_losses
    axes = new_figure(3.4 * count, 3.2).subplots(1, count, squeeze=False)[0]
    for ax, name in zip(axes, measures, strict=False):
        curves = {f"layer {layer}": history.measures[layer][name] for layer in history.layers}
        plot_against_steps(ax, history.steps, curves, f"{_TITLES[name]} ({history.kind})")
    if with_losses:
        plot_against_steps(axes[-1], history.steps, history.scaled_losses(), "loss / its maximum")
        axes[-1].legend(frameon=False)
    axes[0].legend(frameon=False)
    figure: Figure = axes[0].figure
    return figure


def figure_matrices(
    matrices: Mapping[str, Tensor | ArrayLike], image_shape: Sequence[int] | None = None, columns: int | None = None
) -> Figure:
    """Draw feature matrices (F, G, EGOP, ...) side by side, each as an image of its entries or of its diagonal.

    Parameters
    ----------
    matrices
        By title, shape (d, d).
    image_shape
        For inputs that are images, (channels, height, width): the diagonal as an image, each channel scaled to [0, 1] together.
    columns
        Panels per row; None: all of them.

    Examples
    --------
    >>> import numpy as np
    >>> [ax.get_title() for ax in figure_matrices({"F": np.eye(3), "G": np.ones((3, 3))}).axes]
    ['F', 'G']
    """
    if not matrices:
        raise InputError("matrices must hold at least one. Got none.")
    across = columns or len(matrices)
    down = -(-len(matrices) // across)
    axes = new_figure(2.5 * across, 2.7 * down).subplots(down, across, squeeze=False).ravel()
    for ax, (title, given) in zip(axes, matrices.items(), strict=False):
        matrix = _array(given)
        if matrix.ndim != 2 or matrix.shape[0] != matrix.shape[1]:
            raise InputError(f"matrix {title!r} must have shape (d, d). Got {matrix.shape}.")
        ax.imshow(matrix if image_shape is None else _diagonal_image(title, matrix, tuple(image_shape)), cmap="viridis")
        ax.set_title(title, fontsize="medium")
        ax.set_xticks([])
        ax.set_yticks([])
    for ax in axes[len(matrices) :]:
        ax.set_axis_off()
    figure: Figure = axes[0].figure
    return figure


def _diagonal_image(title: str, matrix: NDArray[Any], shape: tuple[int, ...]) -> NDArray[Any]:
    if len(shape) != 3 or int(np.prod(shape)) != len(matrix):
        raise InputError(
            f"image_shape must be (channels, height, width) of {len(matrix)} entries, the size of {title!r}. Got {shape}."
        )
    image = np.diagonal(matrix).reshape(shape).transpose(1, 2, 0)
    low, high = image.min(), image.max()
    image = (image - low) / (high - low) if high > low else np.zeros_like(image)
    return image if shape[0] == 3 else image.mean(axis=2)


def _array(given: Tensor | ArrayLike) -> NDArray[Any]:
    return given.detach().cpu().double().numpy() if isinstance(given, Tensor) else np.asarray(given, dtype=np.float64)
