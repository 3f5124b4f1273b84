"""Kernels of infinitely wide networks on handwritten digits: accuracy on small sets, and wide networks in training.

Run it with ``ntkit run digits``: tables in the terminal and a report in one HTML file.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit import infinite_width
from ntkit.datasets import Digits, balanced_split, load_digits
from ntkit.extending import Progress
from ntkit.results import InfiniteWidthKernel

from ._digits_cells import (
    KERNELS,
    LABEL_AWARE,
    METHODS,
    NETWORKS,
    Cell,
    Features,
    Fit,
    Found,
    KernelFound,
    KernelView,
    Limit,
    Settings,
    Share,
    Wide,
)
from ._digits_features import VARIANCES, features_of
from ._digits_methods import (
    conv_net,
    dense_net,
    predict_cnn,
    predict_forest,
    predict_kernel,
    predict_label_aware,
    predict_ridge,
    predict_svm,
)
from ._digits_pair import Pair, limit_of, network_of, pair_of
from ._digits_report import report_of
from .skeleton import Experiment, Run, Size

__all__ = ["EXPERIMENT", "QUICK", "Settings", "main", "run"]

_VIEW = 10  # images of each class in the picture of a kernel


QUICK = Settings(
    sizes=(20, 30), pool=30, test=20, draws=2, channels=8, widths=(16, 32), members=2, pair=4, steps=(0, 2, 5), path=5
)


def sizes(size: Size, from_file: bool) -> Settings:
    """Return the settings of a size; there is no larger one."""
    return QUICK if size == "quick" else Settings()


@dataclass(frozen=True)
class _Shared:
    """What cells share; kernels are computed when the first cell asks for them."""

    run: Run[Settings]
    pool: Digits
    test: Digits
    pair: Pair
    kernels: dict[str, InfiniteWidthKernel]
    columns: dict[str, NDArray[Any]] = field(default_factory=dict)
    locks: dict[str, threading.Lock] = field(default_factory=dict)

    @property
    def images(self) -> Tensor:
        """Pool and test images together."""
        return torch.cat([self.pool.images, self.test.images])

    def columns_of(self, name: str) -> NDArray[Any]:
        """Return a kernel between all images and those of the pool, shape (pool + test, pool)."""
        with self.locks[name]:
            if name not in self.columns:
                kernel, progress = self.kernels[name], partial(self.run.progress, name)
                self.columns[name] = kernel_columns(kernel, self.images, len(self.pool), progress)
            return self.columns[name]


def kernel_columns(kernel: InfiniteWidthKernel, points: Tensor, columns: int, progress: Progress) -> NDArray[Any]:
    """Compute the kernel between all points and the first of them, those to train on.

    Parameters
    ----------
    kernel
        Any kernel of an infinitely wide network.
    points
        Shape (n, ...).
    columns
        How many points to train on.
    progress
        Called with the number of entries done and their total.

    Returns
    -------
    ndarray of shape (n, columns)
    """
    train, test = points[:columns], points[columns:]
    own = columns * (columns + 1) // 2
    total = own + len(test) * columns
    square = kernel(train, progress=lambda done, _: progress(done, total))
    rest = kernel(test, train, progress=lambda done, _: progress(own + done, total))
    return np.asarray(torch.cat([square, rest]).numpy())


def cells(run: Run[Settings]) -> list[Cell]:
    """Return the cells of the first report, then those with networks in training; in each part the dearest first."""
    settings = run.settings
    found = [*first(run), Limit()]
    found += [Wide(width, draw) for width in reversed(settings.widths) for draw in range(settings.members)]
    found += [*(Features(variance) for variance in VARIANCES), *_fits(settings, reversed(NETWORKS))]
    return found


def first(run: Run[Settings]) -> list[Cell]:
    """Return the kernels, and the fits that train no network."""
    others = (name for name in reversed(METHODS) if name not in NETWORKS)
    return [*map(KernelView, reversed(KERNELS)), *_fits(run.settings, others)]


def _fits(settings: Settings, methods: Iterable[str]) -> list[Cell]:
    return [
        Fit(name, size, draw) for name in methods for size in reversed(settings.sizes) for draw in range(settings.draws)
    ]


def prepare(run: Run[Settings]) -> _Shared:
    """Draw the images and trace the networks."""
    settings, digits = run.settings, load_digits()
    indices = balanced_split(digits.labels, [settings.pool, settings.test], run.seed)
    pool, test = (digits.take(index) for index in indices)
    pair = pair_of(pool, test, settings.classes, settings.pair, settings.path, settings.steps, run.seed)
    dense, flatten, average = (infinite_width(net) for net in (dense_net(), conv_net("flatten"), conv_net("average")))
    kernels = dict(zip(KERNELS, (dense.ntk, dense.nngp, flatten.ntk, average.ntk), strict=True))
    return _Shared(run, pool, test, pair, kernels, locks={name: threading.Lock() for name in KERNELS})


def compute(shared: _Shared, cell: Cell) -> Found:
    """Compute one cell."""
    match cell:
        case KernelView(name):
            return _view(shared.columns_of(name)[: len(shared.pool)], shared.pool.labels)
        case Limit():
            return limit_of(shared.pair)
        case Wide(width, draw):
            return network_of(shared.pair, width, shared.run.seed + 7919 * (width * 1000 + draw + 1))
        case Features(variance):
            return features_of(shared.pair, variance, shared.run.seed)
        case Fit(method, size, draw):
            index = balanced_split(shared.pool.labels, [size], shared.run.seed + draw)[0]
            predicted = _predict(shared, method, index, shared.run.seed + draw)
            return Share(float(np.mean(predicted == shared.test.labels.numpy())))


def _predict(shared: _Shared, method: str, index: Tensor, seed: int) -> NDArray[Any]:
    labels = shared.pool.labels
    if method in KERNELS:
        return predict_kernel(shared.columns_of(method), labels, index)
    if method == LABEL_AWARE:
        base = KERNELS[0]
        columns = shared.columns_of(base)
        return predict_label_aware(shared.kernels[base], columns, shared.images, labels, index, seed)
    others: dict[str, Callable[[Digits, Digits, int], NDArray[Any]]] = {
        "CNN, flatten": partial(predict_cnn, head="flatten", width=shared.run.settings.channels),
        "CNN, average pooling": partial(predict_cnn, head="average", width=shared.run.settings.channels),
        "RBF SVM": predict_svm,
        "RBF kernel ridge": predict_ridge,
        "random forest": predict_forest,
    }
    return others[method](shared.pool.take(index), shared.test, seed)


def _view(gram: NDArray[Any], labels: Tensor) -> KernelFound:
    """Return what the report shows of a kernel: its spectrum, and the cosines of some images sorted by class."""
    values = np.linalg.eigvalsh(gram)[::-1]
    shares = values / values.sum()
    order = torch.cat([torch.nonzero(labels == label).squeeze(1)[:_VIEW] for label in range(10)]).numpy()
    deviation = np.sqrt(np.diagonal(gram))[order]
    cosines = gram[np.ix_(order, order)] / np.outer(deviation, deviation)
    classes = tuple(int(label) for label in labels[order])
    return KernelFound(tuple(shares[shares > 0].tolist()), tuple(map(tuple, cosines.tolist())), classes)


EXPERIMENT = Experiment(
    name="digits",
    title="The demo: exact kernels on small sets of digits, and wide networks in training compared with their limit.",
    reproduces="–",
    sizes=sizes,
    cells=cells,
    first=first,
    prepare=prepare,
    compute=compute,
    report=report_of,
    embedded="digits",
    parallel=True,
    output="ntkit-demo.html",
)
run, main = EXPERIMENT.run, EXPERIMENT.main

if __name__ == "__main__":
    sys.exit(main())
