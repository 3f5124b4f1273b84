"""Normalisations, trained and frozen, against the conformance suite."""

import pytest
import torch
from tests.cases import Function, normal
from tests.rules.families import Images, Signals, Vectors
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import EngineError, UnsupportedLayerError


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


class TestGroupNormBeforePooling(Signals):
    """A trained weight before pooling and an activation: every position of a channel shares it."""

    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, padding=1), nn.GroupNorm(1, width), nn.AvgPool1d(2), nn.ReLU(), nn.Flatten(),
            nn.Linear(3 * width, 2),
        )  # fmt: skip


class TestLayerNormOverAllMoved(Signals):
    """A weight for each position, which moves along with its position."""

    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, padding=1), nn.LayerNorm([width, 6]),
            Function(lambda x: F.pad((1.5 * x).flip(-1)[..., 1:], (1, 0)).unflatten(-1, (2, 3)).transpose(2, 3)),
            nn.GELU(), nn.Flatten(), nn.Linear(6 * width, 2),
        )  # fmt: skip


class TestRmsNormThenCentred(Vectors):
    """The gain of the first normalisation multiplies values whose mean the second subtracts."""

    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.RMSNorm(width), nn.LayerNorm(width, elementwise_affine=False),
            nn.Linear(width, 2),
        )  # fmt: skip


@pytest.mark.parametrize(
    "between",
    [[], [Function(lambda x: 0.5 * x)], [Function(torch.neg)], [nn.GroupNorm(1, 8)], [Function(lambda x: x.flip(-1))]],
    ids=["nothing", "scaled", "negative", "normalised again", "flipped"],
)
def test_weights_of_positions_averaged_before_an_activation(between):
    """The gradient of such a weight depends on values that the average no longer tells apart."""
    layers = [nn.Conv1d(2, 8, 3, padding=1), nn.LayerNorm([8, 6]), *between, nn.AvgPool1d(2)]
    head = [nn.Flatten(), nn.Linear(24, 2)]
    x = normal(3, 2, 6)
    with pytest.raises(UnsupportedLayerError, match=r"weights per position were then averaged over"):
        ntkit.infinite_width(nn.Sequential(*layers, nn.ReLU(), *head)).ntk(x)
    limit = ntkit.infinite_width(nn.Sequential(*layers, *head))  # linear after the average: nothing is lost
    torch.testing.assert_close(limit.ntk(x), limit.ntk(x, engine="reference"), rtol=1e-12, atol=0)


@pytest.mark.parametrize("move", [nn.AvgPool1d(2), Function(lambda x: x.flip(-1)), Function(lambda x: x[..., ::2])])
@pytest.mark.parametrize("phi", [nn.ReLU(), nn.GELU()])
def test_native_leaves_gains_before_moved_positions_to_the_reference_engine(move, phi):
    net = nn.Sequential(
        nn.Conv1d(2, 8, 3, padding=1),
        nn.GroupNorm(1, 8),
        move,
        phi,
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(8, 1),
    )
    limit, x = ntkit.infinite_width(net), normal(3, 2, 6)
    with pytest.raises(EngineError, match="trained gain before an operation on positions"):
        limit.ntk(x, engine="native")
    assert torch.equal(limit.ntk(x), limit.ntk(x, engine="reference"))
