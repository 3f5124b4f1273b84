"""Accuracy of a kernel and of the label-aware kernels over it, on splits of one set of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit import Kernel, LabelAware, solve
from ntkit.datasets import balanced_split

__all__ = ["BASE", "METHODS", "Draw", "Pool", "Scored", "Scores", "score", "scores_from"]

BASE = "base"

METHODS = ("kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2")


@dataclass(frozen=True)
class Pool:
    """Images that every draw splits differently, with their kernel.

    Attributes
    ----------
    x
        Shape (n, channels, side, side), float32, standardised.
    y
        Shape (n,), the classes.
    kernel
        The base kernel.
    gram
        Gram matrix of all images, shape (n, n), float32.
    """

    x: Tensor
    y: Tensor
    kernel: Kernel
    gram: NDArray[np.float32]


@dataclass(frozen=True)
class Scores:
    """The scores of the draws of one task.

    Attributes
    ----------
    strengths
        The candidates.
    base
        Test accuracy of the base kernel, shape (draws,).
    test
        That of the label-aware kernels, by method, shape (draws, strengths).
    validation, error
        Accuracy, and mean squared error of the scores, on training points left out of the fit, in the same shape.
    indefinite
        Whether the training Gram matrix has negative eigenvalues, in the same shape.
    """

    strengths: tuple[float, ...]
    base: NDArray[np.float64]
    test: dict[str, NDArray[np.float64]]
    validation: dict[str, NDArray[np.float64]]
    error: dict[str, NDArray[np.float64]]
    indefinite: dict[str, NDArray[np.bool_]]

    def chosen(self, *methods: str) -> NDArray[np.int64]:
        """Return the method and strength with the best validation in each draw, numbered along both, shape (draws,).

        The highest accuracy, and of equal ones that with the smallest error: of one method, what :class:`ntkit.LabelAware`
        chooses.
        """
        accuracy, error = (np.hstack([table[name] for name in methods]) for table in (self.validation, self.error))
        return np.array(np.lexsort((error, -accuracy), axis=1)[:, 0])

    def by_validation(self, *methods: str) -> NDArray[np.float64]:
        """Return the test accuracy with method and strength chosen by validation, shape (draws,)."""
        return np.take_along_axis(np.hstack([self.test[m] for m in methods]), self.chosen(*methods)[:, None], 1)[:, 0]

    def best_method_on_test(self) -> NDArray[np.float64]:
        """Return the test accuracy of the method that is best on the test images, its strength chosen by validation."""
        return np.array(np.max([self.by_validation(name) for name in METHODS], axis=0))

    def best_on_test(self) -> NDArray[np.float64]:
        """Return the test accuracy of the method and strength that are best on the test images, shape (draws,)."""
        return np.array(np.max([self.test[name].max(1) for name in METHODS], axis=0))


@dataclass(frozen=True)
class Scored:
    """The scores of one kernel on one split: one number per strength, or for the base kernel a single test accuracy.

    Attributes
    ----------
    test
        Accuracy on the test images.
    validation, error, indefinite
        As in :class:`Scores`; empty for the base kernel.
    """

    test: tuple[float, ...]
    validation: tuple[float, ...] = ()
    error: tuple[float, ...] = ()
    indefinite: tuple[bool, ...] = ()


def scores_from(found: Mapping[tuple[str, int], Scored], strengths: Sequence[float], draws: int) -> Scores:
    """Put together what each method gave on each draw."""

    def read(kind: str) -> dict[str, NDArray[Any]]:
        return {m: np.array([getattr(found[m, draw], kind) for draw in range(draws)]) for m in METHODS}

    base = np.array([found[BASE, draw].test[0] for draw in range(draws)])
    return Scores(tuple(strengths), base, read("test"), read("validation"), read("error"), read("indefinite"))


@dataclass(frozen=True)
class Draw:
    """One split of a pool.

    Attributes
    ----------
    rows, others
        Indices of the training and the test images.
    gram
        Of the training images, shape (train, train), float64.
    cross
        Between test and training images, shape (test, train), float64.
    """

    rows: Tensor
    others: Tensor
    gram: Tensor
    cross: Tensor

    @classmethod
    def of(cls, pool: Pool, train: int, test: int, seed: int) -> Draw:
        """Split a pool, equally many of each class."""
        rows, others = balanced_split(pool.y, [train, test], seed)
        gram, cross = (
            torch.from_numpy(pool.gram[np.ix_(one.numpy(), rows.numpy())]).double() for one in (rows, others)
        )
        return cls(rows, others, gram, cross)


def score(
    pool: Pool, draw: Draw, method: str, strengths: Sequence[float], validation: int | float, seed: int
) -> Scored:
    """Score one method on one split.

    Parameters
    ----------
    pool, draw
        The images and how they are split.
    method
        One of :data:`METHODS`, or :data:`BASE`.
    strengths, validation
        As in :class:`ntkit.LabelAware`.
    seed
        Of the validation points: the same for every method.
    """
    k, cross = draw.gram, draw.cross
    if method == BASE:
        return Scored((_accuracy(pool, draw, k, cross)[0],))
    x, x_test = pool.x[draw.rows].double(), pool.x[draw.others].double()
    generator = torch.Generator().manual_seed(seed)
    aware = LabelAware(pool.kernel, method, strengths, validation=validation, generator=generator)
    gram = aware.fit_gram(x, pool.y[draw.rows], gram=k)
    # K + s U for the chosen s gives U, and with it the kernels of all strengths: nothing is fitted again.
    part = (gram - k) / aware.strength
    part_test = (aware.from_base(cross, x_test, x) - cross) / aware.strength
    search = aware.search
    assert search is not None
    found = [_accuracy(pool, draw, k + strength * part, cross + strength * part_test) for strength in strengths]
    test, indefinite = zip(*found, strict=True)
    return Scored(test, tuple(map(float, search.accuracies)), tuple(map(float, search.errors)), indefinite)


def _accuracy(pool: Pool, draw: Draw, gram: Tensor, cross: Tensor) -> tuple[float, bool]:
    """Return the test accuracy of kernel regression without ridge, and whether the matrix is indefinite."""
    classes, codes = torch.unique(pool.y[draw.rows], return_inverse=True)
    targets = torch.nn.functional.one_hot(codes).to(gram.dtype) - 1 / len(classes)
    found = solve(gram, targets, method="indefinite")
    named = classes[(cross @ found.value).argmax(1)]
    return float((named == pool.y[draw.others]).double().mean()), found.stats["negative"] > 0
