"""Self-attention, this library's and PyTorch's: projections, the attention between them, masks."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from ntkit._src.layers import Elementwise, SelfAttention
from ntkit._src.program import (
    Activation,
    Attention,
    Dense,
    Gains,
    Input,
    LogitSamples,
    MaskedAttention,
    Polynomial,
    Rectified,
    Sum,
    Table,
)

from .._builder import EMPIRICAL, Builder, Held, Refused
from .._layout import entry_numbers, rearranged
from .._values import BATCH, CHANNEL, Block, Computed, Data, Derived, Field, Unknown, Weight
from ._activations import function_activation
from ._linear import check_plain, layer_parameters
from ._registry import matches

Attended = TypeVar("Attended")
NOTE = (
    "self-attention with infinitely many heads; softmax at 1/sqrt(d) needs `attention_samples`; masks, constant, "
    "causal or of padding in each input; no cross-attention"
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


def _check_random(weights: Sequence[object], then: Any) -> None:
    if not all(weight is None or isinstance(weight, Weight) for weight in weights):
        raise Refused("some of its weights are fixed numbers", "leave the attention out of deterministic=", then)


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


def masked(
    builder: Builder, op: Attention, padding: Any, x: Any, function: Callable[[Tensor], Tensor] | None = None
) -> Attention:
    """Return attention in which inputs hide keys: where ``padding``, (n, tokens), is true, or what ``function`` makes of it."""
    if padding is None:
        return op
    truth = isinstance(padding, Data) and padding.value.dtype == torch.bool
    if not truth and not (isinstance(padding, Tensor) and padding.dtype == torch.bool):
        raise Refused(
            "its padding mask is not one of truth values",
            "give a boolean mask computed from the input, such as mask == 0, where True hides",
            x,
        )
    if not isinstance(padding, Data):
        raise Refused("its padding mask is constant", "give a constant attn_mask, or compute it from the input", x)
    flags = function or _as_keys
    prefix = builder.prefix(Data(flags(padding.value), Derived(padding.node, flags)))
    own = {field.name: getattr(op, field.name) for field in fields(op)}
    return MaskedAttention(**own, prefix=prefix)


def _as_keys(padding: Tensor) -> Tensor:
    """Return flags (n, 1, tokens) of hidden keys."""
    if padding.ndim != 2:
        raise Refused(f"its padding mask has shape {tuple(padding.shape)}", "give one of shape (n, tokens)")
    return padding[:, None].to(torch.float64)


_MECHANISMS: dict[str, Activation | None] = {
    "softmax": None,
    "identity": Polynomial((0.0, 1.0), label="identity"),
    "relu": Rectified(0.0, 1.0, label="relu"),
    "abs": Rectified(-1.0, 1.0, label="abs"),
}


def _attention_arguments(module: SelfAttention, path: str) -> dict[str, Any]:
    inside = f"{path}." if path else ""
    children = {name: getattr(module, name) for name in ("query", "key", "value", "out")}
    own = {name: child and layer_parameters(child, inside + name) for name, child in children.items()}
    weights = {name: parameters and parameters["weight"] for name, parameters in own.items()}
    position = layer_parameters(module, path, ("position",))
    return {"layer": module, **weights, "out_bias": own["out"]["bias"], **position}


@matches(modules={SelfAttention: _attention_arguments}, family="attention", note=NOTE, fresh=True)
def self_attention(
    builder: Builder, x: Any, layer: SelfAttention, query: Weight, key: Weight | None, value: Weight, out: Weight,
    out_bias: Weight | None, position: Weight | None,
) -> Field:  # fmt: skip
    """K' = o^2 sum_bb' E[z z] K[b, b'] + c^2 at 1/sqrt(d), o^2 A(x) K A(x')^T + c^2 at 1/d."""
    weights = (query, key, value, out, out_bias, position)
    _check_random(weights, x)
    rank = x.value.ndim if isinstance(x, Data) else len(x.dims)
    if isinstance(x, Data):
        x = builder.data_field(x, 1 if rank == 4 else 2)
    x = as_tokens(builder, x, *((0, (2, 3), 1) if rank == 4 else (0, (1,), 2)))

    def projection(weight: Weight, bias: Weight | None = None, fan_in: int = layer.channels) -> Projection:
        return Projection(weight, bias, builder.layer_gains(weight, bias, fan_in))

    mechanism = layer.mechanism
    if isinstance(mechanism, Elementwise):
        phi: Activation | None = function_activation(mechanism.function, mechanism.kinks, "mechanism", x)
    else:
        phi = _MECHANISMS[mechanism]
    hidden = layer.hidden(math.prod(x.positions))
    mask = (
        None if hidden is None else torch.zeros(hidden.shape, dtype=torch.float64).masked_fill(hidden.cpu(), -math.inf)
    )
    op = Attention(layer.heads, phi, layer.scaling, layer.tied, mask=mask)
    located = None if position is None else _located(builder, x, layer, position)
    projections = [projection(query), None if key is None else projection(key), projection(value)]
    output = projection(out, out_bias, layer.heads * layer.key_channels)
    result = attend(builder, x, projections, output, op, layer.channels, located, layer.position_values)
    check_plain(*weights, then=result)
    return check_limit(builder, op, result)


def _located(builder: Builder, x: Field, layer: SelfAttention, position: Weight) -> int:
    """Add the node of the tokens with their positional embeddings L omega, whose covariance is L L^T."""
    builder.claim("positional embeddings", position)
    builder.random.append((position, 1.0))
    assert layer.position_root is not None
    root: Tensor = layer.position_root.detach().to(torch.float64).cpu()
    covariance = root @ root.T
    node = builder.join(x)
    numbers = entry_numbers(builder, x, (CHANNEL,))

    def hold(read: Callable[[Weight], Tensor]) -> tuple[Tensor, None]:
        embeddings = root.to(read(position)) @ read(position)
        return rearranged(embeddings, numbers, 1).unflatten(0, x.positions), None

    table = builder.add(Table(covariance, None, covariance if position.trained else None), (), x.positions, held=hold)
    return builder.combine(Sum((1.0, 1.0)), (node, table), x.positions)


_PARAMETERS = ("in_proj_weight", "q_proj_weight", "k_proj_weight", "v_proj_weight", "in_proj_bias")


def torch_arguments(module: nn.MultiheadAttention, path: str) -> dict[str, Any]:
    """Read the parameters of PyTorch's attention."""
    out = layer_parameters(module.out_proj, f"{path}.out_proj" if path else "out_proj")
    own = layer_parameters(module, path, _PARAMETERS)
    return {"layer": module, **own, "out": out["weight"], "out_bias": out["bias"]}


