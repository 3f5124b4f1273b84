"""Networks, layers and inputs that tests of several folders share.

A test that needs some network, whichever it is, takes one from here: ``mlp(3, 8, 1)``, or a row of ``NETWORKS`` by its name.
A network that a test is about stands in that test.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import torch
from torch import Tensor, nn


def normal(*shape: int, seed: int = 0) -> Tensor:
    """Draw standard normal numbers in float64 from a generator of their own."""
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def mlp(*widths: int, activation: Callable[[], nn.Module] = nn.ReLU, bias: bool = True) -> nn.Sequential:
    """Give linear layers with an activation between every two: ``widths`` are those of the input, the layers, the output."""
    layers: list[nn.Module] = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs, bias=bias), activation()]
    return nn.Sequential(*layers[:-1])


class Function(nn.Module):
    """A function as a layer."""

    def __init__(self, function: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.function = function

    def forward(self, x: Tensor) -> Tensor:
        return self.function(x)


class Residual(nn.Module):
    """x + branch(x)."""

    def __init__(self, *layers: nn.Module) -> None:
        super().__init__()
        self.branch = nn.Sequential(*layers)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


class Mean(nn.Module):
    """The mean over tokens, the first axis of each input."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(1)


class Graph(nn.Module):
    """Nodes with three features each, averaged over an adjacency that each input brings along."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        features, edges = x[..., :3], torch.softmax(x[..., 3:], -1)
        return self.last((edges @ torch.relu(self.first(features))).mean(1))
