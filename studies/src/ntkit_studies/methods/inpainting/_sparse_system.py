"""A constant plus a sparse matrix: conjugate gradients for the sparse part, the rank-one part in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy.sparse
from numpy.typing import NDArray

from ntkit.extending import Progress

__all__ = ["SparseSolution", "solve_sparse"]


@dataclass(frozen=True, eq=False)
class SparseSolution:
    """The result of the iteration.

    Attributes
    ----------
    value
        a, shape (n, k).
    iterations
        Iterations of conjugate gradients.
    residual
        The largest over the columns of ||A a - y|| / ||y|| for the whole matrix A.
    converged
        Whether that is within the tolerance.
    """

    value: NDArray[np.float64]
    iterations: int
    residual: float
    converged: bool


def solve_sparse(
    sparse: scipy.sparse.csr_array,
    constant: float,
    shift: float,
    y: NDArray[np.float64],
    tolerance: float,
    max_iterations: int,
    progress: Progress | None = None,
) -> SparseSolution:
    r"""Solve :math:`(S + \rho I + c\, 1 1^T)\, a = y` for several columns.

    Conjugate gradients with the diagonal as preconditioner solve :math:`(S + \rho I) [A, b] = [y, 1]`; then
    :math:`a = A - b\, c\, (1^T A) / (1 + c\, 1^T b)` (Sherman and Morrison).

    Parameters
    ----------
    sparse
        S, shape (n, n), symmetric and positive definite with the shift.
    constant, shift
        c and rho.
    y
        Shape (n, k).
    tolerance
        Tolerance of the relative residual of the whole system.
    max_iterations
        Iterations after which it gives up.
    progress
        Called with the number of iterations done and the maximum.
    """
    matrix = sparse + shift * scipy.sparse.eye_array(len(y), format="csr") if shift else sparse
    columns = np.concatenate([y, np.ones((len(y), 1))], 1)
    inverse = 1 / matrix.diagonal()[:, None]
    solution = np.zeros_like(columns)
    rest = columns.copy()
    scaled = inverse * rest
    direction = scaled.copy()
    product = (rest * scaled).sum(0)
    norms = np.linalg.norm(columns, axis=0)
    norms[norms == 0] = 1.0
    iterations, aim = 0, 0.1 * tolerance
    while iterations < max_iterations and (np.linalg.norm(rest, axis=0) > aim * norms).any():
        image = matrix @ direction
        curvature = (direction * image).sum(0)
        if (curvature[product > 0] <= 0).any():
            break  # not positive definite: no descent step exists
        step = np.divide(product, curvature, out=np.zeros_like(product), where=curvature > 0)
        solution += step * direction
        rest -= step * image
        scaled = inverse * rest
        before, product = product, (rest * scaled).sum(0)
        direction = scaled + np.divide(product, before, out=np.zeros_like(product), where=before > 0) * direction
        iterations += 1
        if progress is not None:
            progress(iterations, max_iterations)
    own, ones = solution[:, :-1], solution[:, -1:]
    value: Any = own - ones * (constant * own.sum(0) / (1 + constant * ones.sum()))
    left = y - (matrix @ value + constant * value.sum(0))
    sizes = np.linalg.norm(y, axis=0)
    residual = float((np.linalg.norm(left, axis=0) / np.where(sizes > 0, sizes, 1)).max())
    return SparseSolution(value, iterations, residual, residual <= tolerance)
