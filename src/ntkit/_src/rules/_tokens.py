"""Learned vectors, shared by all inputs or looked up by integers, and fields joined along the tokens."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import Join, Keep, Keeps, Lookup, Node, Program, Table
from ntkit.errors import InputError, InputTypeError

from ._axes import unmerged
from ._covariance import Covariance, Ends, Moments
from ._rule import Inputs, Rule, Step


class TableRule(Rule[Table], ops=(Table,)):
    """Learned vectors: K[p, p'] is the same for every pair of inputs."""

    sizes = True

    def covariance(self, step: Step[Table], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        like = ends.first.like
        pairs = (len(like), len(ends.second.like))[: ends.pair_dims]

        positions, others = step.positions(ends)

        def spread(k: Tensor) -> Tensor:
            return unmerged(k.to(like), positions, False, others).expand(*pairs, *(-1,) * 2 * len(keeps))

        nngp, tangent = step.op.covariance, step.op.tangent
        if ends.others is not None:
            one, other = (op.entries for op in step.ops(ends))
            assert one is not None
            assert other is not None
            nngp, tangent = one.covariance(other), None if tangent is None else one.tangent(other)
        ntk = None if tangent is None else spread(tangent)
        return Covariance(spread(nngp), ntk, (Keep.ALL,) * len(keeps)).restrict(keeps)

    def mean(self, step: Step[Table], known: Moments) -> Tensor | None:
        if step.op.mean is None:
            return None
        mean: Tensor = step.op.mean.to(known.like).reshape(step.node.positions)
        return mean.expand(len(known.like), *step.node.positions)


class LookupRule(Rule[Lookup], ops=(Lookup,)):
    """An embedding: K[p, p'] = 1 where both positions hold the same integer; Theta equals K if the table is trained."""

    sizes = True

    def covariance(self, step: Step[Lookup], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        op = step.op
        sides = zip(step.ops(ends), (ends.first, ends.second), strict=True)
        x1, x2 = (side.data[own.prefix, 0] for own, side in sides)
        first, second = ends.spread(x1, x2, keeps)
        equal = first == second
        if op.padding is not None:
            equal = equal & (first != op.padding)
        k = equal.to(x1.dtype)
        return Covariance(k, k if op.trained else None, keeps)

    def read(self, program: Program, node: Node, x: Tensor, dtype: torch.dtype) -> dict[tuple[int, int], Tensor]:
        op, path = node.op, node.path
        assert isinstance(op, Lookup)
        prefix = program.prefixes[op.prefix]
        index: Tensor = x if prefix is None else prefix(x.clone())
        if index.is_floating_point():
            raise InputTypeError(f"{path}: an embedding must be given integers. Got {index.dtype}. Write x.long().")
        if bool((index < 0).any()) or bool((index >= op.rows).any()):
            found = f"{int(index.min())} to {int(index.max())}"
            raise InputError(f"{path}: the embedding must be given integers from 0 to {op.rows - 1}. Got {found}.")
        return {(op.prefix, 0): index.to(dtype)}


class JoinRule(Rule[Join], ops=(Join,)):
    """Independent fields concatenated along positions: K between two of them is m m', zero if one is centred."""

    sizes = True

    def covariance(self, step: Step[Join], inputs: Inputs, keeps: Keeps, ends: Ends) -> Covariance:
        (op, other), parts = step.ops(ends), tuple(part.settled() for part in inputs)
        means = [ends.means(read, keeps) for read in step.node.inputs]
        pairs = torch.broadcast_shapes(*(part.nngp.shape[: ends.pair_dims] for part in parts))
        zero = parts[0].nngp.new_zeros(())
        dim, count = parts[0].dims(op.axis)[0], range(len(parts))

        def shape(i: int, j: int) -> tuple[int, ...]:
            sizes = list(pairs)
            for axis, (size1, size2, keep) in enumerate(zip(*step.positions(ends), keeps, strict=True)):
                own = (op.sizes[i], other.sizes[j]) if axis == op.axis else (size1, size2)
                sizes += own[: int(keep)]
            return tuple(sizes)

        def between(i: int, j: int) -> Tensor:
            first, second = means[i], means[j]
            return zero if first is None or second is None else first[0] * second[1]

        def joined(values: list[Tensor | None], tangent: bool) -> Tensor:
            def block(i: int, j: int) -> Tensor:
                value = values[i] if i == j else None if tangent else between(i, j)
                return (zero if value is None else value).expand(shape(i, j))

            if keeps[op.axis] is Keep.SAME:
                return torch.cat([block(i, i) for i in count], dim)
            return torch.cat([torch.cat([block(i, j) for j in count], dim + 1) for i in count], dim)

        tangents = [part.ntk for part in parts]
        ntk = None if all(tangent is None for tangent in tangents) else joined(tangents, tangent=True)
        return Covariance(joined([part.nngp for part in parts], tangent=False), ntk, keeps)

    def mean(self, step: Step[Join], known: Moments) -> Tensor:
        parts = []
        for read, source in zip(step.node.inputs, step.sources, strict=True):
            mean = known.mean.get(read, known.like.new_zeros(()))
            parts.append(mean.expand(len(known.like), *source.node.positions))
        return torch.cat(parts, step.op.axis + 1)
