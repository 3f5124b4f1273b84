"""Self-attention as ``ntkit.layers`` has it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ntkit._src.layers import Elementwise, SelfAttention
from ntkit._src.program import Activation, Attention, Polynomial, Rectified, Sum, Table, any_function

from .._builder import Builder, Refused
from .._layout import entry_numbers, rearranged
from .._values import CHANNEL, Data, Field, Weight
from ._activations import holds_parameters
from ._attention import NOTE, Projection, as_tokens, attend, check_limit
from ._linear import check_plain, layer_parameters
from ._registry import matches

__all__: list[str] = []

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
    builder: Builder,
    x: Any,
    layer: SelfAttention,
    query: Weight,
    key: Weight | None,
    value: Weight,
    out: Weight,
    out_bias: Weight | None,
    position: Weight | None,
) -> Field:
    """K' = o^2 sum_bb' E[z z] K[b, b'] + c^2 at 1/sqrt(d), o^2 A(x) K A(x')^T + c^2 at 1/d."""
    weights = (query, key, value, out, out_bias, position)
    if any(weight is not None and not isinstance(weight, Weight) for weight in weights):
        raise Refused("some of its weights are fixed numbers", "leave the attention out of deterministic=", x)
    rank = x.value.ndim if isinstance(x, Data) else len(x.dims)
    if isinstance(x, Data):
        x = builder.data_field(x, 1 if rank == 4 else 2)
    x = as_tokens(builder, x, *((0, (2, 3), 1) if rank == 4 else (0, (1,), 2)))

    def projection(weight: Weight, bias: Weight | None = None, fan_in: int = layer.channels) -> Projection:
        return Projection(weight, bias, builder.layer_gains(weight, bias, fan_in))

    mechanism = layer.mechanism
    phi: Activation | None
    if isinstance(mechanism, Elementwise):
        if holds_parameters(mechanism.function):
            raise Refused(
                "its mechanism holds trained parameters of its own, whose tangent kernel has no rule",
                "freeze them with requires_grad_(False), or write the function with numbers",
                x,
            )
        name = getattr(mechanism.function, "__name__", "function")
        phi = any_function(mechanism.function, mechanism.kinks, name)
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
