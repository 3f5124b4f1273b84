"""Fields whose channels are split into heads: entries are numbered, so that any rearrangement can be followed."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, fx

from .._builder import EMPIRICAL, Refused
from .._nodes import target_name
from .._values import BATCH, CHANNEL, Field

WRITE_ATTENTION = (
    "write q, k and v as linear(x).view(n, tokens, heads, d).transpose(1, 2), each with its own weights, then "
    "F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(n, tokens, channels); or use nn.MultiheadAttention or "
    f"ntkit.layers.SelfAttention; or {EMPIRICAL}"
)
_REARRANGES = frozenset({
    "view", "reshape", "_unsafe_view", "flatten", "unflatten", "Flatten", "Unflatten", "squeeze", "unsqueeze",
    "transpose", "swapaxes", "swapdims", "permute", "movedim", "moveaxis", "getattr",
    "chunk", "split", "split_with_sizes", "tensor_split", "unbind", "getitem", "select", "slice", "size", "sym_size",
})  # fmt: skip
_KEEPS = frozenset({"contiguous", "clone", "to", "float", "double", "type_as", "_to_copy", "alias", "Identity"})
_LAYERS = frozenset({"linear", "conv1d", "conv2d", "conv3d"})
_ATTENTION = "scaled_dot_product_attention"


@dataclass(frozen=True, eq=False)
class Heads:
    """Entries of a field in an arrangement that splits its channels."""

    base: Field
    index: Tensor  # of each entry in the field viewed as (n, *positions, channels)

    @classmethod
    def of(cls, field: Field) -> Heads:
        """Return the entries of a field by their indices."""
        sizes = (field.batch, *field.positions, field.channels)
        whole = torch.arange(math.prod(sizes)).reshape(sizes)
        places = {BATCH: 0, CHANNEL: whole.ndim - 1, **{axis: axis + 1 for axis in range(len(field.positions))}}
        order = [places[atom] for dim in field.dims for atom in dim]
        unseen = [place for place in range(whole.ndim) if place not in order]  # axes of length one
        return cls(field, whole.permute(*order, *unseen).reshape(field.shape))

    def settled(self) -> Heads | Field:
        """Return the field itself once its entries are back in an arrangement with whole channels."""
        for dims in _layouts(len(self.base.positions)):
            field = self.base.with_dims(dims)
            if field.shape == tuple(self.index.shape) and torch.equal(Heads.of(field).index, self.index):
                return field
        return self


def _layouts(axes: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield the views of a field: the tokens in one dimension, or each of their axes in a separate one."""
    yield from permutations(((BATCH,), tuple(range(axes)), (CHANNEL,)))
    if axes > 1:
        yield from permutations(((BATCH,), *((axis,) for axis in range(axes)), (CHANNEL,)))


def feeds_attention(graph: fx.GraphModule) -> set[fx.Node]:
    """Find the rearrangements between layers and a later attention; they may split channels into heads."""
    found: set[fx.Node] = set()
    seen: set[fx.Node] = set()
    stack = [n for node in graph.graph.nodes if target_name(graph, node) == _ATTENTION for n in node.all_input_nodes]
    while stack:
        node = stack.pop()
        name = target_name(graph, node)
        if node in seen or name in _LAYERS or (node.op == "call_module" and name not in _REARRANGES | _KEEPS):
            continue
        seen.add(node)
        if name in _REARRANGES:
            found.add(node)
        stack.extend(node.all_input_nodes)
    return found


def rearranged_heads(name: str, leaves: list[Any], run: Any) -> Any:
    """Follow a call that only rearranges heads; ``run`` makes the call on the entries' indices in place of the heads."""
    read = [leaf for leaf in leaves if isinstance(leaf, (Heads, Field))]
    if name not in _REARRANGES | _KEEPS or len(read) != 1:
        raise Refused(
            "its input has the channels cut into heads, or heads and tokens mixed; only attention has a rule for heads",
            WRITE_ATTENTION,
        )
    base = read[0].base if isinstance(read[0], Heads) else read[0]
    if name in _KEEPS:
        return read[0]
    value = run()
    if isinstance(value, Tensor):
        return Heads(base, value).settled()
    if isinstance(value, (tuple, list)) and all(isinstance(part, Tensor) for part in value):
        return tuple(Heads(base, part).settled() for part in value)
    return value
