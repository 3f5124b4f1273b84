"""A fixed space of small convolutional networks, and how they are trained."""

from __future__ import annotations

from dataclasses import dataclass, fields
from itertools import product
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

__all__ = ["Architecture", "build", "draw_architectures", "train_accuracy"]


@dataclass(frozen=True)
class Architecture:
    """One network of the space.

    Attributes
    ----------
    depth
        Convolutions.
    kernel
        Side of their windows.
    pooling
        After the first and the last convolution, 2x2.
    head
        What comes before the last linear layer.
    skips
        Whether every convolution except the first reads the rectified input and is added to the input itself.
    """

    depth: int
    kernel: int
    pooling: Literal["none", "average", "max"]
    head: Literal["flatten", "mean"]
    skips: bool

    @property
    def name(self) -> str:
        """A unique name."""
        return "-".join(str(getattr(self, field.name)) for field in fields(self))


_CHOICES: Any = product((1, 2, 3, 5), (3, 5), ("none", "average", "max"), ("flatten", "mean"), (False, True))
SPACE = [Architecture(*one) for one in _CHOICES if not (one[0] == 1 and one[4])]  # one convolution has nothing to skip
"""All 84 networks."""


def draw_architectures(count: int, seed: int) -> list[Architecture]:
    """Draw different networks of the space."""
    order = np.random.default_rng(seed).permutation(len(SPACE))[:count]
    return [SPACE[index] for index in sorted(order)]


class _Skip(nn.Module):
    """x + inner(x)."""

    def __init__(self, inner: nn.Module) -> None:
        super().__init__()
        self.inner = inner

    def forward(self, x: Tensor) -> Tensor:
        """Add the input."""
        value: Tensor = x + self.inner(x)
        return value


def build(architecture: Architecture, shape: tuple[int, int, int], classes: int, width: int, seed: int) -> nn.Module:
    """Build a network for images of a shape (channels, side, side), with PyTorch's default distribution of weights."""
    channels, side, _ = shape
    layers: list[nn.Module] = []
    with torch.device("meta"):
        for number in range(architecture.depth):
            own = channels if number == 0 else width
            conv = nn.Conv2d(own, width, architecture.kernel, padding=architecture.kernel // 2)
            # With skips, activations come first: only a stream of convolutions' outputs is Gaussian in the limit.
            skip = architecture.skips and number > 0
            first = architecture.skips and number == 0
            layers.append(
                _Skip(nn.Sequential(nn.ReLU(), conv)) if skip else conv if first else nn.Sequential(conv, nn.ReLU())
            )
            if skip and number == architecture.depth - 1:
                layers.append(nn.ReLU())
            if architecture.pooling != "none" and number in (0, architecture.depth - 1) and side >= 2:
                layers.append(nn.AvgPool2d(2) if architecture.pooling == "average" else nn.MaxPool2d(2))
                side //= 2
        if architecture.head == "mean":
            layers += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, classes)]
        else:
            layers += [nn.Flatten(), nn.Linear(width * side * side, classes)]
    net = nn.Sequential(*layers).to_empty(device="cpu")
    # Drawn from a generator of its own: cells run on several threads, which share torch's global one.
    generator = torch.Generator().manual_seed(seed)
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            bound = layer.weight[0].numel() ** -0.5
            for parameter in layer.parameters():
                nn.init.uniform_(parameter, -bound, bound, generator=generator)
    return net


def train_accuracy(
    net: nn.Module, data: tuple[Tensor, Tensor, Tensor, Tensor], epochs: int, learning_rate: float, seed: int
) -> float:
    """Train by one recipe, Adam with a rate that falls to zero along a cosine, and give the test accuracy."""
    x, y, x_test, y_test = data
    generator = torch.Generator().manual_seed(seed)
    optimizer: Any = torch.optim.Adam(net.parameters(), lr=learning_rate)
    batches = -(-len(x) // 64)
    schedule = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * batches)
    for _ in range(epochs):
        for batch in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            F.cross_entropy(net(x[batch]), y[batch]).backward()
            optimizer.step()
            schedule.step()
    with torch.no_grad():
        right = [(net(a).argmax(1) == b) for a, b in zip(x_test.split(500), y_test.split(500), strict=True)]
    return float(torch.cat(right).double().mean())
