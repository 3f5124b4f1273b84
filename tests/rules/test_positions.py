"""Pooling, padding, slices and tokens: what moves positions, against the conformance suite."""

import pytest
import torch
from tests.cases import Function, normal
from tests.rules.families import Images, Signals, step_of
from torch import nn
from torch.nn import functional as F

from ntkit._src.program import Merge
from ntkit._src.rules._covariance import Moments
from ntkit.testing import RuleConformance


class TestAdaptivePooling(Signals):
    """Windows that overlap, since 4 does not divide 6."""

    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Conv1d(width, width, 2), nn.ReLU(),
            nn.Flatten(), nn.Linear(3 * width, 2),
        )  # fmt: skip


class PixelTokens(nn.Module):
    """Pixels as tokens, then an image again, pooled over one of its axes."""

    def __init__(self, width):
        super().__init__()
        self.embed, self.conv, self.head = nn.Linear(2, width), nn.Conv2d(width, width, (2, 3)), nn.Linear(3 * width, 2)

    def forward(self, x):
        h = F.relu(self.embed(x.flatten(2).transpose(1, 2)))
        h = h.transpose(1, 2).reshape(len(x), -1, *x.shape[2:])
        return self.head(F.relu(self.conv(h)).mean(-1).flatten(1))


class TestTokensOfPixels(Images):
    gains = {"b_std": 0.2}

    def module(self, width):
        return PixelTokens(width)


class Tokens(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.embed, self.mlp, self.head = nn.Linear(3, width), nn.Linear(width, width), nn.Linear(width, 2)
        self.norm = nn.LayerNorm(width, elementwise_affine=False)

    def forward(self, x):
        h = self.embed(x)
        h = h + self.mlp(F.gelu(self.norm(h)))
        return self.head(F.gelu(h)[:, 0] if x.shape[1] == 1 else F.gelu(h).mean(1))


class TestTokensByExport(RuleConformance):
    """A branch on a shape, which symbolic tracing cannot follow."""

    width, n_samples = 32, 200

    def inputs(self):
        return normal(4, 3, 3)

    def module(self, width):
        return Tokens(width)


class TestPositionsRemain(Signals):
    """A fully convolutional network: the kernel is the mean over the output's positions."""

    n_samples = 60

    def module(self, width):
        return nn.Sequential(nn.Conv1d(2, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, 2, 1))


class TestSlices(Images):
    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 2), nn.ReLU(), Function(lambda x: x[:, :, ::2].flip(-1)[..., 1:]), Function(lambda x: x.mean(2)),
            nn.Conv1d(width, width, 2, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(3 * width, 2),
        )  # fmt: skip


@pytest.mark.parametrize(("axis", "shape"), [(0, (2, 12, 5)), (1, (2, 3, 20))])
def test_means_of_merged_axes(axis, shape):
    values = normal(2, 3, 4, 5)
    step = step_of(Merge(axis, 2), 1)
    assert torch.equal(step.rule.mean(step, Moments({}, {}, {0: values})), values.reshape(shape))