@matches(modules={nn.MultiheadAttention: torch_arguments}, family="attention", note=NOTE, fresh=True)
def multi_head_attention(
    builder: Builder, query: Any, key: Any = None, value: Any = None, key_padding_mask: Any = None,
    need_weights: bool = True, attn_mask: Any = None, average_attn_weights: bool = True, is_causal: bool = False,
    **own: Any,
) -> Any:  # fmt: skip
    """Softmax attention at 1/sqrt(d); its value is a pair, whose second part, the mean weights, is not random in the limit."""
    then = (query if isinstance(query, Field) else Unknown(), Unknown())
    if not (_one(query, key) and _one(query, value)):
        raise Refused(
            "cross-attention: its queries, keys and values come from different tensors, and there is a rule for "
            "self-attention alone",
            f"give it one tensor three times, attention(x, x, x); or {EMPIRICAL}",
            then,
        )
    try:
        return attend_torch(builder, query, attn_mask, key_padding_mask, **own), Unknown()
    except Refused as refused:
        raise Refused(refused.reason, refused.instead, (refused.then or Unknown(), Unknown())) from refused


def attend_torch(
    builder: Builder, x: Any, attn_mask: Any, padding: Any, layer: nn.MultiheadAttention, in_proj_weight: Any, q_proj_weight: Any,
    k_proj_weight: Any, v_proj_weight: Any, in_proj_bias: Any, out: Any, out_bias: Any,
) -> Field:  # fmt: skip
    """Add softmax self-attention with the parameters of PyTorch's layer."""
    separate = [q_proj_weight, k_proj_weight, v_proj_weight]
    weights = [w for w in (in_proj_weight, *separate, in_proj_bias, out, out_bias) if w is not None]
    _check_random(weights, x)
    if layer.bias_k is not None or layer.add_zero_attn:
        raise Refused(
            "attention with add_bias_kv or add_zero_attn, which add an extra token",
            "build it without them, or concatenate a class token",
            x,
        )
    embed = layer.embed_dim
    if isinstance(x, Data) and not layer.batch_first:
        raise Refused("batch_first=False on raw data", "build it with batch_first=True, or put an nn.Linear before it")
    if isinstance(x, Data):
        x = builder.data_field(x, x.value.ndim - 1)
    if len(x.dims) != 3:
        raise Refused(f"its input has {len(x.dims)} dimensions, expected 3", "give inputs (n, tokens, channels)", x)
    x = as_tokens(builder, x, *((0, (1,), 2) if layer.batch_first else (1, (0,), 2)))
    mask = constant_mask(attn_mask, math.prod(x.positions), x)
    slices = [slice(i * embed, (i + 1) * embed) for i in range(3)]
    # PyTorch uses Xavier initialisation for the projections, of variance 2 / (fan_in + fan_out), and zero biases.
    if in_proj_weight is not None:
        gains = builder.layer_gains(in_proj_weight, in_proj_bias, embed, (0.5**0.5, 0.0))
        projections = [Projection(in_proj_weight, in_proj_bias, gains, rows, rows) for rows in slices]
    else:
        gains = builder.layer_gains(separate[0], in_proj_bias, embed, (1.0, 0.0))
        others = [builder.layer_gains(weight, None, embed, (1.0, 0.0)) for weight in separate[1:]]
        builder.layers[separate[0].layer] = in_proj_bias is not None
        own = [gains, *(replace(g, b_std=gains.b_std, bias_rate=gains.bias_rate) for g in others)]
        each = zip(separate, own, slices, strict=True)
        projections = [Projection(weight, in_proj_bias, g, bias_rows=rows) for weight, g, rows in each]
    output = Projection(out, out_bias, builder.layer_gains(out, out_bias, embed, (3**-0.5, 0.0)))
    op = masked(builder, Attention(layer.num_heads, None, "sqrt", mask=mask), padding, x)
    result = attend(builder, x, projections, output, op, embed)
    check_plain(*weights, then=result)
    return check_limit(builder, op, result)


def _one(first: Any, second: Any) -> bool:
    """Return whether two arguments are the same tensor."""
    if isinstance(first, Data) and isinstance(second, Data):
        return first.node is second.node
    return isinstance(first, Field) and isinstance(second, Field) and first == second
