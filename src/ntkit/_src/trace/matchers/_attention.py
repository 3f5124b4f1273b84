"""What this library's self-attention and PyTorch's have in common: projections, the attention between them, masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from ntkit._src.program import Attention, Dense, Gains, Input, LogitSamples

from .._builder import EMPIRICAL, Builder, Held, Refused
from .._layout import entry_numbers, rearranged
from .._values import BATCH, CHANNEL, Block, Computed, Field, Weight

Attended = TypeVar("Attended")
NOTE = (
    "self-attention with infinitely many heads; softmax at 1/sqrt(d) needs `attention_samples`; constant and causal masks; "
    "no cross-attention"
)

NOT_GAUSSIAN = "it comes out of attention with no layer between"


@dataclass(frozen=True)
class Projection:
    """A linear layer inside attention: some rows of the weight and entries of the bias; None for all of them."""

    weight: Weight
    bias: Weight | None
    gains: Gains
    rows: slice | None = None
    bias_rows: slice | None = None

    def held(self, numbers: Tensor) -> Held:
        """Return the weight, its columns in the order of the finite form, and the bias."""
        return lambda read: (
            rearranged(read(self.weight)[self.rows or slice(None)], numbers, 1),
            None if self.bias is None else read(self.bias)[self.bias_rows or slice(None)],
        )


def as_tokens(builder: Builder, x: Field, batch: int, tokens: Sequence[int], channel: int) -> Field:
    """Return the field with the tokens as its position axes, in order."""
    if x.core(batch) != (BATCH,) or x.core(channel) != (CHANNEL,):
        raise Refused(
            f"its input must hold the batch in dimension {batch} and the channels in dimension {channel}, each alone",
            "give inputs of shape (n, tokens, channels)",
            x,
        )
    for dim in tokens:
        if not x.dims[dim]:
            x, _ = builder.axis_of(x, dim)
    axes = [atom for dim in tokens for atom in x.dims[dim] if atom >= 0]
    missing = [axis for axis, size in enumerate(x.positions) if axis not in axes and size > 1]
    if missing:
        raise Refused("its input has positions other than the tokens", "give inputs of shape (n, tokens, channels)", x)
    dims: list[tuple[int, ...]] = [()] * len(x.dims)
    dims[batch], dims[channel] = (BATCH,), (CHANNEL,)
    for dim in tokens:
        dims[dim] = tuple(axes.index(atom) for atom in x.dims[dim] if atom >= 0)
    return builder.arrange(x, axes, [x.positions[axis] for axis in axes], dims)


def attend(
    builder: Builder, x: Field, projections: Sequence[Projection | None], out: Projection, op: Attention, channels: int,
    located: int | None = None, position_values: bool = False,
) -> Field:  # fmt: skip
    """Add projections (keys None: tied), attention and the output layer; queries and keys read ``located``, if given."""
    tokens = builder.join(x)
    numbers = entry_numbers(builder, x, (CHANNEL,))
    nodes: list[int] = []
    for index, projection in enumerate(projections):
        read = tokens if located is None or (index == 2 and not position_values) else located
        nodes.append(nodes[0] if projection is None else _dense(builder, read, projection, numbers))
    on_data = op.sampled and located is None and isinstance(builder.nodes[tokens].op, Input)
    samples = logit_samples(builder) if op.sampled else None
    core = builder.add(replace(op, samples=samples, on_data=on_data), nodes, x.positions, why_not=NOT_GAUSSIAN)
    node = _dense(builder, core, out, torch.arange(out.weight.parameter.shape[1]))
    return Field((Block(node, channels),), x.positions, x.dims, channels, x.batch)


def _dense(builder: Builder, read: int, projection: Projection, numbers: Tensor) -> int:
    return builder.add(Dense(projection.gains), (read,), builder.nodes[read].positions, held=projection.held(numbers))


def logit_samples(builder: Builder) -> LogitSamples | None:
    """Give each layer its own draws."""
    if builder.samples is None:
        return None
    before = sum(isinstance(node.op, Attention) for node in builder.nodes)
    generator = torch.Generator().manual_seed(builder.samples.seed)
    seeds = torch.randint(2**62, (before + 1,), generator=generator)
    return LogitSamples(int(seeds[before]), builder.samples.count)


def check_limit(builder: Builder, op: Attention, result: Attended) -> Attended:
    """Refuse what has no limit, or none in closed form."""
    if op.scaling == "sqrt" and op.heads == 1:
        raise Refused(
            "attention with a single head: its logits stay random and every channel shares them, so its output is not Gaussian "
            "however wide it is",
            f"use several heads, whose number goes to infinity; or {EMPIRICAL}",
            result,
        )
    if op.sampled and builder.samples is None:
        raise Refused(
            "softmax attention at 1/sqrt(d) weighs tokens by random logits and has no closed-form limit",
            "let them be sampled: ntkit.infinite_width(module, attention_samples=1024); or use ntkit.layers.SelfAttention with "
            f'mechanism="relu", or with scaling="linear", tied=True; or {EMPIRICAL}',
            result,
        )
    return result


def constant_mask(mask: Any, tokens: int, x: Field | None) -> Tensor | None:
    """Return the mask that is added to the logits, shape (tokens, tokens)."""
    if mask is None:
        return None
    if not isinstance(mask, Tensor) or isinstance(mask, (Weight, Computed)):
        raise Refused(
            "its attn_mask is computed from the data or from parameters, so it differs between inputs",
            f"give a constant mask, such as a buffer; or {EMPIRICAL}",
            x,
        )
    if tuple(mask.shape) != (tokens, tokens):
        raise Refused(
            f"its attn_mask has shape {tuple(mask.shape)}, expected ({tokens}, {tokens}) for {tokens} tokens; masks that differ "
            "between heads or inputs have no rule",
            f"give a mask of shape ({tokens}, {tokens})",
            x,
        )
    added = mask.detach().cpu()
    if added.dtype == torch.bool:
        added = torch.zeros(added.shape, dtype=torch.float64).masked_fill(added, -math.inf)
    added = added.to(torch.float64)
    blind = torch.isneginf(added).all(1).nonzero().flatten().tolist()
    if blind:
        raise Refused(
            f"its attn_mask hides every token from the queries {blind}", "let every query see at least one token", x
        )
    return added
