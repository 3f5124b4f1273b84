"""Sums, products and concatenations of fields, numbers and data."""

from __future__ import annotations

import operator
from collections.abc import Sequence
from dataclasses import replace
from itertools import combinations
from typing import Any

import torch
from torch import Tensor

from ntkit._src.program import Activation, Product, Sum

from .._builder import EMPIRICAL, Builder, Refused, tensor_number
from .._layout import entry_numbers
from .._values import BATCH, CHANNEL, Block, Computed, Data, Field, Weight
from ._activations import apply_activation
from ._compose import composed_product, composed_sum
from ._registry import matches
from ._tokens import cross_moment, joined, table_like

__all__: list[str] = []

_DEPENDENT = "put a layer with its own weights between them, or wrap an elementwise function in ntkit.Elementwise"


@matches(operator.add, operator.iadd, torch.add, "add", "add_", family="arithmetic", note="of independent branches")
def add(builder: Builder, x: Any, y: Any, *, alpha: float = 1.0) -> Field:
    """x + alpha y."""
    return _linear_combination(builder, x, y, 1.0, float(alpha))


@matches(operator.sub, operator.isub, torch.sub, torch.subtract, "sub", "sub_", "subtract", family="arithmetic")
def subtract(builder: Builder, x: Any, y: Any, *, alpha: float = 1.0) -> Field:
    """x - alpha y."""
    return _linear_combination(builder, x, y, 1.0, -float(alpha))


@matches("rsub", torch.rsub, "__rsub__")
def reverse_subtract(builder: Builder, x: Any, y: Any, *, alpha: float = 1.0) -> Field:
    """y - alpha x."""
    return _linear_combination(builder, y, x, 1.0, -float(alpha))


@matches(operator.neg, torch.neg, torch.negative, "neg", "negative", family="arithmetic")
def negate(builder: Builder, x: Field) -> Field:
    """-x."""
    return scaled(builder, x, -1.0)


@matches(operator.truediv, torch.div, torch.divide, torch.true_divide, operator.itruediv, "div", "div_", "true_divide",
         family="arithmetic", note="with numbers and frozen scalars")  # fmt: skip
def divide(builder: Builder, x: Any, y: Any) -> Field:
    """x / c."""
    number = tensor_number(y)
    if number is None or not isinstance(x, Field):
        raise Refused("it divides by something that is not a frozen number", "divide by a number, or use nn.LayerNorm")
    if number == 0:
        raise Refused("it divides by zero", "divide by a number other than zero", x)
    return scaled(builder, x, 1.0 / number)


