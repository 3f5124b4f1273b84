"""The reference engine: a program executed in plain torch, in float64, on any device, differentiable.

First each input is paired with itself (:func:`moments`), which yields the variances that activations and normalisations
read; then the two batches are paired (:func:`covariance`). Both passes run the same rules.
"""

from __future__ import annotations

from dataclasses import replace

import torch
from torch import Tensor

from ntkit._src.program import (
    Arrange,
    Attention,
    Concat,
    Constant,
    Contract,
    Conv,
    DataMap,
    Dense,
    Input,
    Join,
    Keep,
    Keeps,
    Lookup,
    Merge,
    Node,
    Normalize,
    Op,
    Pointwise,
    PositionMap,
    Prior,
    Product,
    Program,
    Split,
    Sum,
    Table,
)
from ntkit.errors import InputError, InputTypeError

from ._affine import conv, dense, pads_zeros
from ._attention import attention
from ._combine import combined_mean, concat, product, total
from ._covariance import Covariance, Ends, Moments
from ._differences import at_one, carries_h, scales_with_data
from ._input import input_covariance
from ._maps import data_map, data_map_values
from ._normalize import normalize, normalized_mean
from ._positions import (
    arrange,
    arrange_values,
    contract,
    position_map,
    position_map_values,
    split,
    split_values,
)
from ._prior import prior_covariance
from ._sampled_attention import sampled_attention
from ._tokens import join, joined_mean, lookup, merge, table, table_mean
from .expectations import dual, dual_with_difference, gain_dual, mean

__all__ = ["covariance", "moments", "read_data", "read_variance", "self_covariance"]


def compute_dtype(device: torch.device) -> torch.dtype:
    """Return float64 if the device supports it: near correlation one, a kernel loses half of its digits."""
    return torch.float32 if device.type == "mps" else torch.float64


def read_data(program: Program, x: Tensor) -> Moments:
    """Run the deterministic prefixes on a batch."""
    dtype = compute_dtype(x.device)
    x = x.to(dtype) if x.is_floating_point() else x
    data: dict[tuple[int, int], Tensor] = {}
    for node in program.nodes:
        if isinstance(node.op, (Input, DataMap)):
            prefix = program.prefixes[node.op.prefix]
            value = x if prefix is None else prefix(x.clone())  # it may write in place
            if prefix is not None and not bool(torch.isfinite(value).all()):
                raise InputError(
                    f"{node.path}: what comes before this layer turned finite input into NaN or infinite values. "
                    "Expected finite values; check the module's operations on the raw input."
                )
            if isinstance(node.op, DataMap):
                data[node.op.prefix, 0] = value.to(dtype)
            else:
                data[node.op.prefix, node.op.channel] = value.to(dtype).movedim(node.op.channel, -1)
        if isinstance(node.op, Lookup):
            data[node.op.prefix, 0] = _integers(program, node.op, node.path, x).to(dtype)
    return Moments(data)


def _integers(program: Program, op: Lookup, path: str, x: Tensor) -> Tensor:
    """Run the prefix of an embedding and check its result."""
    prefix = program.prefixes[op.prefix]
    index: Tensor = x if prefix is None else prefix(x.clone())
    if index.is_floating_point():
        raise InputTypeError(f"{path}: an embedding must be given integers. Got {index.dtype}. Write x.long().")
    if bool((index < 0).any()) or bool((index >= op.rows).any()):
        raise InputError(
            f"{path}: the embedding must be given integers from 0 to {op.rows - 1}. Got {int(index.min())} to {int(index.max())}."
        )
    return index


def moments(program: Program, data: Moments, keeps: tuple[Keeps | None, ...] | None = None) -> Moments:
    """Compute the variances and means that the rules read of each input."""
    filled = Moments(data.data)
    _run(program, keeps or program.self_keeps, Ends(filled, filled, pair_dims=1), ntk=False)
    return filled


