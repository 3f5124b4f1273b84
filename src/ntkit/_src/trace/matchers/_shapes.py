"""Calls that only rearrange a tensor or read its shape: reshapes, permutations, slices, padding, dropout, sizes."""

from __future__ import annotations

import math
import operator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F

from ntkit._src.program import Split

from .._builder import Builder, Refused
from .._values import BATCH, CHANNEL, Field
from ._linear import pad_axis, select
from ._registry import matches

__all__: list[str] = []

_KEEP_AXES = "keep the batch first and the channel axis whole: flatten with x.flatten(1) or nn.Flatten()"


@matches(
    "contiguous", "clone", "to", "float", "double", "type_as", torch.clone, "alias", "_to_copy",
    F.dropout, F.dropout1d, F.dropout2d, F.dropout3d, F.alpha_dropout, F.feature_alpha_dropout,
    "dropout", "dropout_", "alpha_dropout", "feature_dropout", "feature_alpha_dropout",
    modules={
        kind: lambda module, path: {}
        for kind in (
            nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d, nn.AlphaDropout, nn.FeatureAlphaDropout,
        )
    },
    family="no operation",
    note="dropout in evaluation mode; in training mode it is refused",
)  # fmt: skip
def identity(builder: Builder, x: Field, *arguments: object, **options: object) -> Field:
    """Leave the field as it is."""
    return x


def _reshape(builder: Builder, x: Field, shape: Any) -> Field:
    sizes = [int(size) for size in shape]
    if -1 in sizes:
        known = -math.prod(sizes)
        sizes[sizes.index(-1)] = math.prod(x.shape) // known if known else 0
    reshaped = _split_axes(builder, x, sizes).reshape(sizes)
    if reshaped is None:
        raise Refused(
            f"a reshape from {x.shape} to {tuple(sizes)} that cuts the channel axis or mixes it with others", _KEEP_AXES
        )
    return reshaped


def _split_axes(builder: Builder, x: Field, shape: list[int]) -> Field:
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
    positions = (*x.positions[:axis], *sizes, *x.positions[axis + 1 :])
    more = len(sizes) - 1
    split = builder.each_block(
        x,
        lambda block: builder.linear_map(Split(axis, sizes), block.node, builder.block_positions(x, block, positions)),
        positions,
    )
    blocks = tuple(replace(block, merged=tuple(other + more for other in block.merged)) for block in split.blocks)
    dims = [
        sum((tuple(range(axis, axis + more + 1)) if a == axis else (a + more if a > axis else a,) for a in dim), ())
        for dim in x.dims
    ]
    return replace(split, blocks=blocks).with_dims(dims)


@matches(
    "view",
    "reshape",
    "view_as",
    "reshape_as",
    "_unsafe_view",
    torch.reshape,
    family="shape",
    note="reshapes that merge or split whole axes",
)
def reshape(builder: Builder, x: Field, *shape: Any, size: Any = None) -> Field:
    """Regroup the dimensions."""
    if len(shape) == 1 and isinstance(shape[0], Field):
        return _reshape(builder, x, shape[0].shape)
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)):
        shape = tuple(shape[0])
    return _reshape(builder, x, size if size is not None else shape)


@matches(
    "flatten",
    torch.flatten,
    modules={nn.Flatten: lambda module, path: {"start_dim": module.start_dim, "end_dim": module.end_dim}},
    family="shape",
)
def flatten(builder: Builder, x: Field, start_dim: int = 0, end_dim: int = -1) -> Field:
    """Merge a range of dimensions."""
    shape = x.shape
    start, end = start_dim % len(shape), end_dim % len(shape)
    if start == 0 and shape[0] > 1 and end > 0:
        raise Refused("it merges the batch with what follows", "flatten from dimension 1: x.flatten(1)")
    dims = (*x.dims[:start], sum(x.dims[start : end + 1], ()), *x.dims[end + 1 :])
    return x.with_dims(dims)


@matches(
    "unflatten",
    torch.unflatten,
    modules={nn.Unflatten: lambda module, path: {"dim": module.dim, "sizes": module.unflattened_size}},
    family="shape",
)
def unflatten(builder: Builder, x: Field, dim: int, sizes: Any) -> Field:
    """Split a dimension."""
    dim %= len(x.dims)
    sizes = [int(size) for size in sizes]
    if -1 in sizes:
        sizes[sizes.index(-1)] = x.shape[dim] // -math.prod(sizes)
    return _reshape(builder, x, (*x.shape[:dim], *sizes, *x.shape[dim + 1 :]))


@matches("permute", torch.permute, family="shape")
def permute(builder: Builder, x: Field, *dims: Any) -> Field:
    """Reorder the dimensions."""
    order = tuple(dims[0]) if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    return x.with_dims([x.dims[dim] for dim in order])


@matches("transpose", "swapaxes", "swapdims", torch.transpose, torch.swapaxes, torch.swapdims, family="shape")
def transpose(builder: Builder, x: Field, dim0: int, dim1: int) -> Field:
    """Exchange two dimensions."""
    dims = list(x.dims)
    dims[dim0], dims[dim1] = dims[dim1], dims[dim0]
    return x.with_dims(dims)


@matches("movedim", "moveaxis", torch.movedim, torch.moveaxis, family="shape")
def movedim(builder: Builder, x: Field, source: Any, destination: Any) -> Field:
    """Move dimensions to other places."""
    order = list(torch.empty((0,) * 0).new_empty(tuple(range(2, 2 + len(x.dims)))).movedim(source, destination).shape)
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
    return _unsqueeze(x, dim)


def _unsqueeze(x: Field, dim: int) -> Field:
    dims = list(x.dims)
    dims.insert(dim % (len(dims) + 1), ())
    return x.with_dims(dims)


