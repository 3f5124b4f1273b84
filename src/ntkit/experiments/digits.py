"""Kernels of infinitely wide networks on small sets of handwritten digits, beside other classifiers.

Run it with ``python -m ntkit.experiments.digits``: a table in the terminal and a report in one HTML file.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ntkit.datasets import Digits, balanced_split, load_digits
from ntkit.estimators import NTKClassifier
from ntkit.kernels import Kernel, infinite_width

from ._digits_methods import (
    conv_net,
    dense_net,
    kernel_columns,
    predict_cnn,
    predict_forest,
    predict_ridge,
    predict_svm,
)

__all__ = ["DigitsResult", "Settings", "main", "run"]

Progress = Callable[[str, int, int], None]
"""Called with what is being computed, how much of it is done and how much there is."""


@dataclass(frozen=True)
class Settings:
    """How large the experiment is.

    Attributes
    ----------
    sizes
        Training images, multiples of ten: every class has equally many.
    pool
        Images that training sets are drawn from; the kernels are computed once for all of them.
    test
        Images to test on, the same for every method and training set.
    draws
        Training sets of each size.
    width, steps
        Channels and gradient steps of the finite network.
    """

    sizes: tuple[int, ...] = (20, 50, 100, 150)
    pool: int = 180
    test: int = 200
    draws: int = 3
    width: int = 32
    steps: int = 200


QUICK = Settings(sizes=(20, 30), pool=30, test=20, draws=2, width=4, steps=5)


@dataclass(frozen=True)
class DigitsResult:
    """What the experiment found.

    Attributes
    ----------
    settings, seed
        What it was asked.
    accuracy
        By method: shape (sizes, draws), the share of test images classified correctly.
    kernels
        By kernel: shape (pool, pool).
    labels
        The classes of the pool, shape (pool,).
    kernel_seconds, fit_seconds
        By kernel, the time to compute it; by method, the time of all its fits and predictions.
    """

    settings: Settings
    seed: int
    labels: NDArray[Any]
    accuracy: dict[str, NDArray[Any]] = field(default_factory=dict)
    kernels: dict[str, NDArray[Any]] = field(default_factory=dict)
    kernel_seconds: dict[str, float] = field(default_factory=dict)
    fit_seconds: dict[str, float] = field(default_factory=dict)


def run(settings: Settings | None = None, seed: int = 0, progress: Progress | None = None) -> DigitsResult:
    """Run the experiment.

    Parameters
    ----------
    settings
        How large; None is the size that takes about a minute on two cores.
    seed
        Decides the images to train and test on and all that is random in the methods.
    progress
        Called as the computation goes on.

    Returns
    -------
    DigitsResult

    Examples
    --------
    >>> result = run(QUICK, seed=0)
    >>> result.accuracy["NTK"].shape
    (2, 2)
    """
    settings, report = settings or Settings(), progress or _silent
    digits = load_digits()
    pool, test = (digits.take(index) for index in balanced_split(digits.labels, [settings.pool, settings.test], seed))
    points = Digits(*(_concatenate(a, b) for a, b in ((pool.images, test.images), (pool.labels, test.labels))))
    result = DigitsResult(settings, seed, pool.labels.numpy())
    draws = [
        [balanced_split(pool.labels, [size], seed + 1 + draw)[0] for draw in range(settings.draws)]
        for size in settings.sizes
    ]

    predictors: dict[str, Callable[[Any, int], NDArray[Any]]] = {}
    for name, kernel, block in _kernels():
        with _timed(result.kernel_seconds, name):
            columns = kernel_columns(kernel, points.images, settings.pool, block, partial(report, name))
        result.kernels[name] = columns[: settings.pool]
        predictors[name] = partial(_predict_kernel, columns, pool)
    for name, predict in _others(settings).items():
        predictors[name] = partial(_predict_images, predict, pool, test)

    truth = test.labels.numpy()
    for number, (name, predict_from) in enumerate(predictors.items()):
        with _timed(result.fit_seconds, name):
            result.accuracy[name] = np.array(
                [
                    [np.mean(predict_from(index, seed + draw) == truth) for draw, index in enumerate(row)]
                    for row in draws
                ]
            )
        report("fits", number + 1, len(predictors))
    return result
