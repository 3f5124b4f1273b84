"""Networks written as functions, and the comparison of the kernels of two forms of one network."""

import torch
from tests.cases import mlp
from torch import nn

import ntkit


class Lambda(nn.Module):
    def __init__(self, function, **layers):
        super().__init__()
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.function = function

    def forward(self, x):
        return self.function(self, x)


def same_kernels(first, second, x, **gains):
    a, b = (ntkit.infinite_width(net, **gains).both(x) for net in (first, second))
    torch.testing.assert_close(a.ntk, b.ntk, rtol=1e-13, atol=0)
    torch.testing.assert_close(a.nngp, b.nngp, rtol=1e-13, atol=0)


MLP = mlp(4, 8, 8, 1)


IMAGES = nn.Sequential(
    nn.Conv2d(2, 8, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2), nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(),
    nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1),
)  # fmt: skip
