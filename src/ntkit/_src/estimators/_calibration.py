"""Probabilities from scores: a softmax whose temperature is fitted on leave-one-out scores."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize_scalar
from scipy.special import log_softmax, softmax

__all__ = ["fit_temperature", "logits", "probabilities"]

# The prior keeps the minimum inside these bounds.
_LOG_BOUNDS = (-50.0, 50.0)


def logits(scores: NDArray[Any], classes: int) -> NDArray[Any]:
    """Return C f, shape (n, C); the single column for two classes is f_1 - f_0."""
    if scores.ndim == 1:
        return np.stack([-scores, scores], axis=1)
    return classes * scores


def probabilities(values: NDArray[Any], temperature: float) -> NDArray[Any]:
    """Return softmax(values / T), shape (n, C)."""
    return np.asarray(softmax(values / temperature, axis=1))


def fit_temperature(values: NDArray[Any], codes: NDArray[np.intp], weights: NDArray[Any] | None = None) -> float:
    r"""Return the most probable temperature T > 0 of softmax(values / T).

    The prior is log T ~ N(0, 1), worth about one data point of belief in T = 1, so that T stays away from zero if every
    point is classified correctly and from infinity if scores say nothing.

    Parameters
    ----------
    values
        Shape (n, C), from models that have not seen the point of their row.
    codes
        Shape (n,), the classes, 0 to C - 1.
    weights
        Shape (n,), the weight of each point. Default None: one.

    Examples
    --------
    >>> values = np.array([[3.0, -3.0], [3.0, -3.0], [-3.0, 3.0], [-3.0, 3.0], [3.0, -3.0]])
    >>> sure, unsure = fit_temperature(values, np.array([0, 0, 1, 1, 0])), fit_temperature(values, np.array([0, 1, 1, 1, 0]))
    >>> sure < unsure
    True
    """
    rows, counts = np.arange(len(codes)), np.ones(len(codes)) if weights is None else weights

    def loss(log_temperature: float) -> float:
        likelihood = counts @ log_softmax(values * math.exp(-log_temperature), axis=1)[rows, codes]
        return log_temperature**2 / 2 - float(likelihood)

    found = minimize_scalar(loss, bounds=_LOG_BOUNDS, method="bounded", options={"xatol": 1e-7})
    return math.exp(float(found.x))
