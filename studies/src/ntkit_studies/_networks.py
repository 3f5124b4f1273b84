"""Networks of the experiments. Except for the last, their weights do not matter: the limit does not depend on them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import nn

from ntkit import initialize

__all__ = ["blank", "conv_network", "dense_network", "drawn_network"]


def blank(make: Callable[[], nn.Module], dtype: torch.dtype = torch.float32) -> nn.Module:
    """Make a module with all parameters zero, drawing nothing from torch's global generator, which is the user's.

    Parameters
    ----------
    make
        Builds the module.
    dtype
        Of its parameters.
    """
    with torch.device("meta"):
        net = make()
    net = net.to_empty(device="cpu").to(dtype)
    for parameter in net.parameters():
        nn.init.zeros_(parameter)
    return net


def conv_network(convolutions: int, width: int, average: bool, channels: int, side: int) -> nn.Module:
    """Return a network of Arora et al. 2019 without biases, its weights zero: 3x3 convolutions with ReLU, and a head.

    Its kernel is that of their appendix E. The formulas of their sections 4.1 and 4.2, as printed, apply one filter more: they
    take the trace over patches after the last activation too, where the network has a linear layer and no convolution.

    Parameters
    ----------
    convolutions, width
        How many, and their channels; for a limit a width of one serves.
    average
        Whether the head reads the average over positions, and first and last layer are fixed (CNTK-GAP), or every
        position (CNTK-V).
    channels, side
        Of the images.
    """

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for number in range(convolutions):
            layers += [nn.Conv2d(width if number else channels, width, 3, padding=1, bias=False), nn.ReLU()]
        layers += [nn.AdaptiveAvgPool2d(1)] if average else []
        return nn.Sequential(*layers, nn.Flatten(), nn.Linear(width * (1 if average else side * side), 1, bias=False))

    net = blank(make)
    if average:
        first, *_, last = net.children()
        first.requires_grad_(False)
        last.requires_grad_(False)
    return net


def dense_network(
    inputs: int, width: int, hidden: int = 1, bias: bool = False, dtype: torch.dtype = torch.float32
) -> nn.Module:
    """Return a fully connected ReLU network with one output and so many hidden layers, its weights zero."""

    def make() -> nn.Module:
        layers: list[nn.Module] = []
        for number in range(hidden):
            layers += [nn.Linear(width if number else inputs, width, bias=bias), nn.ReLU()]
        return nn.Sequential(*layers, nn.Linear(width, 1, bias=bias))

    return blank(make, dtype)


def drawn_network(inputs: int, width: int, seed: int) -> nn.Module:
    """Give the two-layer ReLU network of Chen, He and Su 2020 for images, with biases, its weights drawn as PyTorch does."""
    net = nn.Sequential(nn.Flatten(), *dense_network(inputs, width, bias=True).children())
    return initialize(net, "torch", generator=torch.Generator().manual_seed(seed))
