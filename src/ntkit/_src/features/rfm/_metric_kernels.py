"""Kernels k(M^1/2 x, M^1/2 z) and the gradients of predictors built from them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass, replace
from typing import Literal

import torch
from torch import Tensor

from ntkit._src.common import check_gram, check_pairs, fold_rows
from ntkit._src.kernels import Kernel
from ntkit.errors import InputError

_MEDIAN_ROWS = 2000
_BLOCK_ENTRIES = 1 << 22  # of a block of rows, with the graph of a differentiated kernel


class MetricKernel(ABC):
    """A kernel of transformed points u = M^1/2 x, and the gradients of f(u) = sum_j k(u, u_j) a_j with respect to u."""

    @abstractmethod
    def gram(self, u1: Tensor, u2: Tensor | None = None) -> Tensor:
        """Return k(u1_i, u2_j), shape (n1, n2)."""

    @abstractmethod
    def gradients(self, u: Tensor, gram: Tensor, coefficients: Tensor) -> Tensor:
        """Return the gradients of f at its own points u, shape (n, d), without each point's own term, shape (n, c, d).

        ``gram`` is k(u, u), shape (n, n), and ``coefficients`` are a, shape (n, c).
        """

    def diag(self, u: Tensor) -> Tensor:
        """Return k(u_i, u_i), shape (n,)."""
        return torch.cat([self.gram(one) for one in u.split(1)])[:, 0]

    def fit(self, u: Tensor) -> tuple[MetricKernel, Tensor]:
        """Return the kernel with all settings that depend on the points, such as a median bandwidth, and k(u, u)."""
        return self, self.gram(u)


@dataclass(frozen=True)
class DistanceKernel(MetricKernel):
    r"""A function of the distance r: Laplace :math:`e^{-r/L}` or Gaussian :math:`e^{-r^2 / 2L^2}`.

    Attributes
    ----------
    shape
        Which of the two.
    bandwidth, factor
        L; None: the median distance of the points times the factor.
    """

    shape: Literal["laplace", "gaussian"]
    bandwidth: float | None
    factor: float = 1.0

    def gram(self, u1: Tensor, u2: Tensor | None = None) -> Tensor:
        """Return k(u1_i, u2_j), shape (n1, n2)."""
        return self._values(squared_distances(u1, u2))

    def diag(self, u: Tensor) -> Tensor:
        """Return ones."""
        return u.new_ones(len(u))

    def _values(self, squares: Tensor) -> Tensor:
        """Turn squared distances into the kernel, in place."""
        assert self.bandwidth is not None
        if self.shape == "laplace":
            return squares.sqrt_().mul_(-1 / self.bandwidth).exp_()
        return squares.mul_(-0.5 / self.bandwidth**2).exp_()

    def gradients(self, u: Tensor, gram: Tensor, coefficients: Tensor) -> Tensor:
        """Return the gradients of f at its own points; coincident points, where the Laplace kernel has its cusp, do not count."""
        assert self.bandwidth is not None
        if self.shape == "laplace":
            # The slope -k / (L r), with r = -L log k; infinite at coincident points, which do not count.
            slopes = gram.log()
            torch.div(gram, slopes, out=slopes)
            slopes.nan_to_num_(nan=0.0, posinf=0.0, neginf=0.0)
            sign = 1.0
        else:
            slopes, sign = gram, -1.0
        # sum_j s_ij a_j (u_i - u_j)
        n, c = coefficients.shape
        weighted = (coefficients[:, :, None] * u[:, None, :]).reshape(n, -1)
        sums = (slopes @ coefficients)[:, :, None] * u[:, None, :] - (slopes @ weighted).view(n, c, -1)
        return sums.mul_(sign / self.bandwidth**2)

    def fit(self, u: Tensor) -> tuple[DistanceKernel, Tensor]:
        """Return the kernel with its bandwidth set, and k(u, u)."""
        squares = squared_distances(u)
        kernel = self._with_median(squares)
        return kernel, kernel._values(squares)

    def with_median(self, u: Tensor) -> DistanceKernel:
        """Return the kernel with its bandwidth set."""
        return self if self.bandwidth is not None else self._with_median(squared_distances(u[:_MEDIAN_ROWS]))

    def _with_median(self, squares: Tensor) -> DistanceKernel:
        if self.bandwidth is not None:
            return self
        middle = _median_distance(squares)
        return replace(self, bandwidth=self.factor * middle if middle > 0 else 1.0)


@dataclass(frozen=True)
class DifferentiableKernel(MetricKernel):
    """Any kernel that torch can differentiate, such as that of an infinitely wide network.

    Attributes
    ----------
    kernel, input_shape
        The kernel, and the shape of its inputs, into which rows are folded; None leaves them unchanged.
    """

    kernel: Kernel
    input_shape: tuple[int, ...] | None = None

    def fit(self, u: Tensor) -> tuple[MetricKernel, Tensor]:
        """Return the kernel and k(u, u), which must be a Gram matrix."""
        return self, check_gram(self.gram(u))

    def gram(self, u1: Tensor, u2: Tensor | None = None) -> Tensor:
        """Return k(u1_i, u2_j), shape (n1, n2)."""
        x2 = None if u2 is None else fold_rows(u2, self.input_shape)
        with torch.no_grad():
            values = self.kernel(fold_rows(u1, self.input_shape), x2)
        return check_pairs(values, (len(u1), len(u1 if u2 is None else u2)))

    def diag(self, u: Tensor) -> Tensor:
        """Return k(u_i, u_i), shape (n,)."""
        with torch.no_grad():
            return self.kernel.diag(fold_rows(u, self.input_shape))

    def gradients(self, u: Tensor, gram: Tensor, coefficients: Tensor) -> Tensor:
        """Differentiate the kernel a block of rows at a time."""
        n, c = coefficients.shape
        size = max(1, _BLOCK_ENTRIES // (4 * n))
        result = u.new_zeros(n, c, u.shape[1])
        apart = squared_distances(u) > 0
        for start in range(0, n, size):
            with torch.enable_grad():
                block = u[start : start + size].detach().requires_grad_()
                values = self.kernel(fold_rows(block, self.input_shape), fold_rows(u.detach(), self.input_shape))
                if not values.requires_grad:
                    raise InputError(
                        f"the kernel must be differentiable in its first argument by torch. {type(self.kernel).__name__} returns "
                        "values without a gradient: compute them with torch operations on the inputs."
                    )
                outputs = torch.where(apart[start : start + size], values, 0) @ coefficients
                for column in range(c):
                    (gradient,) = torch.autograd.grad(outputs[:, column].sum(), block, retain_graph=column < c - 1)
                    result[start : start + size, column] = gradient
        if not bool(torch.isfinite(result).all()):
            raise InputError(
                f"the gradients of {type(self.kernel).__name__} must be finite. Got NaN or infinite ones: "
                "give derivatives that are infinite at a kink some finite value."
            )
        return result


def squared_distances(u1: Tensor, u2: Tensor | None = None) -> Tensor:
    """Return |u1_i - u2_j|^2, shape (n1, n2), exactly zero where the points agree."""
    other = u1 if u2 is None else u2
    center = other.mean(0)  # centring reduces cancellation
    a = u1 - center
    b = a if u2 is None else u2 - center
    na, nb = a.square().sum(1), b.square().sum(1)
    squares = a @ b.T
    squares.mul_(-2).add_(na[:, None]).add_(nb)
    if u2 is None:
        squares.fill_diagonal_(torch.inf)
    # Small distances, which rounding of the norms may have spoilt, are recomputed without cancellation.
    noise = 1e4 * torch.finfo(u1.dtype).eps * (float(na.max()) + float(nb.max()))
    if bool(squares.min() <= noise):
        rows, columns = torch.nonzero(squares <= noise, as_tuple=True)
        for part in torch.arange(len(rows), device=rows.device).split(_BLOCK_ENTRIES // u1.shape[1] + 1):
            i, j = rows[part], columns[part]
            squares[i, j] = (u1[i] - other[j]).square().sum(1)
    return squares.fill_diagonal_(0) if u2 is None else squares


def _median_distance(squares: Tensor, most: int = _MEDIAN_ROWS) -> float:
    """Return the median distance between distinct points, among the first ``most`` if there are more."""
    n = min(len(squares), most)
    if n < 2:
        return 0.0
    above = squares[*torch.triu_indices(n, n, 1, device=squares.device)]
    return float(above.median().sqrt())
