"""The choice of settings of a recursive feature machine, on held-out parts of the training data."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.features.rfm import RFMSettings, RFMState, recursion
from ntkit.errors import JitterWarning

_FEWEST_PATHS = 4

Error = Callable[[Tensor, Tensor], float]
"""An error of predictions and targets, both of shape (m, c): the smaller the better."""


@dataclass(frozen=True)
class Candidate:
    """Settings of a recursive feature machine: bandwidth, ridge, power, whether M is diagonal, and updates of the metric.

    A bandwidth is a number, "median", or a multiple of it as in ``("median", 4.0)``; None for a kernel without bandwidth.
    """

    bandwidth: float | str | tuple[str, float] | None
    ridge: float
    power: float
    diagonal: bool
    iterations: int


@dataclass(frozen=True)
class RFMChoice:
    """The settings in use, all candidates, and their mean errors on the held-out parts, shape (candidates,).

    Errors are infinite for candidates dropped before the last part, and empty if there was nothing to choose. ``parts`` is the
    number of parts held out in turn.
    """

    best: Candidate
    candidates: tuple[Candidate, ...]
    errors: NDArray[np.float64]
    parts: int


def choose(
    x: Tensor,
    y: Tensor,
    grid: Mapping[str, Sequence[Any]],
    settings: Callable[[Candidate], RFMSettings],
    parts: Sequence[tuple[NDArray[np.intp], NDArray[np.intp]]],
    error: Error,
) -> RFMChoice:
    """Return the candidate with the smallest mean error on held-out rows, or the first one if none are held out.

    The points x, shape (n, d), and targets y, shape (n, c), are split into rows to fit and to predict by each of the ``parts``.
    After each the worse half of the settings in ``grid`` is dropped, each judged by its best number of updates, down to four.
    """
    updates = list(grid["iterations"])
    settled = product(grid["bandwidth"], grid["ridge"], grid["power"], grid["diagonal"])
    paths = [Candidate(*values, iterations=max(updates)) for values in settled]
    candidates = tuple(replace(path, iterations=count) for path in paths for count in updates)
    if len(candidates) == 1 or not parts:
        return RFMChoice(candidates[0], candidates, np.empty(0), 0)
    errors = np.zeros((len(paths), len(updates)))
    remaining = list(range(len(paths)))
    for number, part in enumerate(parts, start=1):
        inside, outside = (torch.from_numpy(rows).to(x.device) for rows in part)
        for index in remaining:
            states = enumerate(quiet_recursion(x[inside], y[inside], settings(paths[index])))
            errors[index] += [
                error(state.predict(x[outside]), y[outside]) for iteration, state in states if iteration in updates
            ]
        if number < len(parts):
            keep = max(_FEWEST_PATHS, -(-len(remaining) // 2))
            best = np.where(np.isnan(errors), math.inf, errors).min(axis=1)
            dropped = sorted(remaining, key=lambda index: best[index])[keep:]
            errors[dropped] = math.inf
            remaining = [index for index in remaining if index not in dropped]
    means = np.where(np.isnan(errors), math.inf, errors / len(parts)).ravel()
    return RFMChoice(candidates[int(means.argmin())], candidates, means, len(parts))


def quiet_recursion(x: Tensor, y: Tensor, settings: RFMSettings, roots: Tensor | None = None) -> Iterator[RFMState]:
    """Run the recursion; jitter of singular matrices is stored in the states, and the estimator warns about it once."""
    with torch.no_grad():
        states = recursion(x, y, settings, roots)
        while True:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", JitterWarning)
                state = next(states, None)
            if state is None:
                return
            yield state
