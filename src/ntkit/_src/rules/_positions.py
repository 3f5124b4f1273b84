"""Operations that only move or mix positions: pooling, slices, flatten, broadcasting."""

from __future__ import annotations

from torch import Tensor

from ntkit._src.program import Arrange, Contract, Keep, Keeps, PositionMap, Split

from ._covariance import Covariance

__all__ = ["arrange", "arrange_values", "contract", "position_map", "position_map_values", "split", "split_values"]


def position_map(op: PositionMap, x: Covariance, keeps: Keeps) -> Covariance:
    """Apply x'[q] = sum_p A[q, p] x[p] along one axis: K' = A K A^T, of which perhaps only the diagonal is kept."""
    dims = x.dims(op.axis)
    matrix = op.matrix(x.nngp.shape[dims[0]]).to(x.nngp)
    if len(dims) == 1:  # every row of A reads at most one position, with weight one or zero
        return x.map(lambda k: _apply(matrix, k, dims[0]), keeps, moves=True, selects=op.selects())
    if keeps[op.axis] is Keep.ALL:
        # Sums over windows drop H: it would be the difference of two of them.
        selects = bool(((matrix == 0) | (matrix == 1)).all() and (matrix.sum(1) == 1).all())
        return x.map(lambda k: _apply(matrix, _apply(matrix, k, dims[1]), dims[0]), keeps, selects, op.selects())

    def diagonal(k: Tensor) -> Tensor:
        half = _apply(matrix, k, dims[1]).movedim(dims, (-2, -1))
        return (half.transpose(-2, -1) * matrix).sum(-1).movedim(-1, dims[0])

    return x.map(diagonal, keeps)


def position_map_values(op: PositionMap, values: Tensor) -> Tensor:
    """Apply x'[q] = sum_p A[q, p] x[p] to values of shape (n, *positions)."""
    dim = op.axis + 1
    return _apply(op.matrix(values.shape[dim]).to(values), values, dim)


def _apply(matrix: Tensor, k: Tensor, dim: int) -> Tensor:
    if matrix.shape[0] == 1:
        return (k.movedim(dim, -1) @ matrix[0]).unsqueeze(dim)
    return (k.movedim(dim, -1) @ matrix.T).movedim(-1, dim)


def contract(op: Contract, x: Covariance, keeps: Keeps) -> Covariance:
    """Average K[p, p] over the axes that became channels."""
    dims = [x.dims(axis)[0] for axis in op.axes]
    return x.settled().map(lambda k: k.mean(dims), keeps, moves=True)


def split(op: Split, x: Covariance, keeps: Keeps) -> Covariance:
    """Split one axis into several, and take the diagonal of those along which only K[p, p] is wanted."""
    kept = x.keeps[op.axis]
    stop = op.axis + len(op.sizes)

    def unfold(k: Tensor) -> Tensor:
        dims = x.dims(op.axis)
        for dim in reversed(dims):
            k = k.unflatten(dim, op.sizes)
        if kept is Keep.ALL:  # (a, b, a', b') to (a, a', b, b')
            start, count = dims[0], len(op.sizes)
            order = [start + side * count + index for index in range(count) for side in (0, 1)]
            k = k.permute(*range(start), *order, *range(start + 2 * count, k.ndim))
        return k

    unfolded = (*x.keeps[: op.axis], *(kept,) * len(op.sizes), *x.keeps[op.axis + 1 :])
    assert unfolded[stop:] == keeps[stop:]
    return x.map(unfold, unfolded, moves=True, selects=True).restrict(keeps)


def split_values(op: Split, values: Tensor) -> Tensor:
    """Split one axis of values of shape (n, *positions) into several."""
    split: Tensor = values.unflatten(op.axis + 1, op.sizes)
    return split


def arrange(op: Arrange, x: Covariance, keeps: Keeps) -> Covariance:
    """Reorder the axes, drop those of length one, and repeat the field along new ones."""

    def rearrange(k: Tensor) -> Tensor:
        used = [dim for axis in op.axes if axis is not None for dim in x.dims(axis)]
        dropped = [dim for axis in range(op.rank) if axis not in op.axes for dim in x.dims(axis)]
        k = k.permute(*range(x.pair_dims), *used, *dropped)
        k = k.flatten(k.ndim - len(dropped) - 1) if dropped else k
        shape = list(k.shape[: x.pair_dims])
        for axis, size, keep in zip(op.axes, op.sizes, keeps, strict=True):
            if axis is None:
                k = k[(slice(None),) * len(shape) + (None,) * int(keep)]
            shape += [size] * int(keep)
        return k.expand(shape)

    return x.map(rearrange, keeps, moves=True, selects=True)


def arrange_values(op: Arrange, values: Tensor) -> Tensor:
    """Reorder, drop and repeat the axes of values of shape (n, *positions)."""
    keeps = (Keep.SAME,) * op.rank
    return arrange(op, Covariance(values, None, keeps), (Keep.SAME,) * len(op.axes)).nngp


def merge_mean(values: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Average values (n, *positions) over axes, which are kept with length one."""
    return values.mean([axis + 1 for axis in axes], keepdim=True) if axes else values
