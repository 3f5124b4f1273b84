"""The rate at which errors fall, for tests of convergence."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np


class Rate(NamedTuple):
    """The exponent of a power law, and its standard error; NaN of two points."""

    exponent: float
    error: float


def fit_rate(x: Sequence[float], errors: Sequence[Sequence[float]]) -> Rate:
    """Fit the root mean square over draws, shape (len(x), draws), by least squares on logarithms."""
    logs = np.log(np.sqrt(np.mean(np.square(errors), axis=1)))
    if len(x) == 2:
        return Rate(float(np.polyfit(np.log(x), logs, 1)[0]), float("nan"))
    line, covariance = np.polyfit(np.log(x), logs, 1, cov=True)
    return Rate(float(line[0]), float(covariance[0, 0] ** 0.5))
