"""Training over time: predictions with bands, eigendirections, losses; kernels as lines, networks as marks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ntkit._src.dynamics import Posterior
from ntkit.errors import InputError

from ._curves import CurveStyle

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_KERNEL, _NETWORKS = "#0072B2", "#D55E00"


def plot_predictions(
    ax: Axes,
    x: ArrayLike,
    mean: ArrayLike,
    std: ArrayLike,
    train: tuple[ArrayLike, ArrayLike] | None = None,
    networks: ArrayLike | None = None,
    title: str = "",
) -> Axes:
    """Draw the mean of a process on a line and the band of two standard deviations around it.

    Parameters
    ----------
    ax
        Where to draw.
    x
        Points, shape (m,), increasing.
    mean, std
        Mean and standard deviation of the process there, shape (m,).
    train
        Training points and targets, each of shape (n,). Default None.
    networks
        Outputs of trained networks at x, shape (members, m): their mean and two standard deviations are drawn dashed.
        Default None.
    title
        Above the axes. Default none.

    Returns
    -------
    Axes
        ``ax``.

    See Also
    --------
    plot_posterior : from a :class:`ntkit.results.Posterior`.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_predictions(new_figure().subplots(), [0, 1], [0.0, 1.0], [1.0, 0.5], title="t = 1")
    >>> len(ax.lines), ax.get_title()
    (1, 't = 1')
    """
    points = _array("x", x, 1)
    center, spread = (_array(name, one, 1, len(points)) for name, one in (("mean", mean), ("std", std)))
    ax.fill_between(
        points, center - 2 * spread, center + 2 * spread, color=_KERNEL, alpha=0.2, linewidth=0, label="kernel, ±2 std"
    )
    ax.plot(points, center, color=_KERNEL, linewidth=1.8, label="kernel, mean")
    if networks is not None:
        outputs = _array("networks", networks, 2, len(points))
        own, width = outputs.mean(axis=0), 2 * outputs.std(axis=0, ddof=1)
        label = f"{len(outputs)} networks, mean"
        ax.plot(points, own, color=_NETWORKS, linestyle="--", linewidth=1.4, label=label)
        for sign, name in ((-1, "networks, ±2 std"), (1, "_other edge")):
            ax.plot(points, own + sign * width, color=_NETWORKS, linestyle=":", linewidth=1.2, label=name)
    if train is not None:
        ax.plot(*(_array("train", one, 1) for one in train), "o", color="black", markersize=4, label="training points")
    ax.set(title=title, xlabel="x", ylabel="f(x)")
    return ax


def plot_posterior(
    axes: Axes | Sequence[Axes] | NDArray[Any],
    x: ArrayLike,
    posterior: Posterior,
    train: tuple[ArrayLike, ArrayLike] | None = None,
    networks: ArrayLike | None = None,
    output: int = 0,
    noisy: bool = False,
) -> Axes | Sequence[Axes] | NDArray[Any]:
    """Draw the result of :func:`ntkit.posterior` on a line: the mean and the band of two standard deviations around it.

    Parameters
    ----------
    axes
        Where to draw: one, or one per time of the posterior.
    x
        The test points, shape (m,) or (m, 1), in any order.
    posterior
        The posterior at these points, for one time or several.
    train
        Training points and targets, each of shape (n,) or (n, 1). Default None.
    networks
        Outputs of trained networks at x, shape (members, m); (times, members, m) for several times. Default None.
    output
        Which column of the mean, if there are several. Default 0.
    noisy
        Whether to draw the band of new observations, with the observation noise, instead of that of the function. Default False.

    Returns
    -------
    Axes
        ``axes``.

    See Also
    --------
    plot_predictions : from arrays instead of a posterior.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> from ntkit.plots import new_figure
    >>> limit = ntkit.infinite_width(nn.Sequential(nn.Linear(1, 8), nn.ReLU(), nn.Linear(8, 1)), b_std=0.5)
    >>> x, y = torch.tensor([[-1.0], [1.0]]), torch.tensor([1.0, 0.0])
    >>> line = torch.linspace(-2, 2, 50)[:, None]
    >>> found = ntkit.posterior(limit, x, y, line, t=[0.0, 1.0])
    >>> axes = plot_posterior(new_figure().subplots(1, 2), line, found, (x, y))
    >>> [one.get_title() for one in axes]
    ['t = 0', 't = 1']
    """
    many = posterior.times is not None
    each = list(np.asarray(axes, dtype=object).ravel())
    times = posterior.times.tolist() if posterior.times is not None else [None]
    if len(each) != len(times):
        raise InputError(f"axes must be one for each of the {len(times)} times of the posterior. Got {len(each)}.")
    points = np.asarray(x, dtype=np.float64).squeeze()
    order = np.argsort(points)
    several = posterior.mean.ndim > posterior.variance.ndim
    mean = np.asarray((posterior.mean[..., output] if several else posterior.mean).cpu(), dtype=np.float64)
    std = np.asarray((posterior.variance + (posterior.noise if noisy else 0.0)).sqrt().cpu(), dtype=np.float64)
    known = None if train is None else tuple(np.asarray(one, dtype=np.float64).squeeze() for one in train)
    outputs = None if networks is None else np.asarray(networks, dtype=np.float64)
    for index, (ax, time) in enumerate(zip(each, times, strict=True)):
        at = index if many else ...
        members = None if outputs is None else outputs[at][..., order]
        title = "" if time is None else f"t = {time:g}"
        plot_predictions(ax, points[order], mean[at][order], std[at][order], known, members, title)  # type: ignore[arg-type]
    return axes


def plot_learning_curves(
    ax: Axes,
    times: ArrayLike,
    eigenvalues: ArrayLike,
    left: ArrayLike,
    networks: tuple[ArrayLike, ArrayLike] | None = None,
) -> Axes:
    """Draw what remains to be learnt along each eigenvector of the kernel against training time.

    Parameters
    ----------
    ax
        Where to draw; the legend names the eigenvalues.
    times
        Shape (m,), positive.
    eigenvalues
        Eigenvalues of the directions to draw, shape (k,).
    left
        The fraction (v^T y - u_t) / (v^T y - u_0) at each time, shape (m, k).
    networks
        Times of trained networks, shape (s,), and the same fraction for them, shape (s, k); drawn as markers. Default None.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_learning_curves(new_figure().subplots(), [0.1, 1], [2.0, 1.0], [[0.8, 0.9], [0.1, 0.4]])
    >>> ax.get_legend().get_texts()[0].get_text()
    'λ = 2'
    """
    t, values = _array("times", times, 1), _array("eigenvalues", eigenvalues, 1)
    shares = _array("left", left, 2, len(values))
    if len(shares) != len(t):
        raise InputError(f"left must have shape ({len(t)}, {len(values)}). Got {shares.shape}.")
    lines = [ax.plot(t, shares[:, k], linewidth=1.6, label=f"λ = {value:.3g}")[0] for k, value in enumerate(values)]
    if networks is not None:
        own_times, own = _array("networks", networks[0], 1), _array("networks", networks[1], 2, len(values))
        for k, line in enumerate(lines):
            ax.plot(own_times, own[:, k], "o", color=line.get_color(), markersize=3.5, label="_network")
    ax.axhline(0, color="black", linewidth=0.6)
    ax.set(xscale="log", xlabel="training time t", ylabel="left to learn")
    ax.legend(frameon=False)
    return ax


def plot_losses(
    ax: Axes,
    times: ArrayLike,
    losses: Mapping[str, ArrayLike],
    styles: Mapping[str, CurveStyle] | None = None,
) -> Axes:
    """Draw training losses against time, on logarithmic axes.

    Parameters
    ----------
    ax
        Where to draw.
    times
        Shape (m,), positive.
    losses
        By name: shape (m,), or (m, members) for an ensemble, drawn as its mean and a band from the 10th to the 90th
        percentile.
    styles
        How to draw some or all of them. Default None: lines without markers in the colours of the cycle.

    Examples
    --------
    >>> from ntkit.plots import new_figure
    >>> ax = plot_losses(new_figure().subplots(), [1, 10], {"kernel": [1.0, 0.1], "networks": [[1, 2], [0.1, 0.2]]})
    >>> ax.get_yscale(), len(ax.lines)
    ('log', 2)
    """
    t = _array("times", times, 1)
    for name, given in losses.items():
        values = np.asarray(given, dtype=np.float64)
        if values.ndim not in (1, 2) or len(values) != len(t):
            raise InputError(
                f"losses of {name!r} must have shape ({len(t)},) or ({len(t)}, members). Got {values.shape}."
            )
        style = (styles or {}).get(name, CurveStyle(marker=""))
        mean = values if values.ndim == 1 else values.mean(axis=1)
        (line,) = ax.plot(t, mean, markersize=4, linewidth=1.6, label=name, **style.options)
        if values.ndim == 2:
            low, high = np.percentile(values, [10, 90], axis=1)
            ax.fill_between(t, low, high, color=line.get_color(), alpha=0.18, linewidth=0)
    ax.set(xscale="log", yscale="log", xlabel="training time t", ylabel="training loss")
    ax.legend(frameon=False)
    return ax


def _array(name: str, values: ArrayLike, ndim: int, last: int | None = None) -> NDArray[Any]:
    array = np.asarray(values, dtype=np.float64)
    if array.ndim != ndim or (last is not None and array.shape[-1] != last):
        expected = ("(m,)" if ndim == 1 else "(.., m)") + (f" with m = {last}" if last is not None else "")
        raise InputError(f"{name} must have shape {expected}. Got {array.shape}.")
    return array
