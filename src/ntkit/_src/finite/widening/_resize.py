"""Layers that adapt to the channels that arrive: what each kind must change when networks get wider."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import torch
from torch import nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.modules.conv import _ConvNd, _ConvTransposeNd

from ntkit._src.layers import SelfAttention
from ntkit.errors import InputError

Shape = tuple[int, ...]

_KINDS = (
    nn.Linear, nn.Bilinear, _ConvNd, nn.Embedding, nn.EmbeddingBag, nn.LayerNorm, nn.RMSNorm, nn.GroupNorm, _NormBase,
    nn.PReLU, nn.MultiheadAttention, SelfAttention,
)  # fmt: skip
CHANNELS_FIRST = (_ConvNd, nn.GroupNorm, _NormBase, nn.PReLU)


def resizes(layer: nn.Module) -> bool:
    """Whether a layer is of a kind that can be resized."""
    return isinstance(layer, _KINDS)


def resizing_layers(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Yield the layers that can be resized, by path; the projections inside attention follow it."""
    inside: list[str] = []
    for path, layer in module.named_modules():
        if isinstance(layer, SelfAttention):
            inside.append(f"{path}." if path else "")
            yield path, layer
        elif resizes(layer) and not any(path.startswith(prefix) for prefix in inside):
            yield path, layer


def resize_input(layer: nn.Module, arriving: Sequence[Shape], multiplier: float) -> None:
    """Make a layer accept inputs of these shapes, and multiply its width; parameters of a new shape are uninitialised."""
    if isinstance(layer, nn.Linear):
        layer.in_features, layer.out_features = arriving[0][-1], times(layer.out_features, multiplier)
        _set(layer, weight=(layer.out_features, layer.in_features), bias=(layer.out_features,))
    elif isinstance(layer, nn.Bilinear):
        layer.in1_features, layer.in2_features = arriving[0][-1], arriving[1][-1]
        layer.out_features = times(layer.out_features, multiplier)
        weight = (layer.out_features, layer.in1_features, layer.in2_features)
        _set(layer, weight=weight, bias=(layer.out_features,))
    elif isinstance(layer, _ConvNd):
        _resize_conv(layer, arriving[0], multiplier)
    elif isinstance(layer, (nn.Embedding, nn.EmbeddingBag)):
        layer.embedding_dim = times(layer.embedding_dim, multiplier)
        _set(layer, weight=(layer.num_embeddings, layer.embedding_dim))
    elif isinstance(layer, (nn.LayerNorm, nn.RMSNorm)):
        shape = arriving[0][-len(layer.normalized_shape) :]
        layer.normalized_shape = tuple(shape)
        _set(layer, weight=shape, bias=shape)
    elif isinstance(layer, nn.GroupNorm):
        instance = layer.num_groups == layer.num_channels
        layer.num_channels = arriving[0][1]
        layer.num_groups = layer.num_channels if instance else layer.num_groups
        _set(layer, weight=(layer.num_channels,), bias=(layer.num_channels,))
    elif isinstance(layer, _NormBase):
        layer.num_features = arriving[0][1]
        size = (layer.num_features,)
        _set(layer, weight=size, bias=size, running_mean=size, running_var=size)
    elif isinstance(layer, nn.PReLU) and layer.num_parameters > 1:
        layer.num_parameters = arriving[0][1]
        _set(layer, weight=(layer.num_parameters,))
    elif isinstance(layer, nn.MultiheadAttention):
        _resize_attention(layer, arriving)
    elif isinstance(layer, SelfAttention):
        _resize_self_attention(layer, arriving[0], multiplier)


def times(width: int, multiplier: float) -> int:
    """Multiply a width, which must stay a whole number."""
    product = width * multiplier
    if abs(product - round(product)) > 1e-9 * product or round(product) < 1:
        raise InputError(
            f"factor must make every hidden width a positive whole number. Got {multiplier} for a width of {width}."
        )
    return round(product)


