"""Accuracy of a kernel and of the label-aware kernels over it, on splits of one set of images."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit.datasets import balanced_split
from ntkit.estimators import NTKClassifier
from ntkit.kernels import Kernel
from ntkit.labels import LabelAware, shift_needed

from ._finite_cells import Cell

__all__ = ["METHODS", "Pool", "Scores", "cells_of", "compute_on", "scores_from"]

METHODS = ("kr-v1", "kr-v2", "fjlt-v1", "fjlt-v2")
_KINDS = ("test", "validation", "error", "shift")


@dataclass(frozen=True)
class Pool:
    """Images that every draw splits anew, with their kernel.

    Attributes
    ----------
    x
        Shape (n, channels, side, side), float32, standardised.
    y
        Shape (n,), the classes.
    kernel
        The base kernel.
    gram
        Of all the images, shape (n, n), float32.
    """

    x: Tensor
    y: Tensor
    kernel: Kernel
    gram: NDArray[np.float32]


@dataclass(frozen=True)
class Scores:
    """What the draws of one task gave.

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
    shift
        What was added to the diagonal of the training Gram matrix to make it definite, over its mean; zero where it was.
    """

    strengths: tuple[float, ...]
    base: NDArray[np.float64]
    test: dict[str, NDArray[np.float64]]
    validation: dict[str, NDArray[np.float64]]
    error: dict[str, NDArray[np.float64]]
    shift: dict[str, NDArray[np.float64]]

    def chosen(self, *methods: str) -> NDArray[np.int64]:
        """Give the method and strength with the best validation in each draw, numbered along both, shape (draws,).

        The highest accuracy, and of equal ones that with the smallest error: of one method, what :class:`ntkit.LabelAware`
        chooses.
        """
        accuracy, error = (np.hstack([table[name] for name in methods]) for table in (self.validation, self.error))
        return np.array(np.lexsort((error, -accuracy), axis=1)[:, 0])

    def by_validation(self, *methods: str) -> NDArray[np.float64]:
        """Give the test accuracy with method and strength chosen by validation, shape (draws,)."""
        return np.take_along_axis(np.hstack([self.test[m] for m in methods]), self.chosen(*methods)[:, None], 1)[:, 0]

    def best_method_on_test(self) -> NDArray[np.float64]:
        """Give the test accuracy of the method that is best on the test images, its strength chosen by validation."""
        return np.array(np.max([self.by_validation(name) for name in METHODS], axis=0))

    def best_on_test(self) -> NDArray[np.float64]:
        """Give the test accuracy of the method and strength that are best on the test images, shape (draws,)."""
        return np.array(np.max([self.test[name].max(1) for name in METHODS], axis=0))


def cells_of(train: int, strengths: Sequence[float], draws: int) -> list[Cell]:
    """Give the names of all numbers that :class:`Scores` holds, draw after draw."""
    names = ["base", *(f"{m} {kind} {s:g}" for m in METHODS for kind in _KINDS for s in strengths)]
    return [(name, train, draw) for draw in range(draws) for name in names]


def scores_from(found: dict[Cell, float], train: int, strengths: Sequence[float], draws: int) -> Scores:
    """Put the numbers together."""

    def read(kind: str) -> dict[str, NDArray[np.float64]]:
        return {
            m: np.array([[found[f"{m} {kind} {s:g}", train, draw] for s in strengths] for draw in range(draws)])
            for m in METHODS
        }

    base = np.array([found["base", train, draw] for draw in range(draws)])
    return Scores(tuple(strengths), base, *(read(kind) for kind in _KINDS))


def compute_on(
    pool: Pool, train: int, test: int, strengths: Sequence[float], validation: int | float, seed: int
) -> Callable[[Cell], float]:
    """Give the function that computes one number of :func:`cells_of`; those of one draw and method come together.

    Parameters
    ----------
    pool
        The images.
    train, test
        Images of a draw, equally many of each class.
    strengths, validation
        As in :class:`ntkit.LabelAware`.
    seed
        Of the first draw; the others follow.
    """

    @lru_cache(maxsize=1)
    def split(draw: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        rows, others = balanced_split(pool.y, [train, test], seed + draw)
        k = torch.from_numpy(pool.gram[np.ix_(rows.numpy(), rows.numpy())]).double()
        return rows, others, k, torch.from_numpy(pool.gram[np.ix_(others.numpy(), rows.numpy())]).double()

    @lru_cache(maxsize=1)
    def method(name: str, draw: int) -> dict[str, float]:
        rows, others, k, cross = split(draw)
        x, x_test = pool.x[rows].double(), pool.x[others].double()
        # The same seed gives every method the same validation points.
        generator = torch.Generator().manual_seed(seed + draw)
        aware = LabelAware(pool.kernel, name, strengths, validation=validation, generator=generator)
        gram = aware.fit_gram(x, pool.y[rows], gram=k)
        # K + s U for the chosen s gives U, and with it the kernels of all strengths: nothing is fitted again.
        part = (gram - k) / aware.strength
        part_test = (aware.from_base(cross, x_test, x) - cross) / aware.strength
        search = aware.search
        assert search is not None
        result: dict[str, float] = {}
        for number, strength in enumerate(strengths):
            accuracy, shift = _accuracy(k + strength * part, cross + strength * part_test, rows, others)
            values = accuracy, search.accuracies[number], search.errors[number], shift
            result |= {f"{name} {kind} {strength:g}": value for kind, value in zip(_KINDS, values, strict=True)}
        return result

    def _accuracy(gram: Tensor, cross: Tensor, rows: Tensor, others: Tensor) -> tuple[float, float]:
        scale = float(gram.diagonal().mean())
        shift = shift_needed(gram, 0.0)
        gram.diagonal().add_(shift)
        model = NTKClassifier(kernel="precomputed", calibration=None).fit(gram.numpy(), pool.y[rows].numpy())
        return float(np.mean(model.predict(cross.numpy()) == pool.y[others].numpy())), shift / scale

    def value(cell: Cell) -> float:
        name, _, draw = cell
        if name == "base":
            rows, others, k, cross = split(draw)
            return _accuracy(k.clone(), cross, rows, others)[0]
        return method(name.split()[0], draw)[name]

    return value
