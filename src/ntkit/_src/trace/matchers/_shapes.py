"""Calls that only regroup the dimensions of a tensor, cut it or read its shape. Different channels are independent fields."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ntkit._src.program import Split

from .._builder import Builder, Refused
from .._values import BATCH, CHANNEL, Field
from ._activations import sigmoid
from ._arithmetic import concatenate, multiply
from ._positions import select
from ._registry import matches


@matches(
    "contiguous", "clone", "to", "float", "double", "type_as", torch.clone, "alias", "_to_copy",
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
    modules=dict.fromkeys((
        nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
    ), ()),
    family="no operation",
    note="dropout in evaluation mode; in training mode it is refused",
)  # fmt: skip
def identity(builder: Builder, x: Field, *arguments: object, **options: object) -> Field:
    """Leave the field as it is."""
    return x


def _reshape(builder: Builder, x: Field, shape: Any) -> Field:
    sizes = _whole([int(size) for size in shape], math.prod(x.shape))
    reshaped = _split_axes(builder, x, sizes).reshape(sizes)
    if reshaped is None:
        raise Refused(
            f"a reshape from {x.shape} to {tuple(sizes)} that cuts the channel axis or mixes it with others",
            "keep the batch first and the channel axis whole: flatten with x.flatten(1) or nn.Flatten()",
        )
    return reshaped


def _whole(sizes: list[int], entries: int) -> list[int]:
    """Return sizes with the number that -1 stands for."""
    known = math.prod(size for size in sizes if size != -1)
    return [(entries // known if known else 0) if size == -1 else size for size in sizes]


def _split_axes(builder: Builder, x: Field, shape: Sequence[int]) -> Field:
    """Split the position axes that a reshape cuts, if their lengths allow it."""
    atoms = [atom for dim in x.dims for atom in dim]
    parts: dict[int, list[int]] = {}
    left = list(shape)
    for atom in atoms:
        size, own = x.size(atom), []
        while size > 1 and left:
            shared = math.gcd(size, left[0])
            if left[0] == 1:
                left.pop(0)
                continue
            if shared not in (size, left[0]):
                return x
            own.append(shared)
            size //= shared
            left[0] //= shared
        parts[atom] = own
    for axis in sorted((atom for atom in atoms if atom >= 0), reverse=True):
        if len(parts[axis]) > 1:
            x = _split(builder, x, axis, tuple(parts[axis]))
    return x


def _split(builder: Builder, x: Field, axis: int, sizes: tuple[int, ...]) -> Field:
    more = len(sizes) - 1
    split = builder.map_axes(x, Split(axis, sizes), x.with_length(axis, *sizes))
    blocks = tuple(replace(block, merged=tuple(other + more for other in block.merged)) for block in split.blocks)
    dims = [
        sum((tuple(range(axis, axis + more + 1)) if a == axis else (a + more if a > axis else a,) for a in dim), ())
        for dim in x.dims
    ]
    return replace(split, blocks=blocks).with_dims(dims)


def _given(values: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return arguments that may come one by one or as one sequence."""
    return tuple(values[0]) if len(values) == 1 and isinstance(values[0], (tuple, list)) else values


@matches(
    "view", "reshape", "view_as", "reshape_as", "_unsafe_view", torch.reshape,
    family="shape",
    note="reshapes that merge or split whole axes",
)  # fmt: skip
def reshape(builder: Builder, x: Field, *shape: Any, size: Any = None) -> Field:
    """Regroup the dimensions."""
    if len(shape) == 1 and isinstance(shape[0], Field):
        return _reshape(builder, x, shape[0].shape)
    return _reshape(builder, x, _given(shape) if size is None else size)


@matches("flatten", torch.flatten, modules={nn.Flatten: ("start_dim", "end_dim")}, family="shape")
def flatten(builder: Builder, x: Field, start_dim: int = 0, end_dim: int = -1) -> Field:
    """Merge a range of dimensions."""
    start, end = start_dim % len(x.dims), end_dim % len(x.dims)
    if start == 0 and x.shape[0] > 1 and end > 0:
        raise Refused("it merges the batch with what follows", "flatten from dimension 1: x.flatten(1)")
    return x.with_dims((*x.dims[:start], sum(x.dims[start : end + 1], ()), *x.dims[end + 1 :]))


@matches(
    "unflatten",
    torch.unflatten,
    modules={nn.Unflatten: lambda module, path: {"dim": module.dim, "sizes": module.unflattened_size}},
    family="shape",
)
def unflatten(builder: Builder, x: Field, dim: int, sizes: Any) -> Field:
    """Split a dimension."""
    dim %= len(x.dims)
    parts = _whole([int(size) for size in sizes], x.shape[dim])
    return _reshape(builder, x, (*x.shape[:dim], *parts, *x.shape[dim + 1 :]))


@matches("permute", torch.permute, family="shape")
def permute(builder: Builder, x: Field, *dims: Any) -> Field:
    """Reorder the dimensions."""
    return x.with_dims([x.dims[dim] for dim in _given(dims)])


@matches("transpose", "swapaxes", "swapdims", torch.transpose, torch.swapaxes, torch.swapdims, family="shape")
def transpose(builder: Builder, x: Field, dim0: int, dim1: int) -> Field:
    """Exchange two dimensions."""
    dims = list(x.dims)
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return x.with_dims(dims)


