"""Inputs that a fixed function prepares, against the conformance suite."""

import torch
from tests.rules.families import Vectors, normal
from torch import nn
from torch.nn import functional as F

import ntkit


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
