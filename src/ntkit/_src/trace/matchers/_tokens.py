"""Learned vectors: parameters added to tokens or put before them, and embeddings of integers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from ntkit._src.program import (
    Arrange,
    Attention,
    Conv,
    Dense,
    Join,
    Lookup,
    Merge,
    PositionMap,
    Split,
    Sum,
    Table,
    TableEntries,
)

from .._builder import EMPIRICAL, Builder, Refused
from .._values import BATCH, CHANNEL, Block, Computed, Data, Field, Weight
from ._linear import check_plain, with_parameters
from ._registry import matches

Read = Callable[[Weight], Tensor]
_DIGITS = 1e-9


def table_like(builder: Builder, value: Weight | Computed, field: Field, cat_dim: int | None = None) -> Field:
    """Read parameters as a field with the dimensions of another, along ``cat_dim`` of any length.

    The output of an ``nn.Embedding`` is random. A user's own parameter has no distribution, only its present values, so its
    covariance is K[a, a'] = p_a . p_a' / C. Both add a term to the tangent kernel.
    """
    learned = value if isinstance(value, Computed) else Computed(value.parameter, lambda read: read(value), (value,))
    tensor, channel = learned.value, field.channel_dim
    shape = (1,) * (len(field.dims) - tensor.ndim) + tuple(tensor.shape)
    batch = next(dim for dim, atoms in enumerate(field.dims) if BATCH in atoms)
    mismatch = Refused(
        f"a trained parameter of shape {tuple(tensor.shape)} meets a random value of shape {field.shape}",
        "give it one vector for each token, shape (tokens, channels)",
        field,
    )
    whole = field.core(channel) == (CHANNEL,) and field.core(batch) == (BATCH,) and len(shape) == len(field.dims)
    if not whole or shape[channel] != field.channels or shape[batch] not in (1, field.batch):
        raise mismatch
    positions: list[int] = []
    dims: list[tuple[int, ...]] = []
    for dim, size in enumerate(shape):
        if dim in (batch, channel):
            dims.append((BATCH,) if dim == batch else (CHANNEL,))
            continue
        atoms = [field.positions[atom] for atom in field.dims[dim] if atom >= 0]
        own = [size] if dim == cat_dim else [] if size == 1 != math.prod(atoms) else atoms
        if math.prod(own) != size:
            raise mismatch
        dims.append(tuple(range(len(positions), len(positions) + len(own))))
        positions += own

    def layout(t: Tensor) -> Tensor:
        """Rearrange the computed tensor to (*positions, channels)."""
        rows = t.reshape(shape).movedim(channel, -1)
        rows = rows.select(batch if batch < channel else batch - 1, 0)
        return rows.reshape(*positions, field.channels)

    full = tensor.reshape(shape)
    if not torch.equal(full, full.narrow(batch, 0, 1).expand_as(full)):
        raise Refused("a parameter that differs between the inputs of a batch", "give all inputs the same one", field)
    builder.claim("values", *learned.weights)
    if learned.random:
        builder.random.extend((weight, 1.0) for weight in learned.weights)
    op, zero = _table(learned, layout, field)
    fixed_values = not (learned.random or zero)
    node = builder.add(
        op,
        (),
        positions,
        why_not="a parameter's present values enter it, which are not Gaussian" if fixed_values else "",
        centred=op.mean is None,
        held=lambda read: (layout(learned.compute(read)), None),
    )
    return Field((Block(node, field.channels),), tuple(positions), tuple(dims), field.channels, field.batch)


def _table(learned: Computed, layout: Callable[[Tensor], Tensor], field: Field) -> tuple[Table, bool]:
    """Return the operation, and whether all values are zero."""
    leaves = {weight.path: weight.parameter.detach().to(torch.float64) for weight in learned.weights}
    for leaf in leaves.values():
        leaf.requires_grad_()
    with torch.enable_grad():
        rows = layout(learned.compute(lambda weight: leaves[weight.path])).reshape(-1, field.channels)  # (P, C)
        (first, last), places = _slopes(rows, (0, rows.shape[1] - 1), list(leaves.values()))
    tangent = first @ first.T
    alike = torch.allclose(tangent, last @ last.T, rtol=_DIGITS, atol=_DIGITS)
    apart = rows.shape[1] == 1 or not bool((first @ last.T).any())
    if not (alike and apart):
        raise Refused(
            "a parameter whose channels share entries or differ in kind", "give every channel its own entries", field
        )
    rows = rows.detach()
    trained = tangent if any(weight.trained for weight in learned.weights) else None
    if learned.random:
        doubled = layout(learned.compute(lambda weight: 2 * leaves[weight.path].detach())).reshape(-1, field.channels)
        if not torch.allclose(doubled, 2 * rows, rtol=_DIGITS, atol=_DIGITS):
            raise Refused("an embedding that something nonlinear is applied to", "apply it after a layer", field)
        return Table(tangent, None, trained, TableEntries(None, first, places)), False
    zero = not bool(rows.any())
    entries = TableEntries(rows, first, places)
    return Table(rows @ rows.mT / rows.shape[1], None if zero else rows.mean(1), trained, entries), zero


def _slopes(rows: Tensor, channels: Sequence[int], leaves: Sequence[Tensor]) -> tuple[list[Tensor], Tensor]:
    """Return the derivatives of each row's entry in some channels with respect to the parameters they read, each (P, entries).

    Also the numbers of these entries among all parameters.
    """
    found: list[tuple[Tensor, Tensor]] = []
    for channel in channels:
        for row in rows[:, channel]:
            parts = torch.autograd.grad(row, leaves, retain_graph=True, allow_unused=True)
            filled = [torch.zeros_like(p) if g is None else g for g, p in zip(parts, leaves, strict=True)]
            slope = torch.cat([part.flatten() for part in filled])
            places = slope.nonzero().flatten()  # few: a row of a table reads only its own entries
            found.append((places, slope[places]))
    read, columns = torch.cat([places for places, _ in found]).unique(return_inverse=True)
    dense = rows.new_zeros(len(found), len(read))
    numbers = torch.arange(len(found)).repeat_interleave(torch.tensor([len(places) for places, _ in found]))
    dense[numbers, columns] = torch.cat([values for _, values in found])
    return list(dense.detach().split(len(rows))), read


def joined(builder: Builder, fields: Sequence[Field], dim: int) -> Field:
    """Concatenate fields along a dimension of positions."""
    parts = [_one_axis(builder, field, dim) for field in fields]
    if len({part.dims for part in parts}) > 1:
        parts = [_without_ones(builder, part, dim) for part in parts]
    first = parts[0]
    axis = first.axis(dim)
    assert axis is not None
    widths = {tuple((block.width, block.merged) for block in part.blocks) for part in parts}
    if len(first.blocks) > 1 and len(widths) == 1 and all(part.order is None for part in parts):
        blocks = [
            joined(builder, [replace(p, blocks=(p.blocks[k],), channels=p.blocks[k].width) for p in parts], dim).blocks[
                0
            ]
            for k in range(len(first.blocks))
            if not first.blocks[k].merged
        ]
        if len(blocks) == len(first.blocks):
            length = sum(part.positions[axis] for part in parts)
            return replace(first, blocks=tuple(blocks), positions=first.with_length(axis, length))
    others = [(part.dims, part.channels, *part.positions[:axis], *part.positions[axis + 1 :]) for part in parts]
    if any(other != others[0] for other in others) or any(len(part.blocks) > 1 for part in parts):
        raise Refused(
            f"it concatenates values of shapes {[field.shape for field in fields]}, whose layouts differ",
            "give all of them the same channels, from one layer each",
            first,
        )
    nodes = [part.blocks[0].node for part in parts]
    pairs = [(a, b) for a, b in combinations(nodes, 2) if builder.info[a].sources & builder.info[b].sources]
    if any(a == b or not builder.joint(a, b) for a, b in pairs):
        raise Refused(
            "it concatenates tokens that depend on each other: they carry the same random values with no fresh weights between",
            f"put a layer with weights of its own between them; or {EMPIRICAL}",
            first,
        )
    _check_apart_from_data(builder, nodes, first)
    if sum(_has_values(builder, node) for node in nodes) > 1:
        raise Refused(
            "it concatenates several parameters, whose present values are not independent",
            "make them one parameter of several rows, or use nn.Embedding",
            first,
        )
    why_not = ""
    if any(isinstance(op, Table) and not bool(op.covariance.any()) for op in (builder.nodes[n].op for n in nodes)):
        why_not = "some of its tokens are a parameter of zeros, where an activation has no derivative in the limit"
    sizes = tuple(part.positions[axis] for part in parts)
    positions = first.with_length(axis, sum(sizes))
    node = builder.combine(Join(axis, sizes), nodes, positions, why_not=why_not)
    return replace(first, blocks=(replace(first.blocks[0], node=node),), positions=positions)


def cross_moment(
    builder: Builder, nodes: tuple[int, int], coefficients: tuple[float, float], field: Field
) -> Tensor | None:
    """Return the covariance between fixed values in two fields, beyond the product of their means; None if one has none.

    The mean over the channels of p_a p'_a' of two parameters is a number. Shape (P, P), with both orders added up.
    """
    _check_apart_from_data(builder, nodes, field)
    fixed = [_fixed_values(builder, node, field) for node in nodes]
    if fixed[0] is None or fixed[1] is None:
        return None
    first, second = (c * values for c, values in zip(coefficients, fixed, strict=True) if values is not None)
    product = first @ second.T / first.shape[1] - torch.outer(first.mean(1), second.mean(1))
    return product + product.T


def _check_apart_from_data(builder: Builder, nodes: Sequence[int], then: Field) -> None:
    """Refuse present values next to raw data: both are numbers, and nothing makes them independent."""
    data = any(-1 in builder.info[node].sources for node in nodes)
    if data and any(_has_values(builder, node) for node in nodes):
        raise Refused(
            "a parameter with its own values meets raw data with no fresh weights between",
            "put an nn.Linear before it, or use nn.Embedding",
            then,
        )


def _fixed_values(builder: Builder, node: int, field: Field) -> Tensor | None:
    """Return the part of a node that does not depend on draws or inputs, shape (P, C); None if there is none."""
    if not _has_values(builder, node):
        return None
    value = _evaluate(builder, node, field)
    return value.expand(1, *builder.nodes[node].positions, value.shape[-1]).flatten(0, -2)


def _has_values(builder: Builder, node: int) -> bool:
    """Return whether present values of parameters reach a node with no fresh weights between."""
    op = builder.nodes[node].op
    if isinstance(op, Table):
        return op.mean is not None
    fresh = isinstance(op, (Dense, Conv, Attention))
    return not fresh and any(_has_values(builder, read) for read in builder.nodes[node].inputs)


def _evaluate(builder: Builder, node: int, field: Field) -> Tensor:
    """Run the operations that lead to a node, all of them linear, with zero in place of what is random."""
    op, inputs = builder.nodes[node].op, builder.nodes[node].inputs
    if not _has_values(builder, node):
        return torch.zeros(1, *builder.nodes[node].positions, field.channels, dtype=torch.float64)
    if isinstance(op, Table):
        held = builder.held[node](lambda weight: weight.parameter.detach().to(torch.float64))
        return op.finite((), held)
    if not isinstance(op, (Sum, Join, Merge, Arrange, PositionMap, Split)):
        raise Refused(
            "two parameters with their own values are added up after a nonlinear operation on one of them",
            "add both to the tokens before the first norm or activation, or use nn.Embedding",
            field,
        )
    return op.finite(tuple(_evaluate(builder, read, field) for read in inputs), (None, None))


def _without_ones(builder: Builder, field: Field, dim: int) -> Field:
    """Return the field without position axes of length one, which indexing leaves behind, but for that of one dimension."""
    kept = [axis for axis, size in enumerate(field.positions) if size > 1 or axis in field.dims[dim]]
    dims = tuple(
        tuple(atom if atom < 0 else kept.index(atom) for atom in atoms if atom < 0 or atom in kept)
        for atoms in field.dims
    )
    return builder.arrange(field, kept, [field.positions[axis] for axis in kept], dims)


def _one_axis(builder: Builder, field: Field, dim: int) -> Field:
    """Return the field with one position axis in a dimension, and its axes in the order of the dimensions."""
    if not field.core(dim):
        field, _ = builder.axis_of(field, dim)
    dims: list[tuple[int, ...]] = []
    axes: list[int] = []
    for atoms in field.dims:
        dims.append(tuple(atom if atom < 0 else len(axes) + [a for a in atoms if a >= 0].index(atom) for atom in atoms))
        axes += [atom for atom in atoms if atom >= 0]
    field = builder.arrange(field, axes, [field.positions[axis] for axis in axes], dims)
    inside = field.dims[dim]
    if len(inside) == 1:
        return field
    start, count = inside[0], len(inside)
    size = math.prod(field.positions[axis] for axis in inside)
    positions = (*field.positions[:start], size, *field.positions[start + count :])
    merged = builder.map_axes(field, Merge(start, count), positions)
    later = [
        (start,) if d == dim else tuple(a - count + 1 if a > start else a for a in atoms)
        for d, atoms in enumerate(field.dims)
    ]
    return merged.with_dims(later)


@matches(
    F.embedding,
    torch.embedding,
    "embedding",
    modules={
        nn.Embedding: with_parameters("padding_idx", "max_norm", "scale_grad_by_freq", "sparse", names=("weight",))
    },
    family="tokens",
    note="`nn.Embedding` of integers, drawn from N(0, 1); parameters added to or concatenated with tokens (class tokens, tables "
    "of positions), with their present values",
    fresh=True,
)
def embedding(
    builder: Builder, x: Any, weight: Any, padding_idx: int | None = None, max_norm: float | None = None,
    norm_type: float = 2.0, scale_grad_by_freq: bool = False, sparse: bool = False,
) -> Field:  # fmt: skip
    """K[a, a'] = 1 where both tokens are the same integer."""
    if isinstance(weight, Data):  # the exporter gives the table first
        x, weight = weight, x
    if not isinstance(x, Data) or not isinstance(weight, Weight):
        raise Refused("it looks up something other than integers of the input", "give the embedding the input itself")
    if max_norm is not None or scale_grad_by_freq:
        raise Refused("an embedding with max_norm or scale_grad_by_freq", "build it without them")
    index: Tensor = x.value
    if index.is_floating_point():
        raise Refused("it looks up numbers that are not integers", "give integers: x.long()")
    builder.claim("table", weight)
    builder.random.append((weight, 1.0))
    rows, width = weight.parameter.shape
    padding = None if padding_idx is None or (padding_idx < 0 and padding_idx < -rows) else padding_idx % rows
    op = Lookup(builder.prefix(x), rows, padding, weight.trained)
    node = builder.add(op, (), tuple(index.shape[1:]), held=lambda read: (read(weight), None))
    result = builder.field(node, (*index.shape, width), index.ndim)
    check_plain(weight, then=result)
    return result
