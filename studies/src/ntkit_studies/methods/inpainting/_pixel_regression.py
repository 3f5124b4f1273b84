"""Kernel regression over the pixels of an image: sparse for a stationary prior, dense for a prior of data."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit import solve
from ntkit.errors import InputError, SingularKernelError
from ntkit.extending import Progress, check_gram_memory

from ._kernel import InpaintingKernel
from ._sparse_system import solve_sparse

__all__ = ["DenseRegression", "Regressed", "Regression", "SparseRegression"]

_DENSE_PIXELS = 1500
_DENSE_IF_FULL = 20_000  # where nearly all pixels are near, a factorisation costs less than some hundred products


@dataclass(frozen=True, eq=False)
class Regressed:
    """What a regression gives.

    Attributes
    ----------
    values
        At the pixels asked for, shape (m, channels).
    status
        One sentence.
    iterations
        Of conjugate gradients; 0 for a factorisation.
    residual
        The largest over channels of ||K a - y|| / ||y||.
    """

    values: NDArray[np.float64]
    status: str
    iterations: int
    residual: float


class Regression(Protocol):
    """A regression whose matrices are there already."""

    def __call__(
        self, y: NDArray[np.float64], ridge: float, tolerance: float, progress: Progress | None = None
    ) -> Regressed:
        """Regress on values of the known pixels.

        Parameters
        ----------
        y
            Shape (n, channels).
        ridge
            Relative to the mean of the kernel's diagonal.
        tolerance
            Of the relative residual of conjugate gradients.
        progress
            Called with the iterations done and the most there may be.
        """


@dataclass(frozen=True, eq=False)
class SparseRegression:
    """Regression with a kernel that is a constant plus a sparse matrix.

    Attributes
    ----------
    kernel
        Of the network.
    shape
        Height and width of the image.
    dense
        Whether to factorise the whole matrix; None where that costs less than conjugate gradients.
    max_iterations
        After which conjugate gradients give up.
    """

    kernel: InpaintingKernel
    shape: tuple[int, int]
    dense: bool | None
    max_iterations: int

    def __post_init__(self) -> None:
        if min(self.shape) < self.kernel.period:
            fits = min(self.shape).bit_length() - 1
            raise InputError(
                f"an image of {self.shape[0]} x {self.shape[1]} pixels cannot be halved {self.kernel.levels} times. Write "
                f"levels={fits} or less."
            )

    def between(self, known: NDArray[np.int64], asked: NDArray[np.int64]) -> Regression:
        """Set up the regression of the pixels asked for, (m,) flat numbers, on known ones, (n,)."""
        kernel, width = self.kernel, self.shape[1]
        least = 2 * kernel.reach
        tall, wide = (max(least + -least % kernel.period, side + -side % kernel.period) for side in self.shape)
        note = "" if (tall, wide) == self.shape else f" The image was padded to {tall} x {wide} and cut back."
        known, asked = (index // width * wide + index % width for index in (known, asked))
        cross = kernel.sparse(tall, wide, asked, known)

        def predict(weights: NDArray[np.float64]) -> NDArray[np.float64]:
            values: NDArray[np.float64] = cross @ weights + kernel.constant * weights.sum(0)
            return values

        near = min(1.0, (2 * kernel.reach - 1) ** 2 / (tall * wide))
        cheap = len(known) <= max(_DENSE_PIXELS, _DENSE_IF_FULL * near)
        if cheap if self.dense is None else self.dense:
            check_gram_memory(len(known), len(known), torch.float64, matrices=3, what="the kernel of the known pixels")
            gram = torch.from_numpy(kernel.block(tall, wide, known, known))

            def factorise(
                y: NDArray[np.float64], ridge: float, tolerance: float, progress: Progress | None = None
            ) -> Regressed:
                solution = solve(gram, torch.from_numpy(y), ridge=ridge)
                values = predict(solution.value.numpy())
                return Regressed(values, f"{solution.status}{note}", 0, solution.stats["residual"])

            return factorise
        system = kernel.sparse(tall, wide, known, known)
        scale = float(system.diagonal().mean()) + kernel.constant

        def iterate(
            y: NDArray[np.float64], ridge: float, tolerance: float, progress: Progress | None = None
        ) -> Regressed:
            found = solve_sparse(system, kernel.constant, ridge * scale, y, tolerance, self.max_iterations, progress)
            if not found.converged:
                raise SingularKernelError(
                    f"conjugate gradients stopped after {found.iterations} iterations with a relative residual of "
                    f"{found.residual:.1e}, above {tolerance:.1e}. Raise max_iterations, tolerance or ridge."
                )
            how = f"Solved by {found.iterations} conjugate gradient iterations; relative residual {found.residual:.1e}."
            return Regressed(predict(found.value), how + note, found.iterations, found.residual)

        return iterate


@dataclass(frozen=True, eq=False)
class DenseRegression:
    """Regression with a kernel of no structure.

    Attributes
    ----------
    gram
        The kernel between all pixels, shape (pixels, pixels), float64.
    """

    gram: Tensor

    def between(self, known: NDArray[np.int64], asked: NDArray[np.int64]) -> Regression:
        """Set up the regression of the pixels asked for, (m,) flat numbers, on known ones, (n,)."""
        first, second = torch.from_numpy(known), torch.from_numpy(asked)
        system, cross = self.gram[first][:, first].contiguous(), self.gram[second][:, first]

        def regress(
            y: NDArray[np.float64], ridge: float, tolerance: float, progress: Progress | None = None
        ) -> Regressed:
            solution = solve(system, torch.from_numpy(y), ridge=ridge)
            return Regressed((cross @ solution.value).numpy(), str(solution.status), 0, solution.stats["residual"])

        return regress