@matches("size", "sym_size")
def size(builder: Builder, x: Field, dim: int | None = None) -> Any:
    """Return the shape, or one length of it."""
    return torch.Size(x.shape) if dim is None else x.shape[dim]


@matches("dim", "ndimension")
def rank(builder: Builder, x: Field) -> int:
    """Return the number of dimensions."""
    return len(x.dims)


@matches("numel")
def numel(builder: Builder, x: Field) -> int:
    """Return the number of entries."""
    return math.prod(x.shape)


def _register_constant(value: float, *functions: object) -> None:
    """Return a constant of the shape of a random value."""
    matches(*functions)(lambda builder, x, **options: torch.tensor(value).expand(x.shape))


_register_constant(0.0, torch.zeros_like, "zeros_like")
_register_constant(1.0, torch.ones_like, "ones_like")


@matches(getattr)
def attribute(builder: Builder, x: Field, name: str) -> Any:
    """Read ``shape``, ``ndim`` and the like."""
    if name == "shape":
        return torch.Size(x.shape)
    if name == "ndim":
        return len(x.dims)
    if name in ("dtype", "device"):
        return {"dtype": torch.get_default_dtype(), "device": torch.device("cpu")}[name]
    if name in ("T", "mT"):
        return transpose(builder, x, -2, -1)
    raise Refused(f"it reads .{name} of a random value", "write the module without it")


@matches(operator.getitem, family="shape", note="slices along positions")
def getitem(builder: Builder, x: Field, index: Any) -> Field:
    """Slice along positions: x[:, 0], x[..., ::2], x[:, :, None]."""
    return _getitem(builder, x, index)


def _getitem(builder: Builder, x: Field, index: Any) -> Field:
    items = list(index) if isinstance(index, tuple) else [index]
    if Ellipsis in items:
        at = items.index(Ellipsis)
        missing = len(x.dims) - sum(item is not None for item in items) + 1
        items[at : at + 1] = [slice(None)] * missing
    dim = 0
    for item in items:
        if item is None:
            x = _unsqueeze(x, dim)
            dim += 1
        elif isinstance(item, slice) and item == slice(None):
            dim += 1
        elif isinstance(item, (int, slice)):
            if BATCH in x.dims[dim] or CHANNEL in x.dims[dim]:
                raise Refused(
                    "it takes a part of the " + ("batch" if BATCH in x.dims[dim] else "channels"),
                    "slice positions only; split channels by separate layers",
                )
            x, axis = builder.axis_of(x, dim)
            picked = range(x.positions[axis])[item]
            x = select(builder, x, axis, [picked] if isinstance(picked, int) else picked)
            if isinstance(item, int):
                x = x.squeeze(dim)
            else:
                dim += 1
        else:
            raise Refused("it is indexed by a tensor or a mask", "slice with constants")
    return x


@matches("select", torch.select)
def select_(builder: Builder, x: Field, dim: int, index: int) -> Field:
    """Take one position."""
    return _getitem(builder, x, (slice(None),) * (dim % len(x.dims)) + (index,))


@matches("slice")
def slice_(builder: Builder, x: Field, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Field:
    """Take a range of positions."""
    stop = None if end is None or end >= x.shape[dim] else end
    chosen = slice(start or None, stop, None if step == 1 else step)
    return _getitem(builder, x, (slice(None),) * (dim % len(x.dims)) + (chosen,))


@matches("flip", torch.flip, family="shape")
def flip(builder: Builder, x: Field, *dims: Any) -> Field:
    """Reverse positions."""
    chosen = dims[0] if len(dims) == 1 and isinstance(dims[0], (tuple, list)) else dims
    for dim in chosen:
        x, axis = builder.axis_of(x, dim % len(x.dims))
        x = select(builder, x, axis, range(x.positions[axis])[::-1])
    return x


_PADS: dict[type[nn.Module], str] = {
    nn.ZeroPad1d: "constant", nn.ZeroPad2d: "constant", nn.ZeroPad3d: "constant",
    nn.CircularPad1d: "circular", nn.CircularPad2d: "circular", nn.CircularPad3d: "circular",
    nn.ReflectionPad1d: "reflect", nn.ReflectionPad2d: "reflect", nn.ReflectionPad3d: "reflect",
    nn.ReplicationPad1d: "replicate", nn.ReplicationPad2d: "replicate", nn.ReplicationPad3d: "replicate",
}  # fmt: skip


def _pad_arguments(mode: str, module: Any, path: str) -> dict[str, Any]:
    return {"pad": module.padding, "mode": mode}


def _constant_pad_arguments(module: Any, path: str) -> dict[str, Any]:
    return {"pad": module.padding, "value": module.value}


@matches(
    F.pad,
    torch._C._nn.pad,
    "pad",
    modules={
        **{kind: partial(_pad_arguments, mode) for kind, mode in _PADS.items()},
        **dict.fromkeys((nn.ConstantPad1d, nn.ConstantPad2d, nn.ConstantPad3d), _constant_pad_arguments),
    },
    family="shape",
    note="padding with zeros, circular, reflect or replicate",
)
def pad(builder: Builder, x: Field, pad: Any, mode: str = "constant", value: float | None = None) -> Field:
    """Pad positions."""
    if mode == "constant" and value:
        raise Refused("it pads with a constant that is not zero", "pad with zeros")
    for index in range(len(pad) // 2):
        amounts = (int(pad[2 * index]), int(pad[2 * index + 1]))
        if amounts != (0, 0):
            x, axis = builder.axis_of(x, len(x.dims) - 1 - index)
            x = pad_axis(builder, x, axis, amounts, mode)
    return x
