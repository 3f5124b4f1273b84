"""Linear maps of positions by a matrix computed from each input."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import DataMap, Keep, Keeps

from ._both_sides import both_sides
from ._covariance import Covariance, Ends, Moments

__all__ = ["data_map", "data_map_values"]


def data_map(op: DataMap, x: Covariance, keeps: Keeps, ends: Ends) -> Covariance:
    """Apply x'[q] = sum_p A(x)[q, p] x[p] along one axis: K' = A(x) K A(x')^T, Theta' likewise.

    For a graph network this is the aggregation step (Du et al. 2019, Graph neural tangent kernel), here for any real matrix.
    """
    first, second = x.dims(op.axis)
    left, right = (_matrices(op, side) for side in (ends.first, ends.second))
    same = keeps[op.axis] is Keep.SAME

    def apply(k: Tensor) -> Tensor:
        moved = both_sides(left, k.movedim((first, second), (-2, -1)), right, ends.pair_dims, same)
        return moved.movedim(-1, first) if same else moved.movedim((-2, -1), (first, second))

    return x.map(apply, keeps)


def data_map_values(op: DataMap, values: Tensor, moments: Moments) -> Tensor:
    """Apply the maps to values of shape (n, *positions)."""
    dim = op.axis + 1
    return torch.einsum("a...i,aqi->a...q", values.movedim(dim, -1), _matrices(op, moments)).movedim(-1, dim)


def _matrices(op: DataMap, moments: Moments) -> Tensor:
    """Return A(x) of each input, shape (n, Q, P)."""
    matrices = moments.data[op.prefix, 0]
    return matrices.mT if op.transposed else matrices
