"""Inputs that a fixed function prepares, against the conformance suite."""

import numpy as np
import pytest
import torch
from tests.cases import normal
from tests.rules.families import Vectors
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.program import Input, Keep
from ntkit._src.rules._covariance import Ends, Moments
from ntkit._src.rules._input import _refine, data_covariance


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
        from ntkit._src.testing import sampled_kernels
        from ntkit._src.trace import GainRule

        x, module = self.inputs(), self.module(256)
        ntk, nngp = sampled_kernels(module, x, None, GainRule(), 100, torch.Generator().manual_seed(0))
        exact = ntkit.infinite_width(module).both(x)
        assert ((exact.nngp - nngp.mean).abs() < 4 * nngp.error).all()
        assert ((exact.ntk - ntk.mean).abs() < 4 * ntk.error).all()


@pytest.mark.parametrize("scale", [0.03, 1.0, 30.0])
@pytest.mark.parametrize("positions", [(), (3,)])
@pytest.mark.parametrize("keep", [Keep.SAME, Keep.ALL])
def test_equal_points_have_correlation_one_to_the_bit(scale, positions, keep):
    """Where x and x' coincide, in whatever rows, K is |x|^2 / C as it stands in their variances; elsewhere x . x' / C."""
    x1 = scale * normal(20, *positions, 300)
    order = torch.randperm(20, generator=torch.Generator().manual_seed(1))
    x2 = torch.cat([x1[order], scale * normal(4, *positions, 300, seed=2)])
    keeps = (keep,) * len(positions)
    op = Input(0, 0, 1)
    found = data_covariance((op, op), keeps, Ends(Moments({(0, 0): x1}), Moments({(0, 0): x2}), 2)).nngp
    if positions and keep is Keep.ALL:
        exact = torch.einsum("apz,bqz->abpq", x1, x2) / 300
        found_equal = found.diagonal(dim1=2, dim2=3)[order, torch.arange(20)]
    else:
        exact = torch.einsum("a...z,b...z->ab...", x1, x2) / 300
        found_equal = found[order, torch.arange(20)]
    torch.testing.assert_close(found, exact, rtol=1e-12, atol=1e-13 * scale**2)
    variance = torch.einsum("...z,...z->...", x1, x1) / 300
    assert torch.equal(found_equal, variance[order])


def test_nearly_equal_points_keep_the_digits_of_their_difference():
    x1 = normal(3, 40)
    x2 = x1.flip(0) + 1e-9 * normal(3, 40, seed=1)
    op, ends = Input(0, 0, 1), Ends(Moments({(0, 0): x1}), Moments({(0, 0): x2}), 2)
    k = data_covariance((op, op), (), ends).nngp
    q1, q2 = x1.square().mean(1), x2.square().mean(1)
    apart = (q1[:, None] + q2 - 2 * k)[torch.arange(3), torch.tensor([2, 1, 0])]
    expected = (x1 - x2.flip(0)).square().mean(1)
    assert (apart - expected).abs().max() < 1e-15


@pytest.mark.parametrize("scale", [0.03, 7.0])
def test_nearly_parallel_points_keep_the_digits_of_their_angle(scale):
    """Points of different lengths: K, and H between them, against the same products in extended precision."""
    x1 = normal(3, 40)
    x2 = scale * (x1.flip(0) + 1e-5 * normal(3, 40, seed=1))
    at = torch.arange(3), torch.tensor([2, 1, 0])
    op, ends = Input(0, 0, 1), Ends(Moments({(0, 0): x1}), Moments({(0, 0): x2}), 2)
    k = data_covariance((op, op), (), ends).nngp[at]
    a, b = x1.numpy().astype(np.longdouble), x2.flip(0).numpy().astype(np.longdouble)
    exact = (a * b).mean(1)
    q1, q2 = (a * a).mean(1), (b * b).mean(1)
    assert (np.abs(k.numpy() - exact) < 4e-16 * np.abs(exact)).all()
    rows = torch.arange(3)
    spread = (x.square().mean(1) for x in (x1, x2))
    first, second = next(spread)[:, None], next(spread)[None]
    found = _refine(
        (x1 @ x2.T) / 40, first, second, rows[:, None].expand(3, 3), rows[None].expand(3, 3), x1, x2, True, None
    )[1][at]
    half = (q1 + q2) / 2 - exact
    assert (np.abs(found.numpy() - half) < 1e-15 * half).all()
