"""Attention that calls its output projection as a layer."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn


class _Identity(nn.Module):
    """A projection that changes nothing, as ``nn.MultiheadAttention`` reads it."""

    def __init__(self, like: Tensor) -> None:
        super().__init__()
        self.weight = torch.eye(len(like), dtype=like.dtype, device=like.device)
        self.bias = None


@contextmanager
def called_projections(module: nn.Module) -> Iterator[None]:
    """Make every ``nn.MultiheadAttention`` call its ``out_proj``, whose weight it otherwise passes to a function."""
    found = [
        layer
        for layer in module.modules()
        if isinstance(layer, nn.MultiheadAttention)
        and type(layer).forward is nn.MultiheadAttention.forward
        and "forward" not in vars(layer)
        and _plain(layer.out_proj)
    ]
    for layer in found:
        vars(layer)["forward"] = partial(_attend, layer)
    try:
        yield
    finally:
        for layer in found:
            del vars(layer)["forward"]


def _attend(layer: nn.MultiheadAttention, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor | None]:
    projection = layer.out_proj
    layer._modules["out_proj"] = _Identity(projection.weight)
    try:
        heads, weights = nn.MultiheadAttention.forward(layer, *args, **kwargs)
    finally:
        layer._modules["out_proj"] = projection
    return projection(heads), weights


def _plain(layer: nn.Module) -> bool:
    """Whether calling a layer computes what its weight and bias say and nothing else."""
    hooks = (layer._forward_hooks, layer._forward_pre_hooks)
    return isinstance(layer, nn.Linear) and type(layer).forward is nn.Linear.forward and not any(hooks)
