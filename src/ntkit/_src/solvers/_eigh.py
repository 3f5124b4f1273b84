"""Eigendecomposition of a Gram matrix: one decomposition serves every function of the matrix."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ntkit._src.common import check_gram
from ntkit.errors import SingularKernelError

from ._lapack import eigh
from ._method import check_scale

# Rounding moves the eigenvalues of an n x n matrix, n up to some thousands, by a few eps times the largest.
_ROUNDING = 10.0


@dataclass(frozen=True)
class Spectrum:
    r"""Eigenvalues and eigenvectors of a Gram matrix, :math:`K = V \operatorname{diag}(\lambda) V^T`."""

    values: Tensor  # shape (n,), increasing
    vectors: Tensor  # V, shape (n, n): column k belongs to ``values[k]``
    scale: float  # trace(K)/n, the unit of every ridge
    tolerance: float  # eigenvalues of at most this magnitude are rounding

    @property
    def rank(self) -> int:
        """Number of eigenvalues above rounding."""
        return int((self.values > self.tolerance).sum())

    @property
    def status(self) -> str:
        """One English sentence: how many eigenvalues could be distinguished from rounding."""
        n, lost = len(self.values), len(self.values) - self.rank
        if not lost:
            return f"Eigendecomposition; all {n} eigenvalues are above rounding."
        return (
            f"Eigendecomposition; {lost} of {n} eigenvalues are rounding (at most {self.tolerance:.1e}, the largest being "
            f"{float(self.values[-1]):.1e}) and were set to zero."
        )

    def shifted(self, ridge: float) -> Tensor:
        """Return the eigenvalues of K + ridge trace(K)/n I, rounding set to zero, shape (n,).

        Raises SingularKernelError if one is negative by more than rounding: the ridge is too small for an indefinite matrix.
        """
        lowest = float(self.values[0])
        if lowest < -self.tolerance and lowest + ridge * self.scale <= self.tolerance:
            raise SingularKernelError(
                f"the Gram matrix is not positive semidefinite: its smallest eigenvalue is {lowest:.1e}, the largest "
                f"{float(self.values[-1]):.1e}. Along it gradient flow diverges, and no Gaussian process has that variance. "
                "Kernel regression still has a solution, ntkit.solve(gram, y, method='indefinite'); otherwise check the kernel, "
                f"or pass a ridge above {-lowest / self.scale:.1e} (got {ridge:.1e})."
            )
        return self.clean + ridge * self.scale

    @property
    def clean(self) -> Tensor:
        """The eigenvalues with those that are rounding set to zero, shape (n,)."""
        return torch.where(self.values.abs() > self.tolerance, self.values, torch.zeros_like(self.values))


def decompose(gram: Tensor, overwrite: bool = False) -> Spectrum:
    """Decompose a Gram matrix of shape (n, n), whose memory the eigenvectors may ``overwrite``; its trace must be positive."""
    matrix = check_gram(gram).detach()
    scale = check_scale(float(matrix.diagonal().double().mean()))
    values, vectors = eigh(matrix, overwrite)
    return Spectrum(values, vectors, scale, _tolerance(values))


def _tolerance(values: Tensor) -> float:
    eps = torch.finfo(values.dtype).eps
    largest, lowest = float(values[-1]), float(values[0])
    rounding = _ROUNDING * eps * largest
    # Random rounding of the entries moves eigenvalues by at most sqrt(n) eps max|K|; more means an indefinite matrix.
    if rounding < -2 * lowest <= 2 * rounding * len(values) ** 0.5:
        return -2 * lowest
    return rounding
