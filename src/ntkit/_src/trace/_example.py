"""Inputs to trace a module with: guesses of their shape, examples, and what is wrong with those that it does not take."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor, nn
from torch.nn.modules.conv import _ConvNd

from ntkit._src.layers import SelfAttention

_BATCH = 2


def embeddings_of(module: nn.Module) -> list[nn.Embedding | nn.EmbeddingBag]:
    """Return the layers that look up integers."""
    return [layer for layer in module.modules() if isinstance(layer, (nn.Embedding, nn.EmbeddingBag))]


def examples(module: nn.Module, shape: Sequence[int]) -> Iterator[tuple[Tensor, torch.dtype]]:
    """Yield batches of a shape that the module may take, with the parameters' dtype: not half precision, which hides errors."""
    device = next((p.device for p in module.parameters() if p.is_floating_point()), torch.device("cpu"))
    generator = torch.Generator().manual_seed(0)
    values = torch.randn((_BATCH, *shape), generator=generator, dtype=torch.float64).to(device)
    yield from ((values.to(dtype), dtype) for dtype in (torch.float64, torch.float32))
    tables = embeddings_of(module)
    if tables:
        rows = min(layer.num_embeddings for layer in tables)
        yield torch.randint(rows, (_BATCH, *shape), generator=generator.manual_seed(0)).to(device), torch.float64


def guesses(module: nn.Module) -> list[tuple[int, ...]]:
    """Guess input shapes from the first layer with weights."""
    attends = any(isinstance(layer, (nn.MultiheadAttention, SelfAttention)) for layer in module.modules())
    for layer in module.modules():
        if isinstance(layer, nn.Embedding):
            return [(8,), (4,), (16,), (2,), (1,), ()]
        if isinstance(layer, nn.Linear):
            width = layer.in_features
            return [(width,), (4, width), (3, 8, 8), (1, 8, 8), (1,), (2,), (3,)]
        found = _convolution(layer)
        if found is not None:
            ndim, channels = found
            sides = (32, 28, 64, 16, 8) if ndim < 3 else (16, 8)
            # The cost of attention grows with the square of the pixels.
            return [(channels, *(side,) * ndim) for side in ((8, 4, 16) if attends else sides)]
    return []


def shapes_with_positions(module: nn.Module, positions: Sequence[int]) -> list[tuple[int, ...]]:
    """Guess shapes of inputs with given lengths of position axes: the channels are those of the first layer."""
    for layer in module.modules():
        if isinstance(layer, nn.Linear):
            return [(*positions, layer.in_features)]
        found = _convolution(layer)
        if found is not None:
            return [(found[1], *positions)] if len(positions) == found[0] else []
    return []


def with_channels(module: nn.Module, shape: Sequence[int]) -> list[tuple[int, ...]]:
    """Return the input shape with the channels of the first convolution in front, if they seem to be missing."""
    found = next((found for layer in module.modules() if (found := _convolution(layer)) is not None), None)
    return [(found[1], *shape)] if found is not None and len(shape) == found[0] else []


def shown_shape(shape: Sequence[int]) -> str:
    """Return the shape of a batch of inputs as messages write it."""
    return f"(n, {', '.join(map(str, shape))})"


def _convolution(layer: nn.Module) -> tuple[int, int] | None:
    """Return the number of position axes and of input channels of a convolution; None for other layers."""
    return (len(layer.kernel_size), layer.in_channels) if isinstance(layer, _ConvNd) else None
