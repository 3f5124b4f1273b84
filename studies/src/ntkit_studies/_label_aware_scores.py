"""Accuracy of a kernel and of the label-aware kernels over it, on splits of one set of images."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
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
        Shape (n, channels, side, side), float32.
    y
        Shape (n,), the classes.
    kernel
        The base kernel.
    gram
        Gram matrix of all images, shape (n, n), float32.
    given
        How many of them, the first, are for training; None if every draw splits them all.
    """

    x: Tensor
    y: Tensor
    kernel: Kernel
    gram: NDArray[np.float32]
    given: int | None = None


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
    right, base_right
        Which test images each of them classifies correctly, shapes (draws, strengths, m) and (draws, m); empty if the run
        did not keep it.
    """

    strengths: tuple[float, ...]
    base: NDArray[np.float64]
    test: dict[str, NDArray[np.float64]]
    validation: dict[str, NDArray[np.float64]]
    error: dict[str, NDArray[np.float64]]
    indefinite: dict[str, NDArray[np.bool_]]
    right: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    base_right: NDArray[np.bool_] | None = None

    @property
    def methods(self) -> tuple[str, ...]:
        """The label-aware kernels of the run."""
        return tuple(self.test)

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
        return np.array(np.max([self.by_validation(name) for name in self.methods], axis=0))

    def best_on_test(self) -> NDArray[np.float64]:
        """Return the test accuracy of the method and strength that are best on the test images, shape (draws,)."""
        return np.array(np.max([self.test[name].max(1) for name in self.methods], axis=0))

    def paired_error(self, method: str, on_test: bool = False) -> float | None:
        """Return the standard error of the gain of a method over the base kernel that the test images leave.

        The mean over draws of the images' differences, -1, 0 or 1; images are the same for both kernels. With the strength that
        validation chose, or with the one that is best on the test images. None if the run did not keep which it got right.
        """
        if self.base_right is None or self.base_right.shape[1] == 0:
            return None
        number = self.test[method].argmax(1) if on_test else self.chosen(method)
        own = np.take_along_axis(self.right[method], number[:, None, None], 1)[:, 0]
        gains = (own.astype(float) - self.base_right).mean(0) if len(own) == 1 else None
        return None if gains is None else float(gains.std(ddof=1) / len(gains) ** 0.5)


@dataclass(frozen=True)
class Scored:
    """The scores of one kernel on one split: one number per strength, or for the base kernel a single test accuracy.

    Attributes
    ----------
    test
        Accuracy on the test images.
    validation, error, indefinite
        As in :class:`Scores`; empty for the base kernel.
    right
        By strength, which test images are right: a hexadecimal number whose binary digits, as many as images, say so.
    """

    test: tuple[float, ...]
    validation: tuple[float, ...] = ()
    error: tuple[float, ...] = ()
    indefinite: tuple[bool, ...] = ()
    right: tuple[str, ...] = ()


def scores_from(found: Mapping[tuple[str, int], Scored], strengths: Sequence[float], draws: int) -> Scores:
    """Put together what each method gave on each draw."""

    def read(kind: str) -> dict[str, NDArray[Any]]:
        return {m: np.array([getattr(found[m, draw], kind) for draw in range(draws)]) for m in methods}

    methods = [m for m in METHODS if (m, 0) in found]
    base = np.array([found[BASE, draw].test[0] for draw in range(draws)])
    numbers = tuple(strengths), base, read("test"), read("validation"), read("error"), read("indefinite")
    kept = all(found[BASE, draw].right for draw in range(draws))
    right = (
        {m: np.array([[_bits(one) for one in found[m, d].right] for d in range(draws)]) for m in methods}
        if kept
        else {}
    )
    return Scores(*numbers, right, np.array([_bits(found[BASE, d].right[0]) for d in range(draws)]) if kept else None)


def _packed(right: NDArray[np.bool_]) -> str:
    """Write which images are right as a hexadecimal number; a one in front keeps their count."""
    return f"{int('1' + ''.join('01'[one] for one in right.tolist()), 2):x}"


def _bits(text: str) -> NDArray[np.bool_]:
    return np.array([digit == "1" for digit in f"{int(text, 16):b}"[1:]])


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
        """Split a pool, equally many of each class; test images are those given, if the pool has them apart."""
        if pool.given is None:
            rows, others = balanced_split(pool.y, [train, test], seed)
        else:
            (rows,) = balanced_split(pool.y[: pool.given], [train], seed)
            others = torch.arange(pool.given, pool.given + test)
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
        right, _ = _right(pool, draw, k, cross)
        return Scored((float(right.mean()),), right=(_packed(right),))
    x, x_test = pool.x[draw.rows].double(), pool.x[draw.others].double()
    generator = torch.Generator().manual_seed(seed)
    aware = LabelAware(pool.kernel, method, strengths, validation=validation, generator=generator)
    gram = aware.fit_gram(x, pool.y[draw.rows], gram=k)
    # K + s U for the chosen s gives U, and with it the kernels of all strengths: nothing is fitted again.
    part = (gram - k) / aware.strength
    part_test = (aware.from_base(cross, x_test, x) - cross) / aware.strength
    search = aware.search
    assert search is not None
    del gram
    found = [_right(pool, draw, k + strength * part, cross + strength * part_test) for strength in strengths]
    each, indefinite = zip(*found, strict=True)
    return Scored(
        tuple(float(one.mean()) for one in each),
        tuple(map(float, search.accuracies)),
        tuple(map(float, search.errors)),
        indefinite,
        tuple(map(_packed, each)),
    )


def _right(pool: Pool, draw: Draw, gram: Tensor, cross: Tensor) -> tuple[NDArray[np.bool_], bool]:
    """Tell which test images kernel regression without ridge gets right, and whether the matrix is indefinite."""
    classes, codes = torch.unique(pool.y[draw.rows], return_inverse=True)
    targets = torch.nn.functional.one_hot(codes).to(gram.dtype) - 1 / len(classes)
    found = solve(gram, targets, method="indefinite")
    named = classes[(cross @ found.value).argmax(1)]
    return (named == pool.y[draw.others]).numpy(), found.stats["negative"] > 0
