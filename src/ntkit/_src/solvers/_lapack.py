"""In-place LAPACK: large matrices on the CPU are factorised in their own memory, whereas torch works on copies."""

from __future__ import annotations

import scipy.linalg
import torch
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

__all__ = ["cholesky", "eigh"]

# Below this size, torch's copies cost nothing, and it lets other Python threads run.
_LARGE = 1024


def cholesky(matrix: Tensor, shift: float) -> tuple[Tensor, bool]:
    """Return L with L L^T = matrix + shift I, and whether it exists."""
    if matrix.device.type != "cpu" or len(matrix) < _LARGE:
        shifted = matrix.clone()
        shifted.diagonal().add_(shift)
        lower, info = torch.linalg.cholesky_ex(shifted)
        return lower, int(info) == 0
    # Copy the whole matrix: half of it, in fresh zeros, takes a third longer to factorise. What C calls the upper
    # triangle is Fortran's lower one.
    upper = matrix.clone(memory_format=torch.contiguous_format)
    upper.diagonal().add_(shift)
    factorise = lapack.dpotrf if matrix.dtype == torch.float64 else lapack.spotrf
    with threadpool_limits(torch.get_num_threads(), user_api="blas"):
        _, info = factorise(upper.numpy().T, lower=1, clean=0, overwrite_a=1)
    return upper.triu_().mT, info == 0


def eigh(matrix: Tensor, overwrite: bool) -> tuple[Tensor, Tensor]:
    """Return eigenvalues and eigenvectors; on the CPU the latter may overwrite the matrix."""
    if matrix.device.type != "cpu" or len(matrix) < _LARGE:
        values, vectors = torch.linalg.eigh(matrix)
        return values, vectors
    # The transpose of a symmetric matrix is in Fortran order. Divide and conquer is used because the leaner "evr" makes the
    # vectors a thousand times less orthogonal.
    memory = matrix if overwrite and matrix.is_contiguous() else matrix.clone(memory_format=torch.contiguous_format)
    with threadpool_limits(torch.get_num_threads(), user_api="blas"):
        found = scipy.linalg.eigh(memory.numpy().T, driver="evd", overwrite_a=True, check_finite=False)
    return torch.from_numpy(found[0]), torch.from_numpy(found[1])
