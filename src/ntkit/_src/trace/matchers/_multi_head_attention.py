"""PyTorch's self-attention."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

from torch import nn

from ntkit._src.program import Attention

from .._builder import EMPIRICAL, Builder, Refused
from .._values import Data, Field, Unknown, Weight
from ._attention import NOTE, Projection, as_tokens, attend, check_limit, constant_mask
from ._linear import check_plain, layer_parameters
from ._registry import matches

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
    if key_padding_mask is not None:
        raise Refused(
            "a key_padding_mask, which hides other tokens in each input",
            f"give inputs of one length, or a constant attn_mask for all; or {EMPIRICAL}",
            then,
        )
    try:
        return attend_torch(builder, query, attn_mask, **own), Unknown()
    except Refused as refused:
        raise Refused(refused.reason, refused.instead, (refused.then or Unknown(), Unknown())) from refused


def attend_torch(
    builder: Builder, x: Any, attn_mask: Any, layer: nn.MultiheadAttention, in_proj_weight: Any, q_proj_weight: Any,
    k_proj_weight: Any, v_proj_weight: Any, in_proj_bias: Any, out: Any, out_bias: Any,
) -> Field:  # fmt: skip
    """Add softmax self-attention with the parameters of PyTorch's layer."""
    separate = [q_proj_weight, k_proj_weight, v_proj_weight]
    weights = [w for w in (in_proj_weight, *separate, in_proj_bias, out, out_bias) if w is not None]
    if not all(isinstance(weight, Weight) for weight in weights):
        raise Refused("some of its weights are fixed numbers", "leave the attention out of deterministic=", x)
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
    op = Attention(layer.num_heads, None, "sqrt", mask=mask)
    result = attend(builder, x, projections, output, op, embed)
    check_plain(*weights, then=result)
    return check_limit(builder, op, result)


def _one(first: Any, second: Any) -> bool:
    """Return whether two arguments are the same tensor."""
    if isinstance(first, Data) and isinstance(second, Data):
        return first.node is second.node
    return isinstance(first, Field) and isinstance(second, Field) and first == second
