"""Normalisations, trained and frozen, against the conformance suite."""

import torch
from tests.rules.families import Function, Images, Signals, Vectors
from torch import nn
from torch.nn import functional as F


class TestLayerNorm(Vectors):
    gains = {"b_std": 0.5}

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, 2))


class TestScaledLayerNorm(Vectors):
    """A multiple of a trained normalisation before an activation: its weight's tangent kernel is scaled along."""

    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), nn.LayerNorm(width), Function(lambda x: 1.7 * x), nn.GELU(), nn.Linear(width, 2)
        )  # fmt: skip


class TestFrozenLayerNorm(Vectors):
    """Frozen affine parameters are numbers."""

    def module(self, width):
        norm = nn.LayerNorm(width).requires_grad_(False)
        nn.init.constant_(norm.weight, 0.6)
        nn.init.constant_(norm.bias, 0.8)
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), norm, nn.Linear(width, 2))


class TestLayerNormGelu(Vectors):
    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.GELU(), nn.Linear(width, 2))


class TestLayerNormSelu(Vectors):
    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.SELU(), nn.Linear(width, 2))


class TestLayerNormTwice(Vectors):
    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), nn.LayerNorm(width), nn.LayerNorm(width), Function(torch.square), nn.Linear(width, 2)
        )


class TestLayerNormAfterRelu(Vectors):
    """The channels' mean is not zero here and is subtracted."""

    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.LayerNorm(width, bias=False), nn.Linear(width, width), nn.ReLU(),
            nn.Linear(width, 2),
        )  # fmt: skip


class ChannelsLast(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv = nn.Conv2d(2, width, 3, padding=1)
        self.norm = nn.LayerNorm(width)
        self.mix = nn.Linear(width, width)
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        x = self.conv(x).permute(0, 2, 3, 1)
        x = self.mix(F.relu(self.norm(x)))
        return self.head(x.relu().mean((1, 2)))


class TestLayerNormChannelsLast(Images):
    def module(self, width):
        return ChannelsLast(width)


class TestGroupNorm(Images):
    gains = {"b_std": 0.3}

    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.GroupNorm(2, width), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(4 * width, 2),
        )  # fmt: skip


class TestLayerNormOverAll(Signals):
    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, padding=1), nn.LayerNorm([width, 6]), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(),
            nn.Linear(width, 2),
        )  # fmt: skip


class TestGroupNormAfterRelu(Signals):
    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3), nn.ReLU(), nn.GroupNorm(1, width), nn.Flatten(), nn.Linear(4 * width, 2)
        )
