"""PyTorch's transformer encoder, layer by layer, from attention, norms and linear layers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from torch import nn

from .._builder import Builder, Refused
from .._values import Data, Field
from ._arithmetic import add
from ._attention import attend_torch, torch_arguments
from ._registry import find, find_module, matches

_NOTE = "transformer encoders with norms first or last, dropout off by `eval()`"


def _itself(module: nn.Module, path: str) -> dict[str, Any]:
    return {"layer": module, "path": path}


@matches(modules={nn.TransformerEncoderLayer: _itself}, family="attention", note=_NOTE, fresh=True)
def encoder_layer(
    builder: Builder, src: Any, src_mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool = False, *,
    layer: nn.TransformerEncoderLayer, path: str,
) -> Field:  # fmt: skip
    """x + attention(norm(x)), then x + mlp(norm(x)); or norm(x + attention(x)), norm(x + mlp(x))."""
    inside = f"{path}." if path else ""

    def attend(x: Any) -> Field:
        with _at(builder, inside + "self_attn"):
            return attend_torch(
                builder, x, src_mask, src_key_padding_mask, **torch_arguments(layer.self_attn, inside + "self_attn")
            )

    def feed_forward(x: Field) -> Field:
        hidden = _activated(builder, layer.activation, _applied(builder, layer.linear1, inside + "linear1", x))
        return _applied(builder, layer.linear2, inside + "linear2", hidden)

    def norm(x: Any, name: str) -> Field:
        return _norm(builder, getattr(layer, name), inside + name, x)

    if layer.norm_first:
        x = add(builder, src, attend(norm(src, "norm1")))
        return add(builder, x, feed_forward(norm(x, "norm2")))
    x = norm(add(builder, src, attend(src)), "norm1")
    return norm(add(builder, x, feed_forward(x)), "norm2")


@matches(modules={nn.TransformerEncoder: _itself}, family="attention", note=_NOTE, fresh=True)
def encoder(
    builder: Builder, src: Any, mask: Any = None, src_key_padding_mask: Any = None, is_causal: bool | None = None, *,
    layer: nn.TransformerEncoder, path: str,
) -> Field:  # fmt: skip
    """Layers one after the other, and a norm."""
    inside = f"{path}." if path else ""
    for name, own in layer.layers.named_children():
        if type(own).forward is not nn.TransformerEncoderLayer.forward:
            raise Refused(
                f"its layer {name} is a {type(own).__name__}, not an nn.TransformerEncoderLayer",
                "call the layers one after the other in your own module",
                src if isinstance(src, Field) else None,
            )
        src = encoder_layer(builder, src, mask, src_key_padding_mask, layer=own, path=f"{inside}layers.{name}")
    return src if layer.norm is None else _norm(builder, layer.norm, inside + "norm", src)


@contextmanager
def _at(builder: Builder, path: str) -> Iterator[None]:
    """Attribute nodes added inside the context to a path."""
    before, builder.path = builder.path, path
    try:
        yield
    finally:
        builder.path = before


def _applied(builder: Builder, layer: nn.Module, path: str, x: Any) -> Field:
    """Apply a layer that the registry knows."""
    known = find_module(layer)
    if known is None:
        raise Refused(f"{path} is a {type(layer).__name__}, which has no rule", "use the layers of torch.nn", x)
    with _at(builder, path):
        result: Field = known.matcher.build(builder, x, **known.arguments(layer, path))
    return result


def _norm(builder: Builder, layer: nn.Module, path: str, x: Any) -> Field:
    if isinstance(x, Data):
        raise Refused(
            "it normalises raw data with trained parameters; there are only as many raw channels as the data has, so their "
            "gradient stays random",
            "put an nn.Linear before it",
        )
    return _applied(builder, layer, path, x)


def _activated(builder: Builder, activation: Any, x: Field) -> Field:
    if isinstance(activation, nn.Module) and find_module(activation) is not None:
        return _applied(builder, activation, builder.path, x)
    matcher = find(activation)
    if matcher is None:
        raise Refused("its activation has no rule", "use F.relu or F.gelu, or wrap a function in ntkit.Elementwise")
    result: Field = matcher.build(builder, x)
    return result