@matches("movedim", "moveaxis", torch.movedim, torch.moveaxis, family="shape")
def movedim(builder: Builder, x: Field, source: Any, destination: Any) -> Field:
    """Move dimensions to other places."""
    order = torch.empty(tuple(range(2, 2 + len(x.dims))), device="meta").movedim(source, destination).shape
    return x.with_dims([x.dims[size - 2] for size in order])


@matches("squeeze", torch.squeeze, family="shape")
def squeeze(builder: Builder, x: Field, dim: Any = None) -> Field:
    """Drop dimensions of length one."""
    chosen = range(len(x.dims)) if dim is None else [dim] if isinstance(dim, int) else dim
    for d in sorted((d % len(x.dims) for d in chosen), reverse=True):
        if x.shape[d] == 1 and BATCH not in x.dims[d]:
            x = x.squeeze(d)
    return x


@matches("unsqueeze", torch.unsqueeze, family="shape")
def unsqueeze(builder: Builder, x: Field, dim: int) -> Field:
    """Add a dimension of length one."""
    return x.unsqueeze(dim)


@matches(torch.stack, "stack", family="shape", note="stacks of vectors become positions")
def stack(builder: Builder, tensors: Sequence[Any], dim: int = 0) -> Field:
    """Put values side by side along a new dimension of positions."""
    if not all(isinstance(x, Field) for x in tensors):
        raise Refused("it stacks data or constants with random values", "stack outputs of layers")
    return concatenate(builder, [x.unsqueeze(dim) for x in tensors], dim)


@matches("size", "sym_size")
def size(builder: Builder, x: Field, dim: int | None = None) -> Any:
    """Return the shape, or one length of it."""
    return torch.Size(x.shape) if dim is None else x.shape[dim]


matches("dim", "ndimension")(lambda builder, x: len(x.dims))
matches("numel")(lambda builder, x: math.prod(x.shape))
matches(torch.zeros_like, "zeros_like")(lambda builder, x, **options: torch.tensor(0.0).expand(x.shape))
matches(torch.ones_like, "ones_like")(lambda builder, x, **options: torch.tensor(1.0).expand(x.shape))


@matches(getattr)
def attribute(builder: Builder, x: Field, name: str) -> Any:
    """Read ``shape``, ``ndim`` and the like."""
    if name in ("T", "mT"):
        return transpose(builder, x, -2, -1)
    known = {
        "shape": torch.Size(x.shape),
        "ndim": len(x.dims),
        "dtype": torch.get_default_dtype(),
        "device": torch.device("cpu"),
    }
    if name not in known:
        raise Refused(f"it reads .{name} of a random value", "write the module without it")
    return known[name]


def _parts(builder: Builder, x: Field, dim: int, sizes: Sequence[int]) -> tuple[Field, ...]:
    """Split channels or positions into parts of given sizes."""
    dim %= len(x.dims)
    ranges = list(pairwise(accumulate(sizes, initial=0)))
    if BATCH in x.dims[dim]:
        raise Refused("it cuts the batch into parts", "cut channels or positions", x)
    if CHANNEL not in x.dims[dim]:
        x, axis = builder.axis_of(x, dim)
        return tuple(select(builder, x, axis, range(start, end)) for start, end in ranges)
    if x.core(dim) != (CHANNEL,) or any(block.merged for block in x.blocks) or x.order is not None:
        raise Refused(
            "it cuts a dimension in which positions are merged with the channels",
            "cut the channels before flattening",
            x,
        )
    return tuple(builder.channels(x, start, end) for start, end in ranges)


@matches(torch.chunk, "chunk", family="shape", note="parts of the channels, which are independent, or of positions")
def chunk(builder: Builder, x: Field, chunks: int, dim: int = 0) -> tuple[Field, ...]:
    """Split into a given number of equal parts."""
    length = x.shape[dim]
    size = -(-length // chunks)
    return _parts(builder, x, dim, [min(size, length - start) for start in range(0, length, size)])


@matches(torch.split, "split", "split_with_sizes", torch.split_with_sizes, family="shape")
def split(builder: Builder, x: Field, split_size_or_sections: Any, dim: int = 0) -> tuple[Field, ...]:
    """Split into parts of one size, or of given sizes."""
    length = x.shape[dim]
    sizes = split_size_or_sections
    if not isinstance(sizes, (tuple, list)):
        sizes = [min(int(sizes), length - start) for start in range(0, length, int(sizes))]
    return _parts(builder, x, dim, [int(size) for size in sizes])


@matches(
    F.glu, torch._C._nn.glu, "glu",
    modules={nn.GLU: ("dim",)},
    family="activation, by quadrature",
    note="GLU: the halves of the channels are independent",
)  # fmt: skip
def glu(builder: Builder, x: Field, dim: int = -1) -> Field:
    """Multiply the first half of the channels by the sigmoid of the second."""
    dim %= len(x.dims)
    if CHANNEL not in x.dims[dim]:
        raise Refused(
            "it gates positions by others, which depend on each other",
            "gate channels: nn.GLU(dim) with their dimension",
            x,
        )
    half = x.channels // 2
    value, gate = _parts(builder, x, dim, (half, half))
    return multiply(builder, value, sigmoid(builder, gate))
