"""Learned vectors, shared by all inputs or looked up by integers, and fields joined along the tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import Join, Keep, Keeps, Lookup, Merge, Node, Table

from ._covariance import Covariance, Ends, Moments
from ._token_axes import unmerged

__all__ = ["join", "joined_mean", "lookup", "merge", "table", "table_mean"]


def table(op: Table, node: Node, keeps: Keeps, ends: Ends) -> Covariance:
    """Return K[p, p'] of learned vectors, the same for every pair of inputs."""
    like = next(iter(ends.first.data.values()))
    pairs = (len(like), len(next(iter(ends.second.data.values()))))[: ends.pair_dims]
    parts = [
        None if k is None else unmerged(k.to(like), node.positions, same=False).expand(*pairs, *(-1,) * 2 * len(keeps))
        for k in (op.covariance, op.tangent)
    ]
    assert parts[0] is not None
    return Covariance(parts[0], parts[1], (Keep.ALL,) * len(keeps)).restrict(keeps)


def lookup(op: Lookup, keeps: Keeps, ends: Ends) -> Covariance:
    """Return K[p, p'] = 1 where both positions hold the same integer; Theta equals K if the table is trained."""
    x1, x2 = (side.data[op.prefix, 0] for side in (ends.first, ends.second))
    first, second = ends.spread(x1, x2, keeps)
    equal = first == second
    if op.padding is not None:
        equal = equal & (first != op.padding)
    k = equal.to(x1.dtype)
    return Covariance(k, k if op.trained else None, keeps)


def join(op: Join, node: Node, parts: tuple[Covariance, ...], keeps: Keeps, ends: Ends) -> Covariance:
    """Concatenate independent fields along positions: K between two of them is m m', zero if one is centred."""
    parts = tuple(part.settled() for part in parts)
    means = [ends.means(read, keeps) for read in node.inputs]
    cross = keeps[op.axis] is Keep.ALL
    pairs = torch.broadcast_shapes(*(part.nngp.shape[: ends.pair_dims] for part in parts))

    def shape(i: int, j: int) -> tuple[int, ...]:
        sizes = list(pairs)
        for axis, (size, keep) in enumerate(zip(node.positions, keeps, strict=True)):
            own = (op.sizes[i], op.sizes[j]) if axis == op.axis else (size, size)
            sizes += own[: int(keep)]
        return tuple(sizes)

    def block(values: list[Tensor | None], i: int, j: int, with_means: bool) -> Tensor:
        value, first, second = values[i], means[i], means[j]
        if i == j:
            return parts[i].nngp.new_zeros(()).expand(shape(i, j)) if value is None else value.expand(shape(i, j))
        if with_means and first is not None and second is not None:
            return (first[0] * second[1]).expand(shape(i, j))
        return parts[i].nngp.new_zeros(()).expand(shape(i, j))

    dim = parts[0].dims(op.axis)[0]

    def joined(values: list[Tensor | None], with_means: bool) -> Tensor:
        count = range(len(parts))
        if not cross:
            return torch.cat([block(values, i, i, with_means) for i in count], dim)
        return torch.cat([torch.cat([block(values, i, j, with_means) for j in count], dim + 1) for i in count], dim)

    tangents = [part.ntk for part in parts]
    ntk = None if all(tangent is None for tangent in tangents) else joined(tangents, with_means=False)
    return Covariance(joined([part.nngp for part in parts], with_means=True), ntk, keeps)


def merge(op: Merge, x: Covariance, keeps: Keeps) -> Covariance:
    """Merge adjacent axes."""
    dims = [x.dims(axis) for axis in range(op.axis, op.axis + op.count)]
    start = dims[0][0]

    def flatten(k: Tensor) -> Tensor:
        if keeps[op.axis] is Keep.SAME:
            return k.flatten(start, start + op.count - 1)
        order = [dim[side] for side in (0, 1) for dim in dims]
        k = k.permute(*range(start), *order, *range(start + 2 * op.count, k.ndim))
        return k.flatten(start + op.count, start + 2 * op.count - 1).flatten(start, start + op.count - 1)

    return x.map(flatten, keeps, selects=True)


def table_mean(op: Table, node: Node, like: Tensor) -> Tensor | None:
    """Return the channels' mean, shape (n, *positions)."""
    if op.mean is None:
        return None
    mean: Tensor = op.mean.to(like).reshape(node.positions)
    return mean.expand(len(like), *node.positions)


def joined_mean(op: Join, node: Node, known: Moments, like: Tensor) -> Tensor:
    """Return the concatenated channel means, zero where a field is centred."""
    parts = []
    for read, size in zip(node.inputs, op.sizes, strict=True):
        positions = (*node.positions[: op.axis], size, *node.positions[op.axis + 1 :])
        mean = known.mean.get(read, like.new_zeros(()))
        parts.append(mean.expand(len(like), *positions))
    return torch.cat(parts, op.axis + 1)
