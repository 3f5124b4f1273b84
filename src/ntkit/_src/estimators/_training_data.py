"""What a solver is given: where the kernel comes from, points, targets, and weights and noise of the points."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from numbers import Number
from typing import Any, Literal, cast

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.utils import check_array
from torch import Tensor, nn

from ntkit._src.common import restored_generator, row_blocks, shown
from ntkit._src.gram import ClusterKernel, DenseGram, GramOperator, KernelGram
from ntkit._src.kernels import InfiniteWidth, InfiniteWidthKernel, Kernel, infinite_width
from ntkit.errors import InputError, InputTypeError

Which = Literal["ntk", "nngp"]

_HIDDEN_LAYERS = 3
# The limit does not depend on the width; a small width makes the module cheap to build and to trace.
_HIDDEN_WIDTH = 16


@dataclass(frozen=True)
class KernelSource:
    """The kernel that the parameters describe."""

    kernel: Kernel | None  # None if the rows of X are those of a Gram matrix
    # Of the network, so that a tuner tries other gains without tracing it again; None for the user's own kernel.
    limit: InfiniteWidth | None = None
    which: Which = "ntk"


def kernel_of(limit: InfiniteWidth, which: Which) -> InfiniteWidthKernel:
    """Return the kernel of a limit that a name refers to."""
    return limit.ntk if which == "ntk" else limit.nngp


def read_source(
    kernel: str | Kernel,
    module: nn.Module | None,
    input_shape: Sequence[int] | None,
    n_features: int,
    w_std: float | None = None,
    b_std: float | None = None,
) -> KernelSource:
    """Return the source that an estimator's parameters describe; this traces a module, and nothing after it does."""
    if isinstance(kernel, Kernel):
        if module is not None:
            raise InputError(
                f"module and your own kernel specify two kernels. Got module={type(module).__name__} and "
                f"kernel={type(kernel).__name__}: leave module out, or write kernel='ntk' or 'nngp'."
            )
        return KernelSource(kernel)
    if not isinstance(kernel, str) or kernel not in ("ntk", "nngp", "precomputed"):
        raise InputError(f"kernel must be 'ntk', 'nngp', 'precomputed' or an ntkit Kernel. Got {shown(kernel)}.")
    if kernel == "precomputed":
        if module is not None or input_shape is not None:
            raise InputError(
                "kernel='precomputed' takes the Gram matrix as X, so module and input_shape must be None. "
                "Leave them out, or write kernel='ntk' and pass the inputs."
            )
        return KernelSource(None)
    limit = infinite_width(build_module(module, input_shape, n_features), w_std=w_std, b_std=b_std)
    which = cast(Which, kernel)
    return KernelSource(kernel_of(limit, which), limit, which)


def build_module(module: nn.Module | None, input_shape: Sequence[int] | None, n_features: int) -> nn.Module:
    """Return the network whose kernel is used: the given one, or the default."""
    if module is None:
        return default_module(n_features, flatten=input_shape is not None)
    if not isinstance(module, nn.Module):
        raise InputTypeError(
            f"module must be a torch.nn.Module or None. Got {shown(module)} of type {type(module).__name__}: "
            "pass an instance such as nn.Sequential(...)."
        )
    return module


def default_module(n_features: int, depth: int = _HIDDEN_LAYERS, flatten: bool = False) -> nn.Module:
    """Return a ReLU network of some hidden layers."""
    layers: list[nn.Module] = [nn.Flatten()] if flatten else []
    # torch draws initial weights from its global generator; fitting must not advance the user's.
    with restored_generator():
        width = n_features
        for _ in range(depth):
            layers += [nn.Linear(width, _HIDDEN_WIDTH), nn.ReLU()]
            width = _HIDDEN_WIDTH
        layers.append(nn.Linear(width, 1))
    return nn.Sequential(*layers)


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

    def scale(self, columns: Tensor, power: int = 1) -> Tensor:
        """Return S^power times columns, shape (n,) or (n, k).

        S brings targets into the system and its solution to the coefficients a, S^-1 its predictions to those of the points.
        """
        if self.roots is None:
            return columns
        roots = self.roots**power
        return roots * columns if columns.ndim == 1 else roots[:, None] * columns


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
