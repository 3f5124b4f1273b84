"""Sampled softmax attention: its error, its draws, and real networks."""

import pytest
import torch
from tests.cases import NETWORKS, Mean, normal
from tests.rules.families import estimates
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.rules._sampled_attention import _factor, _jacobian
from ntkit.layers import SelfAttention


def hidden(width=8, heads=4, key=2):
    attention = SelfAttention(width, heads, key_channels=key)
    return nn.Sequential(nn.Linear(3, width), attention, nn.ReLU(), Mean(), nn.Linear(width, 1))


def on_data(width=3, heads=3, key=2):
    return nn.Sequential(SelfAttention(3, heads, key_channels=key), Mean(), nn.Linear(3, 1))


X = normal(4, 3, 3)
OWN = {"w_std": 1.3, "b_std": 0.3}


def limit(net, samples, seed=0):
    return ntkit.infinite_width(net, **OWN, attention_samples=samples, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("build", [hidden, on_data])
def test_real_networks(build):
    sampled = limit(build(), 512)
    mc = ntkit.monte_carlo(build(96, 64, 24), 40, generator=torch.Generator().manual_seed(0), **OWN)
    for kernel, (mean, error) in zip((sampled.nngp, sampled.ntk), estimates(mc, X), strict=True):
        own, own_error = kernel.estimate(X)
        assert ((own - mean).abs() < 4 * (error**2 + own_error**2).sqrt()).all()


class Written(nn.Module):
    """Causal attention with heads cut by hand, and logits twice as large as usual."""

    def __init__(self, width=8, heads=4, key=2, raw=False):
        super().__init__()
        self.embed = nn.Identity() if raw else nn.Linear(3, width)
        self.qkv, self.out, self.head = (
            nn.Linear(3 if raw else width, 3 * heads * key),
            nn.Linear(heads * key, width),
            nn.Linear(width, 1),
        )
        self.heads, self.key = heads, key

    def forward(self, x):
        n, tokens, _ = x.shape
        q, k, v = self.qkv(self.embed(x)).view(n, tokens, 3, self.heads, self.key).permute(2, 0, 3, 1, 4)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, scale=2 * self.key**-0.5)
        return self.head(self.out(y.transpose(1, 2).flatten(2)).relu().mean(1))


@pytest.mark.parametrize("raw", [pytest.param(False, marks=pytest.mark.slow), True])
def test_real_networks_with_heads_cut_by_hand(raw):
    sampled = limit(Written(raw=raw), 512)
    mc = ntkit.monte_carlo(Written(96, 64, 24, raw), 40, generator=torch.Generator().manual_seed(0), **OWN)
    for kernel, (mean, error) in zip((sampled.nngp, sampled.ntk), estimates(mc, X), strict=True):
        own, own_error = kernel.estimate(X)
        assert ((own - mean).abs() < 4 * (error**2 + own_error**2).sqrt()).all()


@pytest.mark.parametrize("build", [hidden, on_data])
def test_equal_seeds_give_equal_bits(build):
    assert torch.equal(limit(build(), 64).ntk(X), limit(build(), 64).ntk(X))
    assert not torch.equal(limit(build(), 64).ntk(X), limit(build(), 64, seed=1).ntk(X))


@pytest.mark.parametrize("build", [hidden, on_data])
def test_conforms(build):
    """Symmetric, transposable, the diagonal its own, and no entry depends on its batch."""
    for kernel in (limit(build(), 48).nngp, limit(build(), 48).ntk):
        k = kernel(X)
        assert torch.equal(k, k.T)
        torch.testing.assert_close(kernel(X[:2], X), kernel(X, X[:2]).T, rtol=1e-12, atol=1e-14)
        torch.testing.assert_close(kernel.diag(X), k.diagonal(), rtol=1e-10, atol=0.0)
        torch.testing.assert_close(kernel(X[1:2], X[2:3])[0, 0], k[1, 2], rtol=1e-12, atol=0.0)


