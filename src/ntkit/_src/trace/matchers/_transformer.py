"""PyTorch's transformer encoder, layer by layer, from attention, norms and linear layers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from .._builder import Builder, Refused
from .._values import Data, Field
from ._arithmetic import add
from ._linear import layer_parameters, linear
from ._multi_head_attention import attend_torch, torch_arguments
from ._norm import layer_norm
from ._registry import find, find_module, matches

__all__: list[str] = []

_NOTE = "transformer encoders with norms first or last, dropout off by `eval()`"


def _encoder_layer_arguments(module: nn.TransformerEncoderLayer, path: str) -> dict[str, Any]:
    return {"layer": module, "path": path}


@matches(modules={nn.TransformerEncoderLayer: _encoder_layer_arguments}, family="attention", note=_NOTE, fresh=True)
def encoder_layer(
    builder: Builder,
    src: Any,
    src_mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool = False,
    *,
    layer: nn.TransformerEncoderLayer,
    path: str,
) -> Field:
    """x + attention(norm(x)), then x + mlp(norm(x)); or norm(x + attention(x)), norm(x + mlp(x))."""
    _refuse_padding(src_key_padding_mask, src)
    inside = f"{path}." if path else ""

    def attend(x: Any) -> Field:
        with _at(builder, inside + "self_attn"):
            return attend_torch(builder, x, src_mask, **torch_arguments(layer.self_attn, inside + "self_attn"))

    def feed_forward(x: Any) -> Field:
        with _at(builder, inside + "linear1"):
            hidden = linear(builder, x, **layer_parameters(layer.linear1, inside + "linear1"))
        hidden = _activation(layer.activation)(builder, hidden)
        with _at(builder, inside + "linear2"):
            result: Field = linear(builder, hidden, **layer_parameters(layer.linear2, inside + "linear2"))
        return result

    def norm(x: Any, name: str) -> Field:
        with _at(builder, inside + name):
            return _norm(builder, x, getattr(layer, name), inside + name)

    if layer.norm_first:
        x = add(builder, src, attend(norm(src, "norm1")))
        total: Field = add(builder, x, feed_forward(norm(x, "norm2")))
        return total
    x = norm(add(builder, src, attend(src)), "norm1")
    return norm(add(builder, x, feed_forward(x)), "norm2")


def _encoder_arguments(module: nn.TransformerEncoder, path: str) -> dict[str, Any]:
    return {"encoder": module, "path": path}


@matches(modules={nn.TransformerEncoder: _encoder_arguments}, family="attention", note=_NOTE, fresh=True)
def encoder(
    builder: Builder,
    src: Any,
    mask: Any = None,
    src_key_padding_mask: Any = None,
    is_causal: bool | None = None,
    *,
    encoder: nn.TransformerEncoder,
    path: str,
) -> Field:
    """Layers one after the other, and a norm."""
    _refuse_padding(src_key_padding_mask, src)
    inside = f"{path}." if path else ""
    for name, layer in encoder.layers.named_children():
        known = find_module(layer)
        if known is None or type(layer).forward is not nn.TransformerEncoderLayer.forward:
            raise Refused(
                f"its layer {name} is a {type(layer).__name__}, not an nn.TransformerEncoderLayer",
                "call the layers one after the other in your own module",
                src if isinstance(src, Field) else None,
            )
        src = encoder_layer(builder, src, mask, layer=layer, path=f"{inside}layers.{name}")
    return src if encoder.norm is None else _norm(builder, src, encoder.norm, inside + "norm")


@contextmanager
def _at(builder: Builder, path: str) -> Iterator[None]:
    """Attribute nodes added inside the context to a path."""
    before, builder.path = builder.path, path
    try:
        yield
    finally:
        builder.path = before


def _norm(builder: Builder, x: Any, layer: nn.Module, path: str) -> Field:
    if isinstance(x, Data):
        raise Refused(
            "it normalises raw data with trained parameters; there are only as many raw channels as the data has, so their "
            "gradient stays random",
            "put an nn.Linear before it",
        )
    known = find_module(layer)
    if known is None:
        raise Refused(f"{path} is a {type(layer).__name__}, which has no rule", "use nn.LayerNorm", x)
    if known.kind is nn.LayerNorm:
        assert isinstance(layer, nn.LayerNorm)
        own = layer_parameters(layer, path)
        normed: Field = layer_norm(builder, x, layer.normalized_shape, **own, eps=layer.eps)
        return normed
    result: Field = known.matcher.build(builder, x, **known.arguments(layer, path))
    return result


def _activation(activation: Any) -> Callable[..., Field]:
    if isinstance(activation, nn.Module):
        known = find_module(activation)
        if known is not None:
            return lambda builder, x: known.matcher.build(builder, x, **known.arguments(activation, "activation"))
    matcher = find(activation)
    if matcher is None:
        raise Refused("its activation has no rule", "use F.relu or F.gelu, or wrap a function in ntkit.Elementwise")
    return matcher.build


def _refuse_padding(mask: Any, x: Any) -> None:
    if mask is not None:
        raise Refused(
            "a padding mask, which hides other tokens in each input",
            "give inputs of one length, or a constant mask for all",
            x if isinstance(x, Field) else None,
        )
