"""Networks, layers and inputs that tests of several folders share.

A test that needs some network, whichever it is, takes one from here: ``mlp(3, 8, 1)``, or a row of ``NETWORKS`` by its name.
A network that a test is about stands in that test.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor, nn

from ntkit.layers import SelfAttention


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


def _convolution(*layers: nn.Module) -> nn.Sequential:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), *layers)


def seeded(build: Callable[[], nn.Module], seed: int = 0) -> nn.Module:
    """Build a module in float64 with weights from a seed, and leave torch's generator as it is."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return build().double()


class Case(NamedTuple):
    """What builds a network, and the shape of one input; ``tokens`` counts the words that a network of text knows."""

    build: Callable[[], nn.Module]
    shape: tuple[int, ...]
    tokens: int | None = None

    def inputs(self, n: int, seed: int = 0) -> Tensor:
        """Draw n inputs, float64, or int64 of text, shape (n, *shape)."""
        if self.tokens is None:
            return normal(n, *self.shape, seed=seed)
        return torch.randint(self.tokens, (n, *self.shape), generator=torch.Generator().manual_seed(seed))


# One network of each kind that has an infinite-width limit. The networks are small: one output, 4 or 8 channels.
NETWORKS: dict[str, Case] = {
    # Vectors.
    "linear": Case(lambda: nn.Linear(3, 1), (3,)),
    "mlp": Case(lambda: mlp(3, 8, 1), (3,)),
    "deep mlp": Case(lambda: mlp(3, 8, 8, 1), (3,)),
    "smooth mlp": Case(
        lambda: nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), (3,)),
    "residual mlp": Case(
        lambda: nn.Sequential(nn.Linear(3, 8), Residual(nn.ReLU(), nn.Linear(8, 8)), nn.ReLU(), nn.Linear(8, 1)), (3,)),
    "layer norm": Case(
        lambda: nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8, elementwise_affine=False), nn.LeakyReLU(0.2), nn.Linear(8, 1)),
        (3,)),
    "layer norm, affine": Case(
        lambda: nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1)), (3,)),
    # Sequences (channels, length).
    "conv1d, flatten": Case(
        lambda: nn.Sequential(nn.Conv1d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(20, 1)), (2, 5)),
    # Images (channels, height, width).
    "conv, flatten": Case(lambda: _convolution(nn.Flatten(), nn.Linear(100, 1)), (2, 5, 5)),
    "conv, average": Case(lambda: _convolution(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)), (2, 5, 5)),
    "deep conv, average": Case(
        lambda: _convolution(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)),
        (2, 5, 5)),
    "conv, strided, circular, pooled": Case(
        lambda: _convolution(nn.Conv2d(4, 4, 3, stride=2, padding=1, padding_mode="circular"), nn.ReLU(), nn.AvgPool2d(2),
                             nn.Flatten(), nn.Linear(4, 1)), (2, 6, 6)),
    # Tokens (tokens, features), words (tokens,), and nodes of a graph beside its edges (nodes, features + nodes).
    "attention": Case(
        lambda: nn.Sequential(nn.Linear(3, 4), SelfAttention(4, 2, "relu"), Mean(), nn.Linear(4, 1)), (3, 3)),
    "text": Case(lambda: nn.Sequential(nn.Embedding(7, 8), Mean(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), (4,), 7),
    "graph": Case(Graph, (4, 7)),
}  # fmt: skip
