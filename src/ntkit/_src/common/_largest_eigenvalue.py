"""The largest eigenvalue of a symmetric operator from products with vectors."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # which imports scipy.sparse.linalg when it is first used
import torch
from numpy.typing import NDArray
from torch import Tensor

__all__ = ["largest_eigenvalue"]


def largest_eigenvalue(product: Callable[[Tensor], Tensor], size: int, like: Tensor, tol: float = 1e-10) -> float:
    """Return the largest eigenvalue of a symmetric operator on vectors of shape (size,), by the Lanczos method.

    The vectors have the dtype and device of ``like``; ``tol`` is the relative accuracy.
    """
    if size < 3:  # too small for the Lanczos method
        columns = torch.stack([product(row) for row in torch.eye(size).to(like)])
        return float(torch.linalg.eigvalsh(columns.double())[-1])

    def apply(vector: NDArray[Any]) -> NDArray[Any]:
        return product(torch.as_tensor(vector.ravel()).to(like)).detach().double().cpu().numpy()

    start = np.random.default_rng(0).normal(size=size)
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=apply, dtype=float)
    found = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, return_eigenvectors=False, tol=tol)
    return float(found[0])
