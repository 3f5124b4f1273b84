"""Which network and which ridge: the best on known pixels that are held out."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from ntkit.errors import SingularKernelError

from ._pixel_regression import DenseRegression, SparseRegression

__all__ = ["RIDGES", "Choice", "choose"]

RIDGES = (1e-2, 1e-3, 1e-4, 1e-5)
"""What ``ridge="auto"`` chooses among."""

_SHARE = 10  # one known pixel in ten is held out
_FEWEST = 20  # known pixels; fewer say nothing
_DEFAULT_RIDGE = 1e-4
_LOOSE = 1e-3  # relative residual: its effect is far below the errors compared


@dataclass(frozen=True, eq=False)
class Choice:
    """The best of several regressions.

    Attributes
    ----------
    regression
        The network's.
    name
        Of the network.
    ridge
        The ridge.
    status
        One sentence that says how they were chosen; empty where there was no choice.
    """

    regression: SparseRegression | DenseRegression
    name: str
    ridge: float
    status: str


def choose(
    networks: Sequence[tuple[str, Callable[[], SparseRegression | DenseRegression]]],
    ridges: Sequence[float],
    known: NDArray[np.int64],
    y: NDArray[np.float64],
) -> Choice:
    """Choose a network and a ridge by the squared error on a tenth of the known pixels, drawn at random with a fixed seed.

    Only known pixels are read. Those held out are scattered, so the choice is one for scattered gaps.

    Parameters
    ----------
    networks
        Names, and what makes the regressions: they are large, so one is made at a time.
    ridges
        Candidates.
    known
        Flat numbers of the known pixels, shape (n,).
    y
        Their values, shape (n, channels).
    """
    if len(networks) == len(ridges) == 1:
        return Choice(networks[0][1](), networks[0][0], ridges[0], "")
    if len(known) < _FEWEST:
        (name, make), ridge = networks[0], _DEFAULT_RIDGE if len(ridges) > 1 else ridges[0]
        return Choice(make(), name, ridge, f"Too few known pixels to choose by: {name}, ridge {ridge:g}.")
    order = np.random.default_rng(0).permutation(len(known))
    held, kept = np.sort(order[: len(known) // _SHARE]), np.sort(order[len(known) // _SHARE :])
    best: Choice | None = None
    least = math.inf
    failure: SingularKernelError | None = None
    for name, make in networks:
        regression = make()
        regress = regression.between(known[kept], known[held])
        for ridge in ridges:
            try:
                values = regress(y[kept], ridge, _LOOSE).values
            except SingularKernelError as unsolved:
                failure = unsolved
                continue
            error = float(((values - y[held]) ** 2).mean())
            if error < least:
                least, best = error, Choice(regression, name, ridge, "")
    if best is None:
        assert failure is not None  # every candidate gave an error or a failure
        raise failure
    tried = len(networks) * len(ridges)
    return replace(best, status=f"Best of {tried} on {len(held)} held-out pixels: {best.name}, ridge {best.ridge:g}.")