def test_definite_on_data():
    x = torch.cat([X, X[:2], 1.001 * X])
    for kernel in (limit(on_data(), 32).nngp, limit(on_data(), 32).ntk):
        values = torch.linalg.eigvalsh(kernel(x))
        assert values.min() > -1e-12 * values.max()


@pytest.mark.slow
def test_the_error_falls_as_the_root_of_the_samples():
    """Deviations of many seeds are as large as the standard error says, at both numbers of samples."""
    exact = limit(hidden(), 8192, seed=99).ntk(X[:2])
    for samples in (32, 512):
        kernels = torch.stack([limit(hidden(), samples, seed).ntk(X[:2]) for seed in range(12)])
        actual = (kernels - exact).square().mean(0).sqrt()
        stated = torch.stack([limit(hidden(), samples, seed).ntk.standard_error(X[:2]) for seed in range(3)]).mean(0)
        assert (actual / stated > 0.5).all() and (actual / stated < 2.0).all()


def test_gradients():
    x = X[:2].clone().requires_grad_()
    kernel = limit(hidden(), 32).ntk
    (slope,) = torch.autograd.grad(kernel(x, X[2:]).sum(), x)
    step = 1e-5 * normal(2, 3, 3, seed=3)
    ends = [kernel(X[:2] + sign * step, X[2:]).sum() for sign in (1, -1)]
    torch.testing.assert_close((slope * step).sum(), (ends[0] - ends[1]) / 2, rtol=1e-5, atol=1e-12)


def test_no_samples_no_error():
    net = NETWORKS["attention"].build()
    assert not ntkit.infinite_width(net).ntk.standard_error(X).any()


def test_factor_of_singular_covariances():
    a = normal(5, 3)
    k = (torch.cat([a, a[:2], torch.zeros(1, 3)]) @ torch.cat([a, a[:2], torch.zeros(1, 3)]).T)[None]
    root = _factor(k)
    torch.testing.assert_close(root @ root.mT, k, rtol=1e-12, atol=1e-12)
    assert torch.equal(root, root.tril()) and torch.equal(root[0, -1], torch.zeros(8))
    torch.testing.assert_close(root[0, 5:7], root[0, :2], rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("same", [True, False])
def test_jacobian_of_softmax(same):
    """Against the Jacobian that autograd gives, summed entry by entry."""
    g1, g2, m, v = (normal(3, 3, seed=seed) for seed in range(4))
    z1, z2 = g1.softmax(-1), g2.softmax(-1)
    w1, w2 = ([torch.func.jacrev(lambda row: row.softmax(0))(row) for row in g] for g in (g1, g2))
    full = torch.stack([torch.stack([((a @ v @ b.T) * m).sum() for b in w2]) for a in w1])
    found = _jacobian(z1[None], m, v, z2[None], same)[0]
    torch.testing.assert_close(found, full.diagonal() if same else full, rtol=1e-12, atol=1e-14)


class OfImages(nn.Module):
    """Attention of the raw pixels, averaged along one axis alone, of images as they are or as a sequence."""

    def __init__(self, sequence):
        super().__init__()
        self.attention, self.head = SelfAttention(3, 3, key_channels=2), nn.Linear(9, 1)
        self.sequence = sequence

    def forward(self, x):
        if self.sequence:
            h = self.attention(x.flatten(2).transpose(1, 2)).transpose(1, 2).unflatten(2, (2, 3))
        else:
            h = self.attention(x)
        return self.head(h.mean(2).flatten(1))


def test_one_axis_is_averaged_and_the_other_is_not():
    x = normal(3, 3, 2, 3)
    image, sequence = (limit(OfImages(sequence), 16) for sequence in (False, True))
    for a, b in ((image.nngp, sequence.nngp), (image.ntk, sequence.ntk)):
        torch.testing.assert_close(a(x), b(x), rtol=1e-12, atol=1e-13)
