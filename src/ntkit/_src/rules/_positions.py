"""Operations that only move or mix positions: pooling, slices, flatten, broadcasting, graphs."""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from ntkit._src.program import (
    AdaptiveAvgPool,
    Arrange,
    AvgPool,
    ConstantMap,
    Contract,
    DataMap,
    Keep,
    Keeps,
    Merge,
    Node,
    PositionMap,
    Program,
    Reindex,
    Split,
)

from ._axes import both_sides
from ._covariance import Covariance, Ends, Moments
from ._input import run_prefix
from ._rule import Cut, Inputs, OpT, Parts, Prefixes, Rule, Step, Window
from ._sketch import Draws, Features


class _MoveRule(Rule[OpT]):
    """An operation that does the same to every channel: its finite form applies to means and to random features as well."""

    sizes = True

    def mean(self, step: Step[OpT], known: Moments) -> Tensor | None:
        own = known.mean.get(step.node.inputs[0])
        return None if own is None else self._moved(step.op, own[..., None], known)[..., 0]

    def random_features(self, step: Step[OpT], inputs: Parts, data: Moments, draws: Draws) -> Features:
        return inputs[0].map(lambda v: self._moved(step.op, v, data))

    def _moved(self, op: OpT, values: Tensor, data: Moments) -> Tensor:
        """Apply the operation to values of shape (n, *positions, channels)."""
        return op.finite((values,), ())


class PositionMapRule(_MoveRule[PositionMap], ops=(AdaptiveAvgPool, AvgPool, ConstantMap, Reindex)):
    """x'[q] = sum_p A[q, p] x[p] along one axis: K' = A K A^T, of which perhaps only the diagonal is kept."""

    keeps_h = True

    def covariance(self, step: Step[PositionMap], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), op = inputs, step.op
        dims = x.dims(op.axis)
        matrix = op.matrix(x.nngp.shape[dims[0]]).to(x.nngp)
        other = matrix if ends.others is None else step.ops(ends)[1].matrix(x.nngp.shape[dims[-1]]).to(x.nngp)
        if len(dims) == 1:  # every row of A reads at most one position, with weight one or zero
            return x.map(lambda k: _apply(matrix, k, dims[0]), keeps, moves=True, selects=op.selects)
        # Sums over windows drop H: it would be the difference of two of them.
        moves = False
        if keeps[op.axis] is Keep.ALL or op.selects:
            moves = all(bool(((m == 0) | (m == 1)).all() and (m.sum(1) == 1).all()) for m in (matrix, other))
        if keeps[op.axis] is Keep.ALL:
            return x.map(lambda k: _apply(matrix, _apply(other, k, dims[1]), dims[0]), keeps, moves, op.selects)

        def diagonal(k: Tensor) -> Tensor:
            half = _apply(other, k, dims[1]).movedim(dims, (-2, -1))
            return (half.transpose(-2, -1) * matrix).sum(-1).movedim(-1, dims[0])

        return x.map(diagonal, keeps, moves, op.selects)

    def crop(self, step: Step[PositionMap], window: Window, prefixes: Prefixes) -> Cut:
        op, part = step.op, window[step.op.axis]
        rows = op.matrix(step.sources[0].node.positions[op.axis])[part.start : part.stop]
        used = rows.any(0).nonzero().flatten().tolist() or [0]
        columns = range(used[0], used[-1] + 1)
        made: PositionMap
        if isinstance(op, Reindex):
            index = tuple(p - columns.start if p >= 0 else -1 for p in op.index[part.start : part.stop])
            made = replace(op, index=index)
        else:
            made = ConstantMap.of(op.axis, rows[:, columns.start : columns.stop], op.label())
        return Cut(made, ((*window[: op.axis], columns, *window[op.axis + 1 :]),))


def _apply(matrix: Tensor, k: Tensor, dim: int) -> Tensor:
    if matrix.shape[0] == 1:
        return (k.movedim(dim, -1) @ matrix[0]).unsqueeze(dim)
    return (k.movedim(dim, -1) @ matrix.T).movedim(-1, dim)


class DataMapRule(_MoveRule[DataMap], ops=(DataMap,)):
    """x'[q] = sum_p A(x)[q, p] x[p] along an axis, as in graph networks (Du et al. 2019): K' = A(x) K A(x')^T, Theta' too."""

    def covariance(self, step: Step[DataMap], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), op = inputs, step.op
        first, second = x.dims(op.axis)
        sides = zip(step.ops(ends), (ends.first, ends.second), strict=True)
        matrices = [side.data[own.prefix, 0] for own, side in sides]
        left, right = (a.mT if op.transposed else a for a in matrices)
        same = keeps[op.axis] is Keep.SAME

        def apply(k: Tensor) -> Tensor:
            moved = both_sides(left, k.movedim((first, second), (-2, -1)), right, ends.pair_dims, same)
            return moved.movedim(-1, first) if same else moved.movedim((-2, -1), (first, second))

        return x.map(apply, keeps)

    def read(self, program: Program, node: Node, x: Tensor, dtype: torch.dtype) -> dict[tuple[int, int], Tensor]:
        assert isinstance(node.op, DataMap)
        return {(node.op.prefix, 0): run_prefix(program, node.op.prefix, node.path, x).to(dtype)}

    def _moved(self, op: DataMap, values: Tensor, data: Moments) -> Tensor:
        return op.finite((values, data.data[op.prefix, 0]), ())