def self_covariance(
    program: Program, data: Moments, ntk: bool, keeps: tuple[Keeps | None, ...] | None = None
) -> Covariance:
    """Compute K(x, x) and Theta(x, x) of each input, shape (n,)."""
    filled = Moments(data.data)
    result = _run(program, keeps or program.diag_keeps, Ends(filled, filled, pair_dims=1), ntk)
    assert result is not None
    return result


def covariance(
    program: Program, first: Moments, second: Moments, ntk: bool, keeps: tuple[Keeps | None, ...] | None = None
) -> Covariance:
    """Compute K(x, x') and Theta(x, x') between two batches whose moments are known, shape (n1, n2)."""
    result = _run(program, keeps or program.cross_keeps, Ends(first, second, pair_dims=2), ntk)
    assert result is not None
    return result


def _run(program: Program, keeps: tuple[Keeps | None, ...], ends: Ends, ntk: bool) -> Covariance | None:
    last_use = {read: index for index, node in enumerate(program.nodes) for read in node.inputs}
    variances_read = read_variance(program) if ends.pair_dims == 1 else set()
    carry = carries_h(program)
    scales = scales_with_data(program)
    values: dict[int, Covariance] = {}
    for index, node in enumerate(program.nodes):
        kept = keeps[index]
        if kept is not None:
            needs = zip(node.inputs, node.op.needs(kept), strict=True)
            reads = [(read, needed) for read, needed in needs if needed is not None]
            inputs = tuple(values[read].restrict(needed) for read, needed in reads)
            if not carry[index] and not isinstance(node.op, Pointwise):
                inputs = tuple(x.without_h() for x in inputs)
            elif carry[index] and not scales[index] and not isinstance(node.op, Normalize):
                inputs = tuple(
                    at_one(x, ends.variances(read, x.keeps)) for (read, _), x in zip(reads, inputs, strict=True)
                )
            values[index] = _apply(program, node, inputs, kept, ends, ntk, carry[index], scales[index])
        if ends.pair_dims == 1:
            demand = program.own_demands.get(index)
            if index in values and (demand is not None or index in variances_read):
                same = values[index].restrict(tuple(type(keep).SAME for keep in values[index].keeps))
                # A copy: a view would keep all position pairs alive.
                ends.first.variance[index] = same.nngp.contiguous()
                if demand is not None and Keep.ALL in demand:
                    ends.first.own[index] = values[index].restrict(demand).nngp
            if program.means_needed and not node.centred:
                own = _mean(node, ends.first)
                if own is not None:
                    ends.first.mean[index] = own
        for read in node.inputs:
            if last_use[read] == index:
                values.pop(read, None)
    result = values.get(program.output)
    return None if result is None else result.settled()


def read_variance(program: Program) -> set[int]:
    """Find the nodes whose variances some rule reads."""
    read = set()
    scales, carry = scales_with_data(program), carries_h(program)
    for index, node in enumerate(program.nodes):
        if carry[index] and not scales[index]:
            read |= {source for source in node.inputs if scales[source]}
        if isinstance(node.op, (Pointwise, Normalize)):
            read |= set(node.inputs)
        elif isinstance(node.op, Conv) and pads_zeros(node.op):
            read.add(node.inputs[0])
    return read


