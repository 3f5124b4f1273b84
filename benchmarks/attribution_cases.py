"""The network of the attribution benchmark, for both libraries."""

from __future__ import annotations

from torch import nn

CLASSES = 10


def network() -> nn.Module:
    """Give a small convolutional network of 8x8 images, 6,000 parameters."""
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.AvgPool2d(2),
        nn.Flatten(), nn.Linear(128, CLASSES),
    )  # fmt: skip