def _resize_conv(layer: _ConvNd, arriving: Shape, multiplier: float) -> None:
    depthwise = layer.groups == layer.in_channels and layer.groups > 1
    # Each channel of a depthwise convolution stays separate, so its outputs follow its inputs.
    own = arriving[1] / layer.in_channels if depthwise else multiplier
    layer.out_channels, layer.in_channels = times(layer.out_channels, own), arriving[1]
    layer.groups = layer.in_channels if depthwise else layer.groups
    if layer.in_channels % layer.groups or layer.out_channels % layer.groups:
        raise InputError(
            f"factor must leave the channels divisible by the {layer.groups} groups of a convolution. "
            f"Got {layer.in_channels} and {layer.out_channels} channels."
        )
    sizes = (layer.out_channels, layer.in_channels // layer.groups)
    if isinstance(layer, _ConvTransposeNd):
        sizes = (layer.in_channels, layer.out_channels // layer.groups)
    _set(layer, weight=(*sizes, *layer.kernel_size), bias=(layer.out_channels,))


def _resize_attention(layer: nn.MultiheadAttention, arriving: Sequence[Shape]) -> None:
    """Resize attention: the output has the size of the query. Heads and their width grow equally."""
    embed, key, value = (shape[-1] for shape in arriving[:3])
    if layer._qkv_same_embed_dim and not embed == key == value:
        raise InputError("MultiheadAttention without kdim and vdim must have query, key and value of the same size.")
    layer.num_heads = wider_heads(layer.num_heads, embed / layer.embed_dim, embed)
    layer.embed_dim, layer.kdim, layer.vdim, layer.head_dim = embed, key, value, embed // layer.num_heads
    vector = (1, 1, embed)
    _set(
        layer,
        in_proj_weight=(3 * embed, embed),
        q_proj_weight=(embed, embed),
        k_proj_weight=(embed, key),
        v_proj_weight=(embed, value),
        in_proj_bias=(3 * embed,),
        bias_k=vector,
        bias_v=vector,
    )
    # Its last layer is called without its forward, so it cannot resize itself.
    layer.out_proj.in_features = layer.out_proj.out_features = embed
    _set(layer.out_proj, weight=(embed, embed), bias=(embed,))


def _resize_self_attention(layer: SelfAttention, arriving: Shape, multiplier: float) -> None:
    """Accept the channels that arrive, and multiply the total width of all heads."""
    layer.channels = arriving[-1] if len(arriving) == 3 else arriving[1]
    width = times(layer.heads * layer.key_channels, multiplier)
    layer.heads = wider_heads(layer.heads, multiplier, width)
    layer.key_channels = width // layer.heads
    for projection in (layer.query, layer.key, layer.value):
        if projection is not None:
            projection.in_features, projection.out_features = layer.channels, width
            _set(projection, weight=(width, layer.channels))
    layer.out.in_features, layer.out.out_features = width, layer.channels
    _set(layer.out, weight=(layer.channels, width), bias=(layer.channels,))
    if layer.position is not None:
        _set(layer, position=(len(layer.position), layer.channels))


def wider_heads(heads: int, factor: float, width: int) -> int:
    """Return the number of heads of a wider layer: the divisor of its width nearest to heads times the root of the factor."""
    # Heads and the width of each must grow together. A single head stays single: it has no limit of many heads.
    if heads == 1:
        return 1
    target = math.log(heads * math.sqrt(factor))
    divisors = [d for d in range(1, width + 1) if width % d == 0]
    return min(divisors, key=lambda d: (abs(math.log(d) - target), -d))


def _set(layer: nn.Module, **shapes: Shape) -> None:
    for name, shape in shapes.items():
        old = getattr(layer, name, None)
        if old is None or tuple(old.shape) == tuple(shape):
            continue
        new = torch.empty(shape, dtype=old.dtype, device=old.device)
        if isinstance(old, nn.Parameter):
            setattr(layer, name, nn.Parameter(new, requires_grad=old.requires_grad))
        else:
            setattr(layer, name, new)