def _apply(
    program: Program,
    node: Node,
    inputs: tuple[Covariance, ...],
    keeps: Keeps,
    ends: Ends,
    ntk: bool,
    carry: bool,
    scaled: bool,
) -> Covariance:
    match node.op:
        case Input() as op:
            result = input_covariance(op, keeps, ends, carry, scaled)
        case Table() as op:
            result = table(op, node, keeps, ends)
        case Lookup() as op:
            result = lookup(op, keeps, ends)
        case Prior() as op:
            result = prior_covariance(op, keeps, ends)
        case Dense() as op:
            result = dense(op, inputs[0])
        case Conv() as op:
            result = conv(op, node, inputs[0], ends)
        case Pointwise() as op:
            result = _elementwise(op, node.inputs[0], inputs[0], ends, carry)
        case Attention(sampled=True) as op:
            result = sampled_attention(op, program, node, inputs, keeps, ends)
        case Attention() as op:
            result = attention(op, node, inputs, keeps, ends)
        case Contract() as op:
            result = contract(op, inputs[0], keeps)
        case PositionMap() as op:
            result = position_map(op, inputs[0], keeps)
        case DataMap() as op:
            result = data_map(op, inputs[0], keeps, ends)
        case Arrange() as op:
            result = arrange(op, inputs[0], keeps)
        case Split() as op:
            result = split(op, inputs[0], keeps)
        case Merge() as op:
            result = merge(op, inputs[0], keeps)
        case Join() as op:
            result = join(op, node, inputs, keeps, ends)
        case Normalize() as op:
            result = normalize(op, node, inputs[0], ends)
        case Sum() as op:
            result = total(op, node, inputs, ends)
        case Product():
            result = product(*inputs)
        case Concat() as op:
            result = concat(op, inputs)
        case Constant() as op:
            like = next(iter(ends.first.data.values()))
            k = like.new_full((1,) * (ends.pair_dims + sum(keeps)), op.value**2)
            result = Covariance(k, None, keeps, h=torch.zeros_like(k))
        case op:
            raise AssertionError(f"no rule for {op}")
    if not ntk and (result.ntk is not None or result.affine is not None):
        result = replace(result, ntk=None, affine=None)
    return result if carry else result.without_h()


def _elementwise(op: Pointwise, read: int, x: Covariance, ends: Ends, carry: bool) -> Covariance:
    q1, q2 = ends.spread(ends.first.variance[read], ends.second.variance[read], x.keeps)
    h: Tensor | None = None
    if carry and x.h is not None:
        nngp, derivative, h = dual_with_difference(op.phi, x.nngp, q1, q2, x.ntk is not None, x.h, x.multiple)
    else:
        nngp, derivative = dual(op.phi, x.nngp, q1, q2, tangent=x.ntk is not None, h=x.h, ratio=x.multiple)
    ntk = None if x.ntk is None or derivative is None else x.ntk * derivative
    if x.affine is not None:
        own = x.affine * gain_dual(op.phi, x.nngp, q1, q2)
        ntk = own if ntk is None else ntk + own
    return Covariance(nngp, ntk, x.keeps, h=h, ratio=x.ratio)


def _mean(node: Node, known: Moments) -> Tensor | None:
    """Return the channels' mean of a node that is not centred, from those of its inputs."""
    match node.op:
        case Input() as op:
            return known.data[op.prefix, op.channel].mean(-1)
        case Prior():
            return None  # only layers with weights read it
        case Pointwise() as op:
            return mean(op.phi, known.variance[node.inputs[0]])
        case Normalize() as op:
            return normalized_mean(op, node, known)
        case Constant() as op:
            like = next(iter(known.data.values()))
            return like.new_full((len(like),) + (1,) * len(node.positions), op.value)
        case Table() as op:
            return table_mean(op, node, next(iter(known.data.values())))
        case Join() as op:
            return joined_mean(op, node, known, next(iter(known.data.values())))
        case Sum() | Product() | Concat():
            return combined_mean(node, known)
    own = known.mean.get(node.inputs[0])
    if isinstance(node.op, DataMap) and own is not None:
        return data_map_values(node.op, own, known)
    return None if own is None else _moved(node.op, own)


def _moved(op: Op, values: Tensor) -> Tensor:
    """Apply an operation on positions to values of shape (n, *positions)."""
    match op:
        case PositionMap():
            return position_map_values(op, values)
        case Arrange():
            return arrange_values(op, values)
        case Split():
            return split_values(op, values)
        case Merge():
            return values.flatten(op.axis + 1, op.axis + op.count)
        case Contract():
            return values.mean([axis + 1 for axis in op.axes])
    raise AssertionError(f"no rule for the mean of {op}")