class ArrangeRule(_MoveRule[Arrange], ops=(Arrange,)):
    """Axes reordered, those of length one dropped, and the field repeated along new ones."""

    keeps_h = True

    def covariance(self, step: Step[Arrange], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), (op, other) = inputs, step.ops(ends)

        def rearrange(k: Tensor) -> Tensor:
            used = [dim for axis in op.axes if axis is not None for dim in x.dims(axis)]
            dropped = [dim for axis in range(op.rank) if axis not in op.axes for dim in x.dims(axis)]
            k = k.permute(*range(x.pair_dims), *used, *dropped)
            k = k.flatten(k.ndim - len(dropped) - 1) if dropped else k
            shape = list(k.shape[: x.pair_dims])
            for axis, *both, keep in zip(op.axes, op.sizes, other.sizes, keeps, strict=True):
                if axis is None:
                    k = k[(slice(None),) * len(shape) + (None,) * int(keep)]
                shape += both[: int(keep)]
            return k.expand(shape)

        return x.map(rearrange, keeps, moves=True, selects=True)

    def crop(self, step: Step[Arrange], window: Window, prefixes: Prefixes) -> Cut:
        kept = dict(zip(step.op.axes, window, strict=True))
        read = tuple(kept.get(axis, range(size)) for axis, size in enumerate(step.sources[0].node.positions))
        return Cut(replace(step.op, sizes=tuple(map(len, window))), (read,))


class SplitRule(_MoveRule[Split], ops=(Split,)):
    """One axis split into several, of which only K[p, p] may be wanted along some."""

    keeps_h = True

    def covariance(self, step: Step[Split], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), (op, other) = inputs, step.ops(ends)
        kept = x.keeps[op.axis]

        def unfold(k: Tensor) -> Tensor:
            dims = x.dims(op.axis)
            for dim, sizes in reversed([*zip(dims, (op.sizes, other.sizes), strict=False)]):
                k = k.unflatten(dim, sizes)
            if kept is Keep.ALL:  # (a, b, a', b') to (a, a', b, b')
                start, count = dims[0], len(op.sizes)
                order = [start + side * count + index for index in range(count) for side in (0, 1)]
                k = k.permute(*range(start), *order, *range(start + 2 * count, k.ndim))
            return k

        unfolded = (*x.keeps[: op.axis], *(kept,) * len(op.sizes), *x.keeps[op.axis + 1 :])
        return x.map(unfold, unfolded, moves=True, selects=True).restrict(keeps)


class MergeRule(_MoveRule[Merge], ops=(Merge,)):
    """Adjacent axes merged into one."""

    def covariance(self, step: Step[Merge], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (x,), op = inputs, step.op
        dims = [x.dims(axis) for axis in range(op.axis, op.axis + op.count)]
        start = dims[0][0]

        def flatten(k: Tensor) -> Tensor:
            if keeps[op.axis] is Keep.SAME:
                return k.flatten(start, start + op.count - 1)
            order = [dim[side] for side in (0, 1) for dim in dims]
            k = k.permute(*range(start), *order, *range(start + 2 * op.count, k.ndim))
            return k.flatten(start + op.count, start + 2 * op.count - 1).flatten(start, start + op.count - 1)

        return x.map(flatten, keeps, selects=True)


class ContractRule(Rule[Contract], ops=(Contract,)):
    """Axes that became channels: the mean of K[p, p] over them."""

    keeps_h = True
    sizes = True

    def covariance(self, step: Step[Contract], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        dims = [inputs[0].dims(axis)[0] for axis in step.op.axes]
        return inputs[0].settled().map(lambda k: k.mean(dims), keeps, moves=True)

    def mean(self, step: Step[Contract], known: Moments) -> Tensor | None:
        own = known.mean.get(step.node.inputs[0])
        return None if own is None else own.mean([axis + 1 for axis in step.op.axes])

    def crop(self, step: Step[Contract], window: Window, prefixes: Prefixes) -> Cut:
        rest, positions = iter(window), step.sources[0].node.positions
        read = tuple(range(size) if axis in step.op.axes else next(rest) for axis, size in enumerate(positions))
        return Cut(step.op, (read,))

    def random_features(self, step: Step[Contract], inputs: Parts, data: Moments, draws: Draws) -> Features:
        (x,), axes = inputs, step.op.axes
        phi = draws.compressed(step.index, "phi", _merged(x.phi, axes), draws.width)
        psi = None if x.psi is None else draws.compressed(step.index, "psi", _merged(x.psi, axes), draws.sketch)
        return Features(phi, psi)


def _merged(v: Tensor, axes: tuple[int, ...]) -> Tensor:
    """Concatenate the positions along some axes and divide by the root of their number."""
    count = math.prod(v.shape[axis + 1] for axis in axes)
    moved = v.movedim([axis + 1 for axis in axes], list(range(-1 - len(axes), -1)))
    return moved.flatten(-1 - len(axes)) / math.sqrt(count)
