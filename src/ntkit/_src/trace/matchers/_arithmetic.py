"""Sums, products and concatenations of fields, numbers and data."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import accumulate, combinations, pairwise, zip_longest
from typing import Any

import torch
from torch import Tensor

from ntkit._src.program import Activation, Polynomial, Product, Sum

from .._builder import EMPIRICAL, Builder, Refused, tensor_number
from .._layout import entry_numbers
from .._values import BATCH, CHANNEL, Block, Computed, Data, Derived, Field, Weight
from ._activations import apply_activation
from ._compose import composed_product, composed_sum
from ._positions import map_axis
from ._registry import matches
from ._tokens import cross_moment, joined, table_like

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
         family="arithmetic",
         note="with numbers and frozen scalars; with numbers of the data at each position, such as masks and counts")  # fmt: skip
def divide(builder: Builder, x: Any, y: Any) -> Field:
    """x / c, x / m with one number of the data for each position, or x / a with one constant for each position."""
    if isinstance(y, Tensor) and tensor_number(y) is None and bool((y != 0).all()):
        return multiply(builder, x, 1.0 / y)
    number = tensor_number(y)
    if isinstance(x, Field) and isinstance(y, Data):
        return multiply(builder, x, _derived(y, _reciprocal))
    if number is None or not isinstance(x, Field):
        raise Refused("it divides by something that is not a frozen number", "divide by a number, or use nn.LayerNorm")
    if number == 0:
        raise Refused("it divides by zero", "divide by a number other than zero", x)
    return scaled(builder, x, 1.0 / number)


def _derived(data: Data, function: Callable[[Tensor], Tensor]) -> Data:
    return Data(function(data.value), Derived(data.node, function))


def _reciprocal(counts: Tensor) -> Tensor:
    return counts.to(counts.dtype if counts.is_floating_point() else torch.float64).reciprocal()


def _kept(mask: Tensor) -> Tensor:
    return mask.to(torch.float64)


def _left(mask: Tensor) -> Tensor:
    return 1.0 - mask.to(torch.float64)


@matches(torch.masked_fill, "masked_fill", "masked_fill_", family="arithmetic")
def masked_fill(builder: Builder, x: Any, mask: Any, value: Any) -> Field:
    """x (1 - m), with a mask of the data that all channels share."""
    return _masked(builder, x, mask, value, _left)


@matches(
    torch.where, "where", family="arithmetic", note="`masked_fill` and `where` with masks of the data, zero elsewhere"
)
def where(builder: Builder, condition: Any, x: Any, y: Any) -> Field:
    """x m or x (1 - m), zero where the mask m of the data hides it."""
    if isinstance(condition, Field):  # the method, x.where(mask, 0)
        condition, x = x, condition
    return (
        _masked(builder, x, condition, y, _kept) if isinstance(x, Field) else _masked(builder, y, condition, x, _left)
    )


def _masked(builder: Builder, x: Any, mask: Any, value: Any, function: Callable[[Tensor], Tensor]) -> Field:
    if not isinstance(x, Field) or tensor_number(value) != 0:
        raise Refused(
            "it puts something other than zeros in place of random values, which shifts all channels equally",
            "fill with zero; masks of attention go into its own arguments",
            x if isinstance(x, Field) else None,
        )
    if not isinstance(mask, Data):
        raise Refused("its mask is constant or random", "multiply with a mask computed from the input", x)
    return multiply(builder, x, _derived(mask, function))


@matches(operator.mul, operator.imul, torch.mul, torch.multiply, "mul", "mul_", "multiply", family="arithmetic")
def multiply(builder: Builder, x: Any, y: Any) -> Field:
    """x y, one of them a number or both independent fields; x x is the square."""
    for field, other in ((x, y), (y, x)):
        number = tensor_number(other)
        if number is not None:
            return scaled(builder, field, number)
        if isinstance(field, Field) and isinstance(other, Tensor):
            weighted = _weighted_positions(builder, field, other)
            if weighted is not None:
                return weighted
    # Data with a single channel (a mask, a weight per position) only scales: Gaussian values stay Gaussian.
    scaling = any(isinstance(a, Data) and isinstance(b, Field) and _one_channel(a, b) for a, b in ((x, y), (y, x)))
    data = [isinstance(value, Data) for value in (x, y)]
    x, y = _as_fields(builder, x, y)
    gaussian = isinstance(x, Field) and all(builder.info[block.node].gaussian for block in x.blocks)
    if x == y and _same_order(x, y) and gaussian:
        return apply_activation(builder, x, Polynomial((0.0, 0.0, 1.0), label="square"))
    x, y = _align(builder, x, y)

    def sources(*nodes: int) -> frozenset[int]:
        random = [node for node, given in zip(nodes, data, strict=True) if not (scaling and given)]
        return frozenset[int]().union(*(builder.info[node].sources for node in random))

    def product(first: int, second: int) -> int:
        # A number for each input and position is fixed once the inputs are, whatever else depends on them.
        if not scaling and builder.info[first].sources & builder.info[second].sources:
            composed = composed_product(builder, first, second)
            if composed is not None:
                return _function(builder, x, *composed)
        if not scaling:
            _check_independent(builder, (first, second), "product", x)
        infos = builder.info[first], builder.info[second]
        still_gaussian = scaling and any(info.gaussian for info in infos)
        return builder.add(
            Product(),
            (first, second),
            builder.nodes[first].positions,
            why_not="" if still_gaussian else "it is a product of random values",
            centred=builder.nodes[first].centred or builder.nodes[second].centred,
            sources=sources(first, second) | builder.own_source(),
            affine="part" if any(info.affine for info in infos) else "",
        )

    return _blockwise(builder, x, y, product)


@matches(
    torch.cat, torch.concat, torch.concatenate, "cat", "concat",
    family="arithmetic",
    note="concatenation over channels, weighted by width, and of independent tokens",
)  # fmt: skip
def concatenate(builder: Builder, tensors: Sequence[Any], dim: int = 0, axis: int | None = None) -> Field:
    """Concatenate channels, or tokens."""
    dim = dim if axis is None else axis
    reference = next(t for t in tensors if isinstance(t, Field))
    dim %= len(reference.dims)
    if any(isinstance(t, (Weight, Computed)) for t in tensors) and CHANNEL in reference.dims[dim]:
        raise Refused(
            "it concatenates a parameter with the channels of random values, so that channels differ",
            f"concatenate along the tokens; or {EMPIRICAL}",
        )
    if not all(isinstance(t, (Field, Data, Weight, Computed)) for t in tensors):
        raise Refused("it concatenates a constant with random values", "concatenate outputs of layers")
    fields = [_field_like(builder, t, reference, dim) for t in tensors]
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
    starts = list(accumulate((part.channels for part in parts), initial=0))
    order = None
    if any(part.order is not None for part in parts):
        orders = [torch.arange(part.channels) if part.order is None else part.order for part in parts]
        order = torch.cat([start + own for start, own in zip(starts, orders, strict=False)])
    return replace(first, blocks=blocks, channels=starts[-1], order=order)


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


def _weighted_positions(builder: Builder, x: Field, factors: Tensor) -> Field | None:
    """Multiply each position along one axis by its own number; None if the factors differ along anything else."""
    shape = (1,) * (len(x.dims) - factors.ndim) + tuple(factors.shape)
    if len(shape) != len(x.dims) or any(size not in (1, own) for size, own in zip(shape, x.shape, strict=True)):
        return None
    factors = factors.detach().reshape(shape)
    varied = [
        dim for dim in range(len(shape)) if not torch.equal(factors, factors.narrow(dim, 0, 1).expand_as(factors))
    ]
    axis = x.axis(varied[0]) if len(varied) == 1 else None
    if axis is None or CHANNEL in x.dims[varied[0]]:
        return None
    for dim in set(range(len(shape))) - set(varied):
        factors = factors.narrow(dim, 0, 1)
    return map_axis(builder, x, axis, torch.diag(factors.flatten().to(torch.float64)), "factors of positions")


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
    x, y = _align(builder, *_as_fields(builder, x, y))

    def total(first: int, second: int) -> int:
        if first == second:
            return _sum(builder, {first: cx + cy})
        if not builder.info[first].sources & builder.info[second].sources:
            return _sum(builder, {first: cx, second: cy}, cross_moment(builder, (first, second), (cx, cy), x))
        terms = _terms(builder, ((first, cx), (second, cy)))
        composed = None if _independent(builder, tuple(terms)) else composed_sum(builder, terms)
        if composed is not None:
            return _function(builder, x, *composed)
        _check_independent(builder, tuple(terms), "sum", x)
        return _sum(builder, terms)

    return _blockwise(builder, x, y, total)


def _terms(builder: Builder, sum_of: Iterable[tuple[int, float]]) -> dict[int, float]:
    """Write a linear combination of nodes as one of nodes that are not sums."""
    terms: dict[int, float] = {}
    for node, coefficient in sum_of:
        op, inputs = builder.nodes[node].op, builder.nodes[node].inputs
        inner = {node: 1.0}
        if isinstance(op, Sum) and op.cross is None and node not in builder.parts:
            inner = _terms(builder, zip(inputs, op.coefficients, strict=True))
        for base, factor in inner.items():
            terms[base] = terms.get(base, 0.0) + coefficient * factor
    return terms


def _sum(builder: Builder, terms: dict[int, float], cross: Tensor | None = None) -> int:
    if list(terms.values()) == [1.0]:
        return next(iter(terms))
    positions = builder.nodes[next(iter(terms))].positions
    return builder.combine(Sum(tuple(terms.values()), cross), tuple(terms), positions)


def _independent(builder: Builder, nodes: Sequence[int]) -> bool:
    return not any(builder.info[a].sources & builder.info[b].sources for a, b in combinations(nodes, 2))


def _check_independent(builder: Builder, nodes: Sequence[int], what: str, then: Field) -> None:
    pairs = [pair for pair in combinations(nodes, 2) if not _independent(builder, pair)]
    if not all(what == "sum" and builder.joint(*pair) for pair in pairs):
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
    like = x if isinstance(x, Field) else y
    if any(isinstance(value, Computed) or (isinstance(value, Weight) and value.trained) for value in (x, y)):
        raise Refused(
            "a trained parameter is added to or multiplied with a random value; its gradient stays random",
            "freeze it with requires_grad_(False) if it is one number, or express it by a layer",
            like,
        )
    if not all(isinstance(value, (Field, Data)) for value in (x, y)):
        raise Refused(
            "a constant tensor takes part in it that differs between channels, between inputs or along several axes of positions",
            "use one number for all channels, or multiply by one number for each position along one axis",
            like,
        )
    return _field_like(builder, x, like), _field_like(builder, y, like)


def _field_like(builder: Builder, value: Any, field: Field, cat_dim: int | None = None) -> Field:
    """Read data or parameters as a field with the dimensions of another, along ``cat_dim`` of any length."""
    if isinstance(value, Data):
        return _data_like(builder, value, field, cat_dim)
    return table_like(builder, value, field, cat_dim) if isinstance(value, (Weight, Computed)) else value


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
    return replace(result, blocks=(replace(result.blocks[0], width=field.channels),), channels=field.channels)


def _one_channel(data: Data, field: Field) -> bool:
    return bool(data.value.ndim == len(field.dims) and data.value.shape[field.channel_dim] == 1)


def _align(builder: Builder, x: Field, y: Field) -> tuple[Field, Field]:
    """Give both fields the same dimensions and axes by repeating each along the axes that only the other has."""
    mismatch = Refused(
        f"its operands of shapes {x.shape} and {y.shape} do not have the same layout of channels and positions",
        "give both the same number of dimensions, with the channels in the same one",
        x,
    )
    if len(x.dims) != len(y.dims) or x.channels != y.channels:
        raise mismatch
    axes: list[tuple[int | None, int | None]] = []
    lengths: list[int] = []
    dims: list[tuple[int, ...]] = []
    for dim in range(len(x.dims)):
        first, second = x.core(dim), y.core(dim)
        if _structure(x, dim) == _structure(y, dim):  # axes of length one stay, for programs of inputs of other lengths
            first, second = x.dims[dim], y.dims[dim]
        sizes = [[field.size(atom) for atom in atoms if atom >= 0] for field, atoms in ((x, first), (y, second))]
        kinds = [[min(atom, 0) for atom in atoms] for atoms in (first, second)]
        if first and second and (kinds[0] != kinds[1] or sizes[0] != sizes[1]):
            raise mismatch
        if not (first and second) and any(atom < 0 for atom in (*first, *second)):
            raise mismatch
        group: list[int] = []
        for one, other in zip_longest(first, second):
            known = other if one is None else one
            group.append(known if known < 0 else len(axes))
            if known >= 0:
                axes.append((one, other))
                lengths.append((x if first else y).positions[known])
        dims.append(tuple(group))
    return (
        builder.arrange(x, [axis for axis, _ in axes], lengths, dims),
        builder.arrange(y, [axis for _, axis in axes], lengths, dims),
    )


def _structure(x: Field, dim: int) -> list[tuple[bool, int]]:
    return [(atom < 0, x.size(atom)) for atom in x.dims[dim]]


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
    channels = field.channels * math.prod(field.positions[axis] for axis in inside)
    blocks = tuple(replace(block, merged=merged) for block in arranged.blocks)
    numbers = entry_numbers(builder, field, field.core(dim)) if inside else field.order
    return replace(arranged, blocks=blocks, positions=tuple(sizes[: len(outside)]), channels=channels, order=numbers)


def _same_order(x: Field, y: Field) -> bool:
    if x.order is None or y.order is None:
        return x.order is y.order
    return torch.equal(x.order, y.order)


def _blockwise(builder: Builder, x: Field, y: Field, function: Callable[[int, int], int]) -> Field:
    """Combine two fields block by block, splitting blocks where those of the other field end."""
    first, second = x.blocks, y.blocks
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
        pairs = zip(first, second, strict=True)
        return replace(x, blocks=tuple(replace(a, node=function(a.node, b.node)) for a, b in pairs))
    ends = sorted({*accumulate(block.width for block in first), *accumulate(block.width for block in second)})
    combined = []
    for start, end in pairwise((0, *ends)):
        one, other = (builder.channels(field, start, end).blocks[0].node for field in (x, y))
        combined.append(Block(function(one, other), end - start))
    return replace(x, blocks=tuple(combined))