@matches(operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_", "multiply", family="arithmetic")
def multiply(builder: Builder, x: Any, y: Any) -> Field:
    """x y, one of them a number or both independent fields; x x is the square."""
    for field, other in ((x, y), (y, x)):
        number = tensor_number(other)
        if number is not None:
            return scaled(builder, field, number)
    # Data with a single channel (a mask, a weight per position) only scales: Gaussian values stay Gaussian.
    scaling = any(isinstance(a, Data) and isinstance(b, Field) and _one_channel(a, b) for a, b in ((x, y), (y, x)))
    x, y = _as_fields(builder, x, y)
    gaussian = isinstance(x, Field) and all(builder.info[block.node].gaussian for block in x.blocks)
    if x == y and _same_order(x, y) and gaussian:
        return apply_activation(builder, x, Activation("polynomial", (0.0, 0.0, 1.0), label="square"))
    x, y = _align(builder, x, y)

    def product(first: int, second: int) -> int:
        if builder.info[first].sources & builder.info[second].sources:
            composed = composed_product(builder, first, second)
            if composed is not None:
                return _function(builder, x, *composed)
        _check_independent(builder, (first, second), "product", x)
        infos = builder.info[first], builder.info[second]
        nodes = builder.nodes[first], builder.nodes[second]
        sources = infos[0].sources | infos[1].sources | builder.own_source()
        return builder.add(
            Product(),
            (first, second),
            nodes[0].positions,
            gaussian=scaling and any(info.gaussian for info in infos),
            why_not="it is a product of random values",
            centred=nodes[0].centred or nodes[1].centred,
            sources=sources,
            affine=_affine(builder, (first, second)),
        )

    return _blockwise(builder, x, y, product)


@matches(
    torch.cat,
    torch.concat,
    torch.concatenate,
    "cat",
    "concat",
    family="arithmetic",
    note="concatenation over channels, weighted by width, and of independent tokens",
)
def concatenate(builder: Builder, tensors: Sequence[Any], dim: int = 0, axis: int | None = None) -> Field:
    """Concatenate channels, or tokens."""
    dim = dim if axis is None else axis
    reference = next(t for t in tensors if isinstance(t, Field))
    dim %= len(reference.dims)
    learned = any(isinstance(t, (Weight, Computed)) for t in tensors)
    if learned and CHANNEL in reference.dims[dim]:
        raise Refused(
            "it concatenates a parameter with the channels of random values, so that channels differ",
            f"concatenate along the tokens; or {EMPIRICAL}",
        )
    if not all(isinstance(t, (Field, Data, Weight, Computed)) for t in tensors):
        raise Refused("it concatenates a constant with random values", "concatenate outputs of layers")
    fields = [
        _data_like(builder, t, reference, dim)
        if isinstance(t, Data)
        else table_like(builder, t, reference, dim)
        if isinstance(t, (Weight, Computed))
        else t
        for t in tensors
    ]
    if any(BATCH in field.dims[dim] for field in fields):
        raise Refused("it concatenates along the batch", "concatenate along the channels or the tokens")
    if len(fields) == 1:
        return fields[0]
    if all(CHANNEL not in field.dims[dim] for field in fields):
        return joined(builder, fields, dim)
    parts = [_flattened_apart(builder, field, dim) for field in fields]
    first = parts[0]
    if any(part.positions != first.positions or part.dims != first.dims for part in parts):
        raise Refused("its operands have their positions in different dimensions", "give them the same layout")
    blocks = tuple(block for part in parts for block in part.blocks)
    orders, start = [], 0
    for part in parts:
        orders.append(start + (torch.arange(part.channels) if part.order is None else part.order))
        start += part.channels
    order = None if all(part.order is None for part in parts) else torch.cat(orders)
    return replace(first, blocks=blocks, channels=start, order=order)


def scaled(builder: Builder, x: Any, factor: float) -> Field:
    """Multiply a field by a number."""
    if not isinstance(x, Field):
        raise Refused("a trained parameter takes part in it", "freeze the parameter with requires_grad_(False)")
    if factor == 1.0:
        return x
    return builder.each_block(x, lambda block: _sum(builder, {block.node: factor}))


def shifted(builder: Builder, x: Field, value: float) -> Field:
    """Add a number to a field."""

    def shift(block: Block) -> int:
        constant = builder.constant(value, builder.nodes[block.node].positions)
        return _sum(builder, {block.node: 1.0, constant: 1.0})

    return builder.each_block(x, shift)


def _linear_combination(builder: Builder, x: Any, y: Any, cx: float, cy: float) -> Field:
    for field, other, cf, co in ((x, y, cx, cy), (y, x, cy, cx)):
        number = tensor_number(other)
        if number is not None:
            multiple = scaled(builder, field, cf)
            return multiple if number == 0 else shifted(builder, multiple, co * number)
    if isinstance(x, Field) and isinstance(y, (Weight, Computed)):
        y = table_like(builder, y, x)
    elif isinstance(y, Field) and isinstance(x, (Weight, Computed)):
        x = table_like(builder, x, y)
    x, y = _as_fields(builder, x, y)
    x, y = _align(builder, x, y)

    def total(first: int, second: int) -> int:
        terms = {first: cx}
        terms[second] = terms.get(second, 0.0) + cy
        if builder.info[first].sources & builder.info[second].sources and first != second:
            terms = {}
            for node, coefficient in ((first, cx), (second, cy)):
                for base, inner in _terms(builder, node).items():
                    terms[base] = terms.get(base, 0.0) + coefficient * inner
            composed = None if _independent(builder, tuple(terms)) else composed_sum(builder, terms)
            if composed is not None:
                return _function(builder, x, *composed)
            _check_independent(builder, tuple(terms), "sum", x)
            return _sum(builder, terms)
        return _sum(builder, terms, None if first == second else cross_moment(builder, (first, second), (cx, cy), x))

    return _blockwise(builder, x, y, total)


def _terms(builder: Builder, node: int) -> dict[int, float]:
    """Write a node as a linear combination of nodes that are not sums."""
    op = builder.nodes[node].op
    if not isinstance(op, Sum) or op.cross is not None or node in builder.parts:
        return {node: 1.0}
    terms: dict[int, float] = {}
    for read, coefficient in zip(builder.nodes[node].inputs, op.coefficients, strict=True):
        for base, inner in _terms(builder, read).items():
            terms[base] = terms.get(base, 0.0) + coefficient * inner
    return terms


def _sum(builder: Builder, terms: dict[int, float], cross: Tensor | None = None) -> int:
    if list(terms.values()) == [1.0]:
        return next(iter(terms))
    why = next((builder.info[node].why_not for node in terms if not builder.info[node].gaussian), "")
    return builder.add(
        Sum(tuple(terms.values()), cross),
        tuple(terms),
        builder.nodes[next(iter(terms))].positions,
        gaussian=not why,
        why_not=why,
        centred=all(builder.nodes[node].centred for node in terms),
        affine=_affine(builder, tuple(terms)),
        distinct=None if cross is None else len(builder.nodes),
    )


def _affine(builder: Builder, nodes: tuple[int, ...]) -> str:
    found = [builder.info[node].affine for node in nodes]
    return found[0] if len(found) == 1 else "part" if any(found) else ""


def _independent(builder: Builder, nodes: Sequence[int]) -> bool:
    return not any(builder.info[a].sources & builder.info[b].sources for a, b in combinations(nodes, 2))


def _check_independent(builder: Builder, nodes: Sequence[int], what: str, then: Field) -> None:
    if not _independent(builder, nodes):
        raise Refused(
            f"a {what} of branches that depend on each other: they carry the same random values with no fresh weights between",
            _DEPENDENT,
            then,
        )


def _function(builder: Builder, x: Field, base: int, phi: Activation) -> int:
    """Add an elementwise function of a node that replaces a combination of several functions of it."""
    whole = replace(x, blocks=(Block(base, x.channels),))
    return apply_activation(builder, whole, phi).blocks[0].node


def _as_fields(builder: Builder, x: Any, y: Any) -> tuple[Field, Field]:
    if any(isinstance(value, Computed) or (isinstance(value, Weight) and value.trained) for value in (x, y)):
        raise Refused(
            "a trained parameter is added to or multiplied with a random value; its gradient stays random",
            "freeze it with requires_grad_(False) if it is one number, or express it by a layer",
            x if isinstance(x, Field) else y,
        )
    if isinstance(x, Field) and isinstance(y, Data):
        return x, _data_like(builder, y, x)
    if isinstance(x, Data) and isinstance(y, Field):
        return _data_like(builder, x, y), y
    if isinstance(x, Field) and isinstance(y, Field):
        return x, y
    raise Refused(
        "a constant tensor takes part in it, so its channels are no longer alike",
        "use one number for all channels",
        x if isinstance(x, Field) else y,
    )


def _data_like(builder: Builder, data: Data, field: Field, cat_dim: int | None = None) -> Field:
    """Read data as a field with the dimensions of ``field``; a single channel broadcasts."""
    shape = tuple(data.value.shape)
    channel = field.channel_dim
    fits = len(shape) == len(field.dims) and all(
        size in (1, own) or dim == cat_dim for dim, (size, own) in enumerate(zip(shape, field.shape, strict=True))
    )
    if not fits or shape[0] != field.batch or any(len(field.core(d)) > 1 for d in range(len(field.dims))):
        raise Refused(
            f"raw data of shape {shape} meets a random value of shape {field.shape}",
            "give both the same dimensions, with channels and positions in separate ones",
        )
    result = builder.data_field(data, channel)
    if cat_dim is not None:
        return result
    blocks = (replace(result.blocks[0], width=field.channels),)
    return replace(result, blocks=blocks, channels=field.channels)


def _one_channel(data: Data, field: Field) -> bool:
    return bool(data.value.ndim == len(field.dims) and data.value.shape[field.channel_dim] == 1)


def _align(builder: Builder, x: Field, y: Field) -> tuple[Field, Field]:
    """Give both fields the same dimensions and axes by repeating each along the axes that only the other has."""
    mismatch = Refused(
        f"its operands of shapes {x.shape} and {y.shape} do not have the same layout of channels and positions",
        "give both the same number of dimensions, with the channels in the same one",
        x,
    )
    if len(x.dims) != len(y.dims):
        raise mismatch
    axes: list[tuple[int | None, int | None, int]] = []
    dims: list[tuple[int, ...]] = []
    for dim in range(len(x.dims)):
        first, second = x.core(dim), y.core(dim)
        sizes = [[field.size(atom) for atom in atoms if atom >= 0] for field, atoms in ((x, first), (y, second))]
        kinds = [[min(atom, 0) for atom in atoms] for atoms in (first, second)]
        if first and second and (kinds[0] != kinds[1] or sizes[0] != sizes[1]):
            raise mismatch
        if not (first and second) and any(atom < 0 for atom in (*first, *second)):
            raise mismatch
        group: list[int] = []
        for index in range(max(len(first), len(second))):
            atoms = (first[index] if first else None, second[index] if second else None)
            known = atoms[0] if atoms[0] is not None else atoms[1]
            assert known is not None
            if known < 0:
                group.append(known)
            else:
                group.append(len(axes))
                axes.append((*atoms, (x if first else y).positions[known]))
        dims.append(tuple(group))
    if x.channels != y.channels:
        raise mismatch
    lengths = [size for _, _, size in axes]
    return (
        builder.arrange(x, [axis for axis, _, _ in axes], lengths, dims),
        builder.arrange(y, [axis for _, axis, _ in axes], lengths, dims),
    )


def _flattened_apart(builder: Builder, field: Field, dim: int) -> Field:
    """Return the field with the positions that were flattened into the channels marked as merged, block by block."""
    inside = [atom for atom in field.core(dim) if atom >= 0]
    outside = [atom for d in range(len(field.dims)) if d != dim for atom in field.core(d) if atom >= 0]
    if any(block.merged for block in field.blocks):
        if inside:
            raise Refused("it concatenates values that were concatenated and flattened before", "concatenate once")
        return field
    order = [*outside, *inside]
    places = {axis: index for index, axis in enumerate(order)}
    dims = [
        (CHANNEL,) if d == dim else tuple(places.get(atom, atom) for atom in field.core(d))
        for d in range(len(field.dims))
    ]
    sizes = [field.positions[axis] for axis in order]
    arranged = builder.arrange(field, order, sizes, dims)
    merged = tuple(range(len(outside), len(order)))
    channels = field.channels
    for axis in inside:
        channels *= field.positions[axis]
    blocks = tuple(replace(block, merged=merged) for block in arranged.blocks)
    numbers = entry_numbers(builder, field, field.core(dim)) if inside else field.order
    return replace(arranged, blocks=blocks, positions=tuple(sizes[: len(outside)]), channels=channels, order=numbers)


def _same_order(x: Field, y: Field) -> bool:
    if x.order is None or y.order is None:
        return x.order is y.order
    return torch.equal(x.order, y.order)


def _blockwise(builder: Builder, x: Field, y: Field, function: Any) -> Field:
    """Combine two fields block by block, splitting blocks where those of the other field end."""
    blocks: list[Block] = []
    first, second = list(x.blocks), list(y.blocks)
    if len(first) == len(second) == 1:
        node = function(first[0].node, second[0].node)
        return replace(x, blocks=(Block(node, max(first[0].width, second[0].width), first[0].merged),))
    if any(block.merged for block in (*first, *second)):
        sizes = [[(block.width, block.merged) for block in blocks] for blocks in (first, second)]
        if sizes[0] != sizes[1] or not _same_order(x, y):
            raise Refused(
                "its operands were concatenated from flattened parts of different sizes",
                "combine them before torch.cat",
            )
        return replace(
            x, blocks=tuple(replace(a, node=function(a.node, b.node)) for a, b in zip(first, second, strict=True))
        )
    done = [0, 0]
    while first and second:
        width = min(first[0].width - done[0], second[0].width - done[1])
        nodes = [
            queue[0].node
            if queue[0].width == width
            else builder.part(queue[0].node, done[side], done[side] + width, queue[0].width)
            for side, queue in enumerate((first, second))
        ]
        blocks.append(Block(function(*nodes), width))
        for side, queue in enumerate((first, second)):
            done[side] += width
            if done[side] == queue[0].width:
                queue.pop(0)
                done[side] = 0
    return replace(x, blocks=tuple(blocks))
