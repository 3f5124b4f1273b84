"""``F.scaled_dot_product_attention`` on heads that a forward splits itself: entries are numbered to follow any rearrangement."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import permutations
from typing import Any

import torch
from torch import Tensor, fx
from torch.nn import functional as F

from ntkit._src.program import Attention, Conv, Dense, Input, Weights

from .._builder import EMPIRICAL, Builder, Held, Refused
from .._nodes import target_name
from .._values import BATCH, CHANNEL, Data, Field, Weight
from ._attention import NOT_GAUSSIAN, check_limit, constant_mask, logit_samples, masked
from ._registry import matches

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


@matches(F.scaled_dot_product_attention, "scaled_dot_product_attention", family="attention")
def scaled_dot_product_attention(
    builder: Builder, query: Any, key: Any, value: Any, attn_mask: Any = None, dropout_p: float = 0.0,
    is_causal: bool = False, *, scale: float | None = None, enable_gqa: bool = False,
) -> Heads:  # fmt: skip
    """Softmax attention between heads of linear layers; a scale other than 1/sqrt(d) is a gain of the logits."""
    if dropout_p:
        raise Refused(
            f"dropout_p={dropout_p}, which drops weights in evaluation too",
            "write dropout_p=p if self.training else 0.0",
        )
    operands = [_Operand(builder, name, x) for name, x in (("query", query), ("key", key), ("value", value))]
    q, k, v = operands
    if len({len(operand.channels) for operand in operands}) > 1:
        raise Refused(
            "its queries, keys and values have different numbers of heads, so heads share keys",
            f"give keys and values as many heads as queries; or {EMPIRICAL}",
        )
    if len({(builder.nodes[operand.layer].inputs, operand.base.positions) for operand in operands}) > 1:
        raise Refused(
            "cross-attention: its queries, keys and values come from different tensors or tokens, and there is a rule for "
            "self-attention alone",
            f"compute all three from one tensor; or {EMPIRICAL}",
        )
    taken = [(operand.layer, channel) for operand in operands for channel in operand.channels.flatten().tolist()]
    if len(set(taken)) < len(taken):
        raise Refused(
            "its queries, keys and values, or some of its heads, share channels, so they are not independent",
            "give each its own linear layer; for queries that are the keys, ntkit.layers.SelfAttention(tied=True); or "
            + EMPIRICAL,
        )
    field = q.base
    tokens = math.prod(field.positions)
    own = attn_mask if isinstance(attn_mask, Data) else None
    mask = constant_mask(_as_added(None if own is not None else attn_mask, is_causal, tokens), tokens, None)
    heads, width = q.channels.shape
    gain = 1.0 if scale is None else float(scale) * math.sqrt(width)
    op = masked(builder, Attention(heads, None, "sqrt", gain=gain, mask=mask), own, None, _as_hidden)
    on_data = all(isinstance(builder.nodes[read].op, Dense) for read in (q.layer, k.layer)) and isinstance(
        builder.nodes[builder.nodes[q.layer].inputs[0]].op, Input
    )
    # The output of attention carries the randomness of all three; -1 marks its channels, which share weights, as dependent.
    sources = frozenset({-1}).union(*(builder.info[operand.layer].sources for operand in operands))
    node = builder.add(
        replace(op, samples=logit_samples(builder), on_data=on_data),
        [operand.node(builder) for operand in operands],
        field.positions,
        why_not=NOT_GAUSSIAN,
        sources=sources,
    )
    channels = heads * v.channels.shape[1]
    base = builder.field(node, (field.batch, *field.positions, channels), len(field.positions) + 1)
    index = torch.arange(field.batch * tokens * channels).reshape(field.batch, tokens, heads, -1).transpose(1, 2)
    result = Heads(base, index.reshape(*q.leading, tokens, v.channels.shape[1]))
    check_limit(builder, op, result)
    return result


class _Operand:
    """The queries, keys or values: ``channels`` of a ``layer``'s node, shape (heads, d), in dimensions after ``leading``."""

    def __init__(self, builder: Builder, name: str, x: Any) -> None:
        if isinstance(x, Field):
            x = Heads.of(x)
        if not isinstance(x, Heads):
            raise Refused(f"its {name} is not the output of a layer with weights", WRITE_ATTENTION)
        self.base = field = x.base
        self.leading = tuple(x.index.shape[:-2])
        block = field.blocks[0]
        self.layer, start = block.node, 0
        while self.layer in builder.parts:
            start += builder.parts[self.layer][0]
            self.layer = builder.nodes[self.layer].inputs[0]
        whole = len(field.blocks) == 1 and not block.merged and field.order is None
        if not whole or not isinstance(builder.nodes[self.layer].op, (Dense, Conv)):
            raise Refused(
                f"its {name} is not the plain output of a linear layer: something scales, shifts, normalises, rotates or cuts it",
                f"pass factors as scale=, and leave the rest out; {WRITE_ATTENTION}",
            )
        tokens = math.prod(field.positions)
        shape = (field.batch, -1, *x.index.shape[-2:])
        places = x.index.reshape(shape) if x.index.ndim > 2 and len(x.index) % field.batch == 0 else x.index[None, None]
        channels = places % field.channels
        own = torch.arange(places.shape[0])[:, None, None, None] * tokens + torch.arange(places.shape[2])[:, None]
        if (
            places.shape[0] != field.batch
            or places.shape[2] != tokens
            or not bool((places // field.channels == own).all())
            or not bool((channels == channels[:1, :, :1]).all())
        ):
            raise Refused(
                f"its {name}, of shape {tuple(x.index.shape)}, is not (n, heads, tokens, d) of all {tokens} tokens in their "
                "order, with d channels of its own for each head",
                WRITE_ATTENTION,
            )
        self.channels = channels[0, :, 0] + start
        self._every = start == 0 and torch.equal(self.channels.flatten(), torch.arange(field.channels))
        self._every &= self.layer == block.node

    def node(self, builder: Builder) -> int:
        """Return the layer's node, or one for the channels taken from it, whose weights are rows of the layer's."""
        if self._every:
            return self.layer
        own, before = builder.nodes[self.layer], builder.path
        builder.path = own.path
        rows = _rows(builder.held[self.layer], self.channels.flatten())
        node = builder.add(own.op, own.inputs, own.positions, held=rows)
        builder.path = before
        builder.info[node] = replace(builder.info[node], sources=builder.info[self.layer].sources)
        return node


def _rows(held: Held, rows: Tensor) -> Held:
    def hold(read: Callable[[Weight], Tensor]) -> Weights:
        weight, bias = held(read)
        assert weight is not None
        return weight[rows.to(weight.device)], None if bias is None else bias[rows.to(bias.device)]

    return hold


def _as_hidden(mask: Tensor) -> Tensor:
    """Return flags (n, 1 or tokens, tokens) of what a mask (n, 1, 1 or tokens, tokens) hides, of all heads."""
    if mask.ndim != 4 or mask.shape[1] != 1:
        raise Refused(
            f"its attn_mask, computed from the data, has shape {tuple(mask.shape)}",
            "give one of shape (n, 1, 1 or tokens, tokens) for all heads, such as mask[:, None, None]",
        )
    return (~mask[:, 0]).to(torch.float64)


def _as_added(mask: Any, is_causal: bool, tokens: int) -> Any:
    """Return a mask in the convention of nn.MultiheadAttention: (tokens, tokens), where True hides."""
    if is_causal:
        return torch.ones(tokens, tokens, dtype=torch.bool).triu(1)
    if not isinstance(mask, Tensor):
        return mask
    if mask.ndim > 2 and all(size == 1 for size in mask.shape[:-2]):
        mask = mask.reshape(mask.shape[-2:])
    if mask.ndim <= 2 and all(size in (1, tokens) for size in mask.shape):
        mask = mask.expand(tokens, tokens)
    return ~mask if mask.dtype == torch.bool else mask
