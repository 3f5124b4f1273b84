"""Every family of operations against the conformance suite; most importantly against real finite networks."""

import pytest
import torch
from tests.rules.families import Function, Images, Signals, Vectors, normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.testing import RuleConformance


class TestMlp(Vectors):
    gains = {"b_std": 0.5}

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))


class TestFrozen(Vectors):
    """First and last weights fixed, one bias fixed."""

    gains = {"w_std": 1.2, "b_std": 0.7}

    def module(self, width):
        net = nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 2))
        net[0].weight.requires_grad_(False)
        net[2].bias.requires_grad_(False)
        net[4].weight.requires_grad_(False)
        return net


class TestStandardInit(TestMlp):
    gains = {"w_std": 1.1, "b_std": 0.3, "init": "standard"}
    n_samples = 200

    def test_monte_carlo(self):
        """The standard parametrisation's kernel grows with width, so it is compared at one width, to first order in it."""
        from ntkit.testing import sampled_kernels
        from ntkit.trace import GainRule

        x = self.inputs()
        module = self.module(512)
        ntk, nngp = sampled_kernels(module, x, x, GainRule(**self.gains), 100, torch.Generator().manual_seed(0))
        exact = ntkit.infinite_width(module, **self.gains).both(x)
        assert ((exact.nngp - nngp.mean).abs() < 4.5 * nngp.error).all()
        assert ((exact.ntk - ntk.mean).abs() < 4.5 * ntk.error).all()


class TestTorchInit(TestStandardInit):
    gains = {"init": "torch"}


class TestOverrides(Vectors):
    gains = {"overrides": {"0": {"w_std": 0.7}, "2": {"b_std": 0.9}}}

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


class TestConvFlatten(Images):
    gains = {"b_std": 0.4}

    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * width, 2),
        )  # fmt: skip


class TestConvGap(Images):
    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 3, padding="same", padding_mode="circular"), nn.ReLU(),
            nn.Conv2d(width, width, (1, 2), padding="same"), nn.ReLU(),
            nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 2),
        )  # fmt: skip


class TestStridedDilated(Signals):
    gains = {"b_std": 0.2}

    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, stride=2, padding=2), nn.ReLU(), nn.Conv1d(width, width, 2, dilation=2, padding=1),
            nn.ReLU(), nn.AvgPool1d(2, stride=1, padding=1, count_include_pad=False), nn.Flatten(), nn.Linear(5 * width, 2),
        )  # fmt: skip


class TestConv3d(RuleConformance):
    width, n_samples = 16, 150

    def inputs(self):
        return normal(4, 1, 2, 3, 2)

    def module(self, width):
        return nn.Sequential(
            nn.Conv3d(1, width, 2, padding=1), nn.ReLU(), nn.AvgPool3d((1, 2, 3)), nn.Conv3d(width, width, 1), nn.ReLU(),
            nn.AdaptiveAvgPool3d((3, 1, 1)), nn.Flatten(), nn.Linear(3 * width, 2),
        )  # fmt: skip


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


class TestPaddingModes(Signals):
    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, padding=1, padding_mode="reflect"), nn.ReLU(), nn.ReplicationPad1d((1, 2)),
            nn.Conv1d(width, width, 3), nn.ReLU(), nn.Flatten(), nn.Linear(7 * width, 2),
        )  # fmt: skip


class TestGroups(Signals):
    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3, padding=1), nn.ReLU(), nn.Conv1d(width, width, 3, padding=1, groups=2), nn.ReLU(),
            nn.Flatten(), nn.Linear(6 * width, 2),
        )  # fmt: skip


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


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return 0.5 * x - self.second(torch.relu(self.first(F.relu(x)))) / 2**0.5


class TestResidual(Vectors):
    gains = {"b_std": 0.3}

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), Block(width), Block(width), nn.ReLU(), nn.Linear(width, 2))


class Branches(nn.Module):
    """Two ReLU branches added, whose means are not zero, and a constant."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, width), nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(torch.relu(self.a(x)) - 2 * torch.abs(self.b(x)) + 0.7)


class TestSumOfActivations(Vectors):
    def module(self, width):
        return Branches(width)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.gate, self.mix = (
            nn.Conv1d(2, width, 3, padding=1),
            nn.Linear(width, width),
            nn.Conv1d(width, width, 3),
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        h = F.relu(self.conv(x))
        gate = torch.erf(self.gate(h.mean(-1)))
        h = torch.relu(self.mix(h)) * gate[:, :, None]
        return self.head(h.mean(-1))


class TestProduct(Signals):
    """Squeeze and excitation: a product with a gate that is the same at every position."""

    def module(self, width):
        return Gate(width)


class Dense(nn.Module):
    def __init__(self, width):
        super().__init__()
        joined = width + width // 2
        self.a, self.b = nn.Conv1d(2, width, 3, padding=1), nn.Conv1d(width, width // 2, 3, padding=1)
        self.norm = nn.GroupNorm(1, joined)
        self.c, self.tail = nn.Conv1d(joined, width, 1), nn.Linear(joined, width // 2)
        self.head = nn.Linear(12 * width + width // 2, 2)

    def forward(self, x):
        a = self.a(x)
        joined = torch.cat([a, 2 * self.b(F.relu(a))], 1)
        c = F.relu(self.c(F.relu(self.norm(joined))))
        tail = torch.relu(self.tail(joined.mean(-1)))
        return self.head(torch.cat([c.flatten(1), tail, a.flatten(1)], dim=1))


class TestConcatenation(Signals):
    """Blocks of different variance, normalised together, activated, and joined with flattened and vector parts."""

    width = 32

    def module(self, width):
        return Dense(width)


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


class Prefix(nn.Module):
    """Fourier features of the raw input, then a network; the raw input is joined again at the end."""

    def __init__(self, width):
        super().__init__()
        self.register_buffer("frequencies", normal(4, 6, seed=3).float())
        self.norm = nn.LayerNorm(4, elementwise_affine=False)
        self.hidden, self.head = nn.Linear(12, width), nn.Linear(width + 4, 2)

    def forward(self, x):
        angles = self.norm(x) @ self.frequencies
        h = F.relu(self.hidden(torch.cat([angles.sin(), angles.cos()], -1)))
        return self.head(torch.cat([h, x], -1))


class TestPrefix(Vectors):
    width, n_samples = 256, 100  # the raw input's share of the channels must be small for a limit of the widths

    def module(self, width):
        return Prefix(width)

    def kernels(self):
        limit = ntkit.infinite_width(self.module(16))
        return [limit.nngp, limit.ntk]

    def test_monte_carlo(self):
        """The raw input's share of the last layer is its share of the width, so only one width is compared."""
        from ntkit.testing import sampled_kernels
        from ntkit.trace import GainRule

        x, module = self.inputs(), self.module(256)
        ntk, nngp = sampled_kernels(module, x, x, GainRule(), 100, torch.Generator().manual_seed(0))
        exact = ntkit.infinite_width(module).both(x)
        assert ((exact.nngp - nngp.mean).abs() < 4.5 * nngp.error).all()
        assert ((exact.ntk - ntk.mean).abs() < 4.5 * ntk.error).all()


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


@pytest.mark.parametrize("width", [8, 16])
def test_widths_do_not_matter(width):
    x = normal(3, 4)
    nets = [nn.Sequential(nn.Linear(4, w), nn.ReLU(), nn.Linear(w, 1)) for w in (4, width)]
    first, second = (ntkit.infinite_width(net).ntk(x) for net in nets)
    assert torch.equal(first, second)
