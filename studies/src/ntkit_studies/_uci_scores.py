"""How methods are compared over many data sets: the five numbers of Fernandez-Delgado et al. and Arora et al."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.stats import rankdata

from ntkit.errors import InputError

__all__ = ["Score", "scores"]


@dataclass(frozen=True)
class Score:
    """One method over all data sets.

    Attributes
    ----------
    accuracy, deviation
        Mean and standard deviation of the accuracy over the data sets.
    rank
        Friedman rank: the mean over the data sets of the method's rank by accuracy, 1 the best; methods that tie share
        the mean of their ranks.
    p90, p95
        The share of data sets where it reaches at least 90 or 95 % of the highest accuracy there.
    pma
        The mean over the data sets of its accuracy divided by the highest there.
    """

    accuracy: float
    deviation: float
    rank: float
    p90: float
    p95: float
    pma: float


def scores(accuracy: Mapping[str, Sequence[float]]) -> dict[str, Score]:
    """Compare methods by their accuracies.

    Parameters
    ----------
    accuracy
        By method: one number from 0 to 1 per data set, the data sets in one order for all.

    Returns
    -------
    dict of Score
        By method. Where the highest accuracy on a data set is 0, every method reaches it.

    Examples
    --------
    >>> table = scores({"NTK": [0.9, 0.8, 0.5], "forest": [0.9, 0.7, 1.0]})
    >>> [(name, round(score.accuracy, 3), score.rank, round(score.p90, 2)) for name, score in table.items()]
    [('NTK', 0.733, 1.5, 0.67), ('forest', 0.867, 1.5, 0.67)]
    """
    lengths = {len(values) for values in accuracy.values()}
    if len(lengths) != 1 or 0 in lengths:
        raise InputError(
            f"every method must have one accuracy per data set, at least one. Got lengths {sorted(lengths)}."
        )
    values: NDArray[np.float64] = np.array(list(accuracy.values()), dtype=np.float64)
    if not ((values >= 0) & (values <= 1)).all():
        raise InputError("an accuracy must be a number from 0 to 1. Got others, or NaN.")
    highest = values.max(axis=0)
    ratio = np.where(highest > 0, values / np.where(highest > 0, highest, 1.0), 1.0)
    ranks = rankdata(-values, axis=0)
    # 0.81 / 0.9 is below 0.9 by rounding alone, and accuracies are quotients of small integers.
    reached = {level: (ratio >= level - 1e-12).mean(axis=1) for level in (0.90, 0.95)}
    return {
        name: Score(
            accuracy=float(values[row].mean()),
            deviation=float(values[row].std()),
            rank=float(ranks[row].mean()),
            p90=float(reached[0.90][row]),
            p95=float(reached[0.95][row]),
            pma=float(ratio[row].mean()),
        )
        for row, name in enumerate(accuracy)
    }
