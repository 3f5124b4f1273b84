"""Gram matrices: what a kernel must return, what a linear system needs, why one is singular, its largest eigenvalue."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import scipy  # which imports scipy.sparse.linalg when it is first used
import torch
from linear_operator.operators import LinearOperator
from numpy.typing import NDArray
from torch import Tensor

from ntkit.errors import InputError, InputTypeError

from ._batches import check_tensor
from ._blocks import block_rows, row_blocks

__all__ = ["check_gram", "check_pairs", "largest_eigenvalue", "why_singular"]

_BLOCK_ROWS = 512  # two blocks fit into the cache


def check_pairs(values: object, shape: tuple[int, ...], call: str = "kernel(x)") -> Tensor:
    """Return what a kernel gave for some points, shape (n1, n2), or (n,) for a diagonal; messages name the ``call``."""
    if isinstance(values, Tensor) and tuple(values.shape) == shape:
        return values
    got = f"shape {tuple(values.shape)}" if isinstance(values, Tensor) else type(values).__name__
    why = "Return one number for each pair of points."
    if isinstance(values, Tensor) and values.ndim == len(shape) and 0 not in shape:
        outputs = values.shape[0] // shape[0]
        if outputs > 1 and tuple(values.shape) == tuple(outputs * n for n in shape):
            why = (
                f'A row for each of {outputs} outputs comes from ntkit.empirical(module, output="full"): write output="trace", '
                "which this function takes, or the index of one output."
            )
    raise InputError(f"{call} must be a tensor of shape {shape}, one number for a pair of points. Got {got}. {why}")


def check_gram(gram: Tensor | LinearOperator) -> Tensor:
    """Return the Gram matrix as a tensor, evaluated if it is stored or implicit, or raise an error that says what is wrong."""
    if isinstance(gram, LinearOperator):
        gram = gram.to_dense()
    check_tensor("gram", gram)
    if gram.dtype not in (torch.float32, torch.float64):
        raise InputTypeError(
            f"the Gram matrix must be float32 or float64. Got {gram.dtype}: write gram.to(torch.float64)."
        )
    if gram.ndim != 2 or gram.shape[0] != gram.shape[1] or gram.shape[0] == 0:
        raise InputError(f"the Gram matrix must have shape (n, n) with n > 0. Got {tuple(gram.shape)}.")
    matrix = gram.detach()
    largest, asymmetry = 0.0, 0.0
    blocks = list(row_blocks(len(matrix), _BLOCK_ROWS))
    for rows in blocks:
        # A NaN or an infinity anywhere shows in the extremes; no mask is needed.
        low, high = torch.aminmax(matrix[rows])
        extreme = max(abs(float(low)), abs(float(high)))
        if not math.isfinite(extreme):
            raise InputError("the Gram matrix has NaN or infinite entries; check the inputs of the kernel.")
        largest = max(largest, extreme)
    for number, rows in enumerate(blocks):
        for columns in blocks[number:]:
            low, high = torch.aminmax(matrix[rows, columns] - matrix[columns, rows].T)
            asymmetry = max(asymmetry, -float(low), float(high))
    if asymmetry > 1e-4 * largest:
        raise InputError(
            f"the Gram matrix must be symmetric. Got entries that differ from their mirror image by up to "
            f"{asymmetry:.1e}, the largest being {largest:.1e}: pass K(x, x), not K(x1, x2)."
        )
    return gram


def why_singular(gram: Tensor) -> str:
    """Return a clause that says which inputs of a singular Gram matrix, shape (n, n), the kernel cannot tell apart.

    Two points coincide for the kernel where :math:`K_{ij}^2 = K_{ii} K_{jj}` to rounding. With :math:`K_{ii} = K_{jj}` they
    are the same input; otherwise one is a multiple of the other, and the network has no bias to tell them apart.
    """
    matrix = gram.detach()
    diagonal = matrix.diagonal()
    roots = diagonal.clamp_min(0).sqrt()
    rounding = 1e4 * torch.finfo(matrix.dtype).eps if matrix.dtype == torch.float64 else 1e-6
    columns = torch.arange(len(matrix), device=matrix.device)
    same: list[Tensor] = []  # pairs of rows, shape (m, 2)
    multiples: list[Tensor] = []
    for rows in row_blocks(len(matrix), block_rows(len(matrix), 4 * matrix.element_size())):
        bound = roots[rows, None] * roots
        close = (matrix[rows].abs() >= (1 - rounding) * bound) & (bound > 0) & (columns > columns[rows, None])
        own, other = diagonal[rows, None], diagonal
        equal = (own - other).abs() <= rounding * torch.maximum(own, other)
        for pairs, found in ((same, close & equal), (multiples, close & ~equal)):
            if bool(found.any()):
                pairs.append(found.nonzero() + torch.tensor([rows.start, 0], device=found.device))
    reasons = []
    if same:
        reasons.append(
            f"{_of_pairs(same, 'are the same input to the kernel')}, as integer and boolean columns make likely"
        )
    if multiples:
        reasons.append(
            f"{_of_pairs(multiples, 'are multiples of each other')}, which a network without biases cannot tell apart: "
            "pass b_std=0.1 or so"
        )
    if bool((diagonal <= 0).any()):
        reasons.append("the kernel of some rows with themselves is zero, as that of zero rows without biases")
    if not reasons:
        reasons.append("no two rows coincide, but there are more rows than the kernel can tell apart")
    return "; ".join(reasons)


def _of_pairs(pairs: list[Tensor], what: str) -> str:
    """Say what the two rows of each pair are."""
    first = f"rows {int(pairs[0][0, 0])} and {int(pairs[0][0, 1])}"
    count = sum(map(len, pairs))
    return f"{first} {what}" if count == 1 else f"the rows of {count} pairs {what} ({first}, say)"


def largest_eigenvalue(product: Callable[[Tensor], Tensor], size: int, like: Tensor, tol: float = 1e-10) -> float:
    """Return the largest eigenvalue of a symmetric operator on vectors (size,) like ``like``, to relative ``tol``, by Lanczos."""
    if size < 3:  # too small for the Lanczos method
        columns = torch.stack([product(row) for row in torch.eye(size).to(like)])
        return float(torch.linalg.eigvalsh(columns.double())[-1])

    def apply(vector: NDArray[Any]) -> NDArray[Any]:
        return product(torch.as_tensor(vector.ravel()).to(like)).detach().double().cpu().numpy()

    start = np.random.default_rng(0).normal(size=size)
    operator = scipy.sparse.linalg.LinearOperator((size, size), matvec=apply, dtype=float)
    found = scipy.sparse.linalg.eigsh(operator, k=1, which="LA", v0=start, return_eigenvectors=False, tol=tol)
    return float(found[0])
