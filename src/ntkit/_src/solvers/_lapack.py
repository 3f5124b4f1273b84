"""In-place LAPACK: large matrices on the CPU are factorised in their own memory, whereas torch works on copies."""

from __future__ import annotations

from typing import Any

import scipy.linalg
import torch
from scipy.linalg import lapack
from threadpoolctl import threadpool_limits  # type: ignore[import-untyped]
from torch import Tensor

# Below this size, torch's copies cost nothing, and it lets other Python threads run.
_LARGE = 1024
_BLOCK_ROWS = 1024


def run_lapack(routine: str, matrix: Tensor, *others: Any, **options: Any) -> Any:
    """Call a routine, named without its dtype's letter, on the transpose of a matrix, which is in Fortran order."""
    function = getattr(lapack, ("d" if matrix.dtype == torch.float64 else "s") + routine)
    with threadpool_limits(torch.get_num_threads(), user_api="blas"):
        return function(matrix.numpy().T, *others, **options)


def cholesky(matrix: Tensor, shift: float) -> tuple[Tensor, bool]:
    """Return L with L L^T = matrix + shift I, and whether it exists."""
    if matrix.device.type != "cpu" or len(matrix) < _LARGE:
        shifted = matrix.clone()
        shifted.diagonal().add_(shift)
        lower, info = torch.linalg.cholesky_ex(shifted)
        return lower, int(info) == 0
    # Copy the whole matrix: half of it, in fresh zeros, takes a third longer to factorise.
    upper = matrix.clone(memory_format=torch.contiguous_format)
    upper.diagonal().add_(shift)
    _, info = run_lapack("potrf", upper, lower=1, clean=0, overwrite_a=1)
    return upper.triu_().mT, info == 0


def reliable_pivots(lower: Tensor, diagonal: Tensor) -> bool:
    """Return whether the pivots of a factor, shape (n, n), of a matrix with this diagonal are more than rounding."""
    # A pivot is a difference of numbers as large as the diagonal entry: below a few eps of that, it is only rounding.
    return bool((lower.diagonal() ** 2 > 4 * torch.finfo(lower.dtype).eps * diagonal).all())


def inverse_diagonal(lower: Tensor, overwrite: bool = False) -> Tensor:
    """Return the diagonal of (L L^T)^-1, shape (n,), in n^3 / 3; ``overwrite`` lets L^-1 take the memory of L."""
    if lower.device.type != "cpu":
        inverse: Tensor = torch.linalg.inv(lower)
        return inverse.square().sum(0)
    upper = lower.mT
    memory = upper if overwrite and upper.is_contiguous() else upper.clone(memory_format=torch.contiguous_format)
    run_lapack("trtri", memory, lower=1, overwrite_c=1)
    return torch.cat([block.square().sum(1) for block in torch.split(memory, _BLOCK_ROWS)])


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
