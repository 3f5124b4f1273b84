"""Kernels of infinitely wide networks on small sets of handwritten digits, beside other classifiers.

Run it with ``python -m ntkit.experiments.digits``: a table in the terminal and a report in one HTML file.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.datasets import Digits, balanced_split, load_digits
from ntkit.estimators import NTKClassifier
from ntkit.kernels import InfiniteWidthKernel, infinite_width

from ._command_line import Progress, check_writable, options_of, progress_bars, read_options
from ._digits_methods import (
    conv_net,
    dense_net,
    kernel_columns,
    predict_cnn,
    predict_forest,
    predict_ridge,
    predict_svm,
)
from ._threads import one_thread_an_operation

__all__ = ["DigitsResult", "Settings", "main", "run"]

Predictor = Callable[[Tensor, int], NDArray[Any]]
"""Trains on the images of the pool at an index and predicts the classes of the test images; takes the index and a seed."""


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

    sizes: tuple[int, ...] = (20, 50, 100, 200, 400)
    pool: int = 500
    test: int = 400
    draws: int = 3
    width: int = 32
    steps: int = 500


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
    accuracy: dict[str, NDArray[Any]]
    kernels: dict[str, NDArray[Any]]
    kernel_seconds: dict[str, float]
    fit_seconds: dict[str, float]


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
    settings, report = settings or Settings(), progress or (lambda what, done, there_are: None)
    digits = load_digits()
    pool, test = (digits.take(index) for index in balanced_split(digits.labels, [settings.pool, settings.test], seed))
    points, truth = torch.cat([pool.images, test.images]), test.labels.numpy()
    draws = [
        [balanced_split(pool.labels, [size], seed + draw)[0] for draw in range(settings.draws)]
        for size in settings.sizes
    ]

    predictors: dict[str, Predictor] = {}
    kernels, kernel_seconds = {}, {}
    for name, kernel in _kernels():
        start = time.perf_counter()
        columns = kernel_columns(kernel, points, settings.pool, partial(report, name))
        kernel_seconds[name] = time.perf_counter() - start
        kernels[name] = columns[: settings.pool]
        predictors[name] = partial(_from_kernel, columns, pool.labels)
    predictors |= _others(settings, pool, test)

    # torch, NumPy and scikit-learn compute outside the interpreter's lock, so threads are enough.
    accuracy, fit_seconds = {}, {}
    with one_thread_an_operation(), ThreadPoolExecutor(max_workers=os.cpu_count()) as workers:
        jobs = [(index, seed + draw) for row in draws for draw, index in enumerate(row)]
        for name, predict in predictors.items():
            start, shares = time.perf_counter(), []
            for predicted in workers.map(predict, *zip(*jobs, strict=True)):
                shares.append(np.mean(predicted == truth))
                report(f"{name}: fits", len(shares), len(jobs))
            accuracy[name] = np.reshape(shares, (len(settings.sizes), settings.draws))
            fit_seconds[name] = time.perf_counter() - start
    return DigitsResult(settings, seed, pool.labels.numpy(), accuracy, kernels, kernel_seconds, fit_seconds)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the experiment from the command line and give the exit status.

    Parameters
    ----------
    arguments
        Those of the command line; None takes the program's own.
    """
    parser = options_of("digits", __doc__, "ntkit-demo.html", "the report (%(default)s)")
    options = read_options(parser, arguments)
    check_writable(parser, options.output)
    from ._digits_report import console_table, html  # rich is optional

    start = time.perf_counter()
    with progress_bars() as progress:
        result = run(QUICK if options.quick else None, options.seed, progress)
    options.output.write_text(html(result), encoding="utf-8")
    console_table(result)
    print(f"{time.perf_counter() - start:.0f} seconds. The report with figures: {options.output.resolve()}")
    return 0


def _kernels() -> list[tuple[str, InfiniteWidthKernel]]:
    """Give the kernels by name."""
    with torch.random.fork_rng(devices=[]):  # layers draw their weights from the global generator, which is the user's
        dense, flatten, average = (
            infinite_width(net) for net in (dense_net(), conv_net("flatten"), conv_net("average"))
        )
    return [
        ("NTK", dense.ntk),
        ("NNGP", dense.nngp),
        ("CNTK, flatten", flatten.ntk),
        ("CNTK, average pooling", average.ntk),
    ]


def _others(settings: Settings, pool: Digits, test: Digits) -> dict[str, Predictor]:
    finite = partial(predict_cnn, width=settings.width, steps=settings.steps)
    methods: dict[str, Callable[..., NDArray[Any]]] = {
        "CNN, flatten": partial(finite, head="flatten"),
        "CNN, average pooling": partial(finite, head="average"),
        "RBF SVM": predict_svm,
        "RBF kernel ridge": predict_ridge,
        "random forest": predict_forest,
    }
    return {name: partial(_from_images, method, pool, test) for name, method in methods.items()}


def _from_kernel(columns: NDArray[Any], labels: Tensor, index: Tensor, seed: int) -> NDArray[Any]:
    """Predict by kernel regression without ridge, which has nothing to choose and nothing random."""
    between = columns[:, index.numpy()]
    model = NTKClassifier(kernel="precomputed").fit(between[index.numpy()], labels[index].numpy())
    return np.asarray(model.predict(between[len(labels) :]))


def _from_images(
    method: Callable[..., NDArray[Any]], pool: Digits, test: Digits, index: Tensor, seed: int
) -> NDArray[Any]:
    return method(pool.take(index), test, seed=seed)


if __name__ == "__main__":
    sys.exit(main())
