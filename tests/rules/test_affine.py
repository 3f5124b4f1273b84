"""Linear and convolutional layers, their gains and their initialisations, against the conformance suite."""

import pytest
import torch
from tests.cases import mlp, normal
from tests.rules.families import Images, Signals, Vectors
from torch import nn

import ntkit
from ntkit.testing import RuleConformance


class TestMlp(Vectors):
    gains = {"b_std": 0.5}

    def module(self, width):
        return mlp(4, width, width, 2)


class TestFrozen(Vectors):
    """First and last weights fixed, one bias fixed."""

    gains = {"w_std": 1.2, "b_std": 0.7}

    def module(self, width):
        net = mlp(4, width, width, 2)
        net[0].weight.requires_grad_(False)
        net[2].bias.requires_grad_(False)
        net[4].weight.requires_grad_(False)
        return net


class TestStandardInit(TestMlp):
    gains = {"w_std": 1.1, "b_std": 0.3, "init": "standard"}
    n_samples = 200

    def test_monte_carlo(self):
        """The standard parametrisation's kernel grows with width, so it is compared at one width, to first order in it."""
        from ntkit._src.testing import sampled_kernels
        from ntkit._src.trace import GainRule

        x = self.inputs()[:3]
        module = self.module(256)
        ntk, nngp = sampled_kernels(module, x, None, GainRule(**self.gains), 80, torch.Generator().manual_seed(0))
        exact = ntkit.infinite_width(module, **self.gains).both(x)
        assert ((exact.nngp - nngp.mean).abs() < 4 * nngp.error).all()
        assert ((exact.ntk - ntk.mean).abs() < 4 * ntk.error).all()


class TestTorchInit(TestStandardInit):
    gains = {"init": "torch"}


class TestOverrides(Vectors):
    gains = {"overrides": {"0": {"w_std": 0.7}, "2": {"b_std": 0.9}}}

    def module(self, width):
        return mlp(4, width, 3)


class TestConvFlatten(Images):
    gains = {"b_std": 0.4}

    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Conv2d(width, width, 3, padding=1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * width, 2),
        )  # fmt: skip


@pytest.mark.filterwarnings("ignore:Using padding='same' with even kernel:UserWarning")
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


@pytest.mark.parametrize("width", [8, 16])
def test_widths_do_not_matter(width):
    x = normal(3, 4)
    nets = [mlp(4, w, 1) for w in (4, width)]
    first, second = (ntkit.infinite_width(net).ntk(x) for net in nets)
    assert torch.equal(first, second)
