"""What a solver is given: kernel, points, targets, and weights and noise of the points."""

from __future__ import annotations

from dataclasses import dataclass
from numbers import Number
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array
from torch import Tensor

from ntkit._src.common import row_blocks, shown
from ntkit._src.gram import ClusterKernel, DenseGram, GramOperator, KernelGram
from ntkit._src.kernels import Kernel
from ntkit.errors import InputError

from ._kernel_source import KernelSource

_BLOCK_ROWS = 1024


@dataclass(frozen=True)
class Weighting:
    r"""The system :math:`(K + N + \rho W^{-1})\, a = y` of weights W and noise variances N of the points.

    It is the minimum of :math:`\sum_i w_i (f(x_i) - y_i)^2 + \rho |f|_K^2` (N = 0). With :math:`S = W^{1/2}` it reads
    :math:`(S (K + N) S + \rho I)\, S^{-1} a = S y`: a system with one ridge, which every solver and the leave-one-out formula
    accept. An integer weight is equivalent to that many copies of the point.
    """

    roots: Tensor | None = None  # S, shape (n,), all positive; None if all are one
    noise: Tensor | None = None  # the diagonal of N, shape (n,), in the units of K; None if it is zero

    @property
    def plain(self) -> bool:
        """Whether all points count alike, without noise."""
        return self.roots is None and self.noise is None

    @property
    def weights(self) -> Tensor | None:
        """The weights, shape (n,); None if all are one."""
        return None if self.roots is None else self.roots.square()

    def ridge_unit(self, diagonal: Tensor) -> float:
        """Return the factor from ridges relative to trace(K)/n to those of the system, for the diagonal of K, shape (n,)."""
        if self.plain:
            return 1.0
        weights = torch.ones_like(diagonal) if self.roots is None else self.roots.square()
        if self.noise is None:  # whatever K is, even if it is indefinite
            return len(weights) / float(weights.double().sum())
        # trace(K)/n of the points, each counted with its weight.
        unit = float((weights * diagonal).double().sum() / weights.double().sum())
        return unit / float((weights * (diagonal + self.noise)).double().mean())

    def apply_to_gram(self, gram: Tensor, owned: bool) -> Tensor:
        """Return S (K + N) S, in place of K if that may be overwritten."""
        if self.plain:
            return gram
        matrix = gram if owned else gram.clone()
        if self.noise is not None:
            matrix.diagonal().add_(self.noise)
        if self.roots is not None:
            for rows in row_blocks(len(matrix), _BLOCK_ROWS):
                matrix[rows] *= self.roots[rows, None] * self.roots
        return matrix

    def scale(self, columns: Tensor) -> Tensor:
        """Return S times columns, shape (n,) or (n, k): targets into the system, its solution to the coefficients a."""
        if self.roots is None:
            return columns
        return self.roots * columns if columns.ndim == 1 else self.roots[:, None] * columns

    def unscale(self, columns: Tensor) -> Tensor:
        """Return S^-1 times columns, shape (n,) or (n, k): predictions of the system to those of the points."""
        if self.roots is None:
            return columns
        return columns / (self.roots if columns.ndim == 1 else self.roots[:, None])


@dataclass(frozen=True)
class TrainingData:
    """What a solver is given."""

    source: KernelSource
    x: Tensor | GramOperator  # the inputs, shape (n, ...); K(X, X), shape (n, n), if the source has no kernel
    y: Tensor  # the targets, shape (n,) or (n, k)
    weighting: Weighting
    left_out: bool  # whether predictions of points by models without them are wanted
    client: Any = None  # of the Dask cluster that computes Gram matrices; None for this process

    @property
    def points(self) -> Tensor:
        """The inputs, in memory."""
        return self.x.to_dense() if isinstance(self.x, GramOperator) else self.x

    def gram(self, kernel: Kernel | None) -> Tensor:
        """Return K(X, X), shape (n, n), in memory."""
        return self.points if kernel is None else self._placed(kernel)(self.points)

    def operator(self, kernel: Kernel | None) -> GramOperator:
        """Return K(X, X), shape (n, n), of which a solver reads parts."""
        if isinstance(self.x, GramOperator):
            return self.x
        return DenseGram(self.x) if kernel is None else KernelGram(self._placed(kernel), self.x)

    def _placed(self, kernel: Kernel) -> Kernel:
        return kernel if self.client is None else ClusterKernel(kernel, self.client)


def kept_rows(weights: NDArray[Any] | None) -> Any:
    """Return an index of the points of positive weight, shape (n,): a mask, or all of them."""
    return slice(None) if weights is None or weights.all() else weights > 0


def read_weights(sample_weight: Any, X: NDArray[Any]) -> NDArray[Any] | None:
    """Return the weights as an array of shape (n,), or raise an error; None if none were given."""
    if sample_weight is None:
        return None
    if isinstance(sample_weight, Number):
        sample_weight = np.full(len(X), sample_weight)
    weights = check_array(sample_weight, ensure_2d=False, dtype=np.float64, input_name="sample_weight")
    if weights.shape != (len(X),):
        raise InputError(f"sample_weight must have shape ({len(X)},), one for each row of X. Got {weights.shape}.")
    if weights.min() < 0:
        raise InputError("Negative values in sample_weight: weights must not be negative.")
    if not weights.any():
        raise InputError("every weight in sample_weight is zero: at least one must be positive.")
    return np.asarray(weights)


def read_noise(noise: Any, n: int) -> NDArray[Any] | None:
    """Return the noise variances as an array of shape (n,), or raise an error that says what is wrong."""
    if noise is None:
        return None
    try:
        values = np.broadcast_to(np.asarray(noise, dtype=np.float64), (n,))
    except (TypeError, ValueError) as error:
        raise InputError(f"noise must be a variance, or one for each of the {n} points. Got {shown(noise)}.") from error
    if not (np.isfinite(values).all() and (values >= 0).all()):
        raise InputError("noise must be finite and not negative: the variance of each target.")
    return values
