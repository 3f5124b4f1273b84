"""Why a Gram matrix is singular, judged from the matrix itself."""

from __future__ import annotations

import torch
from torch import Tensor

from ._row_blocks import block_rows, row_blocks

__all__ = ["why_singular"]


def why_singular(gram: Tensor) -> str:
    r"""Return a clause that says which inputs of a singular Gram matrix, shape (n, n), the kernel cannot tell apart.

    Two points coincide for the kernel where :math:`K_{ij}^2 = K_{ii} K_{jj}` to rounding. With :math:`K_{ii} = K_{jj}` they
    are the same input; otherwise one is a multiple of the other, and the network has no bias to tell them apart.

    Examples
    --------
    >>> x = torch.tensor([[1.0], [2.0], [2.0]], dtype=torch.float64)
    >>> why_singular(x @ x.T)[:45]
    'rows 1 and 2 are the same input to the kernel'
    """
    matrix = gram.detach()
    diagonal = matrix.diagonal()
    roots = diagonal.clamp_min(0).sqrt()
    rounding = 1e4 * torch.finfo(matrix.dtype).eps if matrix.dtype == torch.float64 else 1e-6
    columns = torch.arange(len(matrix), device=matrix.device)
    same, multiples = _Pairs(), _Pairs()
    for rows in row_blocks(len(matrix), block_rows(len(matrix), 4 * matrix.element_size())):
        bound = roots[rows, None] * roots
        close = (matrix[rows].abs() >= (1 - rounding) * bound) & (bound > 0) & (columns > columns[rows, None])
        own, other = diagonal[rows, None], diagonal
        equal = (own - other).abs() <= rounding * torch.maximum(own, other)
        same.add(close & equal, rows.start)
        multiples.add(close & ~equal, rows.start)
    reasons = []
    if same.count:
        reasons.append(f"{same.words('are the same input to the kernel')}, as integer and boolean columns make likely")
    if multiples.count:
        reasons.append(
            f"{multiples.words('are multiples of each other')}, which a network without biases cannot tell apart: "
            "pass b_std=0.1 or so"
        )
    if bool((diagonal <= 0).any()):
        reasons.append("the kernel of some rows with themselves is zero, as that of zero rows without biases")
    if not reasons:
        reasons.append("no two rows coincide, but there are more rows than the kernel can tell apart")
    return "; ".join(reasons)


class _Pairs:
    """How many pairs there are, and the first of them."""

    def __init__(self) -> None:
        self.count, self.first = 0, (0, 0)

    def add(self, found: Tensor, start: int) -> None:
        """Count the pairs in a block of rows that begins at row ``start``."""
        if not self.count and bool(found.any()):
            row, column = found.nonzero()[0].tolist()
            self.first = (start + row, column)
        self.count += int(found.sum())

    def words(self, what: str) -> str:
        """Say what the two rows of each pair are."""
        first = f"rows {self.first[0]} and {self.first[1]}"
        if self.count == 1:
            return f"{first} {what}"
        return f"the rows of {self.count} pairs {what} ({first}, say)"
