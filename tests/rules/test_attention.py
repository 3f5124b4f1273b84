"""Attention against golden values, finite networks and dense sums."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tests.cases import NETWORKS, Mean, normal
from torch import nn

import ntkit
from ntkit.layers import SelfAttention
from ntkit.testing import RuleConformance

GOLDEN = Path(__file__).resolve().parents[3] / "shared" / "golden" / "layers.npz"


class Tokens(nn.Module):
    """A token network, read by flattening or by the mean of its tokens."""

    def __init__(self, *layers, mean=False, **named):
        super().__init__()
        self.layers, self.mean = nn.Sequential(*layers), mean
        self.head = nn.Linear(*((6, 1) if mean else (30, 1)), bias=False)

    def forward(self, x):
        h = self.layers(x)
        return self.head(h.mean(1) if self.mean else h.flatten(1))


class Residual(nn.Module):
    def __init__(self, *layers):
        super().__init__()
        self.layers = nn.Sequential(*layers)

    def forward(self, x):
        return x + self.layers(x)


def gains(prefix, qk, ov, b=0.0, tied=False):
    query = {f"{prefix}.query": {"w_std": qk**0.5}} if tied else {
        f"{prefix}.query": {"w_std": qk}, f"{prefix}.key": {"w_std": 1.0}
    }  # fmt: skip
    bias = {"b_std": b} if b else {}
    return {**query, f"{prefix}.value": {"w_std": ov}, f"{prefix}.out": {"w_std": 1.0, **bias}}


def dense(prefix, w=2**0.5, b=None):
    return {prefix: {"w_std": w} if b is None else {"w_std": w, "b_std": b}}


TIED = {"scaling": "linear", "tied": True}
NORM = {"elementwise_affine": False, "eps": 1e-12}
CASES = {
    "attn_identity_sqrt": (
        lambda: Tokens(nn.Linear(6, 6), SelfAttention(6, 2, "identity")),
        {**dense("layers.0", 1.1, 0.2), **gains("layers.1", 1.3, 0.8, 0.3), **dense("head", 1.0)},
    ),
    "attn_on_input": (
        lambda: Tokens(SelfAttention(6, 2, "identity"), mean=True),
        {**gains("layers.0", 1.0, 1.0, 0.1), **dense("head", 1.0)},
    ),
    "attn_softmax_linear": (
        lambda: Tokens(nn.Linear(6, 6), SelfAttention(6, 2, "softmax", **TIED)),
        {**dense("layers.0", 1.4, 0.1), **gains("layers.1", 1.5, 0.9, 0.25, tied=True), **dense("head", 1.0)},
    ),
    "attn_relu_linear": (
        lambda: Tokens(nn.Linear(6, 6), SelfAttention(6, 2, "relu", **TIED), nn.ReLU()),
        {**dense("layers.0", 1.2, 0.1), **gains("layers.1", 1.2, 0.7, 0.1, tied=True)},
    ),
    "attn_positions_sum": (
        lambda: Tokens(
            nn.Linear(6, 6),
            SelfAttention(6, 2, **TIED, bias=False, positions=0.36 * torch.eye(5, dtype=torch.float64)),
            nn.ReLU(),
            mean=True,
        ),
        {**dense("layers.0", 1.2, 0.1), **gains("layers.1", 1.4, 1.0, tied=True)},
    ),
    "transformer_pre": (
        lambda: Tokens(
            nn.Linear(6, 6),
            Residual(nn.LayerNorm(6, **NORM), SelfAttention(6, 2, **TIED)),
            Residual(nn.LayerNorm(6, **NORM), nn.Linear(6, 12), nn.ReLU(), nn.Linear(12, 6)),
            nn.LayerNorm(6, **NORM),
            mean=True,
        ),
        {
            **dense("layers.0", 1.2, 0.1),
            **gains("layers.1.layers.1", 1.3, 1.0, 0.1, tied=True),
            **dense("layers.2.layers.1", b=0.1),
            **dense("layers.2.layers.3", 1.0, 0.1),
        },
    ),
}


@pytest.mark.skipif(not GOLDEN.exists(), reason="golden values are not beside the checkout")
@pytest.mark.parametrize("name", CASES)
def test_golden(name):
    build, overrides = CASES[name]
    with np.load(GOLDEN) as file:
        x1, x2, nngp, ntk = (torch.tensor(file[f"{name}/{part}"]) for part in ("x1", "x2", "nngp", "ntk"))
    limit = ntkit.infinite_width(build(), overrides=overrides)
    for exact, golden in ((limit.nngp, nngp), (limit.ntk, ntk)):
        error = (exact(x1.mT, x2.mT) - golden).abs().max() / golden.abs().max()
        assert error < 1e-10, f"{name}: off by {error:.1e}"


class Attending(RuleConformance):
    """A token network with one attention layer whose heads and their width grow with the network."""

    gains = {"w_std": 1.1, "b_std": 0.3}
    width, n_samples = 6, 300
    options: dict[str, object] = {}

    def module(self, width):
        attention = SelfAttention(4 * width, width, **self.options, key_channels=width)
        return nn.Sequential(nn.Linear(3, 4 * width), Residual(attention), nn.ReLU(), Mean(), nn.Linear(4 * width, 1))

    def inputs(self):
        return 0.7 * normal(4, 3, 3)


class TestRelu(Attending):
    options = {"mechanism": "relu"}


class TestIdentityMasked(Attending):
    options = {"mechanism": "identity", "mask": "causal"}


class TestTanhWithPositions(Attending):
    positions = 0.4 * torch.eye(3, dtype=torch.float64) + 0.1
    options = {"mechanism": ntkit.Elementwise(torch.tanh), "positions": positions, "position_values": True}


class TestSoftmaxAtOneOverD(Attending):
    options = {"mechanism": "softmax", **TIED, "mask": torch.tensor([[0, 1, 0], [0, 0, 0], [1, 0, 0]]).bool()}


class TestUntiedAtOneOverD(Attending):
    options = {"mechanism": "softmax", "scaling": "linear"}


class TestImage(RuleConformance):
    """|.| after a convolution, the pixels as tokens, half of the parameters frozen."""

    gains = {"w_std": 1.0, "b_std": 0.2}
    width, n_samples = 6, 300

    def module(self, width):
        attention = SelfAttention(2 * width, width, "abs", key_channels=width)
        for layer in (attention.query, attention.value):
            layer.weight.requires_grad_(False)
        conv = nn.Conv2d(2, 2 * width, 2)
        return nn.Sequential(conv, attention, nn.ReLU(), nn.Flatten(), nn.Linear(2 * width * 4, 1))

    def inputs(self):
        return 0.7 * normal(4, 2, 3, 3)


def dense_attention(k, t, z, dz, q, o, c):
    """K' and T' sum by sum, from E[z z](cov) and E[z' z'](cov) of one pair, K and T of shape (P, P)."""
    size = len(k)
    out, tangent = torch.zeros_like(k), torch.zeros_like(k)
    for a in range(size):
        for a2 in range(size):
            for b in range(size):
                for b2 in range(size):
                    entry = (k[a, a2], k[b, b2], a, a2, b, b2)
                    out[a, a2] += o**2 * z(*entry) * k[b, b2]
                    tangent[a, a2] += o**2 * z(*entry) * t[b, b2]
                    tangent[a, a2] += (
                        o**2 * q**2 * dz(*entry) * k[b, b2]
                        * (2 * k[a, a2] * k[b, b2] + k[a, a2] * t[b, b2] + t[a, a2] * k[b, b2])
                    )  # fmt: skip
    return out + c**2, tangent + 2 * out + c**2


def test_relu_against_dense_sums():
    """Every pair of tokens summed by hand, with the arc-cosine forms of Cho and Saul (2009)."""
    x1, x2 = normal(1, 3, 4), normal(1, 3, 4, seed=1)
    q, o, c = 1.2, 0.8, 0.3
    k, v1, v2 = (u[0] @ w[0].T / 4 for u, w in ((x1, x2), (x1, x1), (x2, x2)))

    def angles(ka, kb, a, a2, b, b2):
        size = q**2 * (v1[a, a] * v1[b, b] * v2[a2, a2] * v2[b2, b2]).sqrt()
        return size, (q**2 * ka * kb / size).clamp(-1, 1)

    def z(*entry):
        size, rho = angles(*entry)
        return size * ((1 - rho**2).sqrt() + rho * (torch.pi - rho.acos())) / (2 * torch.pi)

    def dz(*entry):
        return (torch.pi - angles(*entry)[1].acos()) / (2 * torch.pi)

    nngp, ntk = dense_attention(k, torch.zeros_like(k), z, dz, q, o, c)
    net = nn.Sequential(SelfAttention(4, 2, "relu"), nn.Flatten(), nn.Linear(12, 1, bias=False))
    limit = ntkit.infinite_width(net, overrides={**gains("0", q, o, c), "2": {"w_std": 1.0}})
    torch.testing.assert_close(limit.nngp(x1, x2)[0, 0], nngp.diagonal().mean(), rtol=1e-12, atol=0.0)
    expected = ntk.diagonal().mean() + nngp.diagonal().mean()
    torch.testing.assert_close(limit.ntk(x1, x2)[0, 0], expected, rtol=1e-12, atol=0.0)


def test_gains_are_differentiable():
    x = normal(2, 3, 3)

    def kernel(w):
        net = NETWORKS["attention"].build()
        return ntkit.infinite_width(net, w_std=w).ntk(x).sum()

    w = torch.tensor(1.1, dtype=torch.float64, requires_grad=True)
    (slope,) = torch.autograd.grad(kernel(w), w)
    ends = [kernel(torch.tensor(1.1 + sign * 1e-5, dtype=torch.float64)) for sign in (1, -1)]
    torch.testing.assert_close(slope, (ends[0] - ends[1]) / 2e-5, rtol=1e-7, atol=0.0)


def test_explain_says_what_is_computed():
    def label(engine, **options):
        net = nn.Sequential(nn.Linear(3, 4), SelfAttention(4, 2, **options), Mean(), nn.Linear(4, 1))
        limit = ntkit.infinite_width(net, attention_samples=64)
        rows = [row for row in limit.explain((3, 3)).rows if "attention" in row.operation]
        assert [row.engine for row in rows] == [engine]
        return rows[0].operation

    assert label("reference") == "attention softmax, 64 samples"
    assert label("reference", mechanism="relu") == "attention relu"
    assert label("native", **TIED) == "attention softmax at 1/d"
    assert label("native", scaling="linear") == "attention at 1/d, logits vanish: mean of tokens"


@pytest.mark.slow
@pytest.mark.parametrize("depth", [1, 2])
@pytest.mark.parametrize("mechanism", ["relu", "abs"])
def test_real_multi_head_networks(mechanism, depth):
    """ReLU and |.| at 1/sqrt(d), which no other library has, against ntkit.monte_carlo."""

    def build(heads, width):
        layers = [Residual(SelfAttention(width, heads, mechanism, key_channels=heads // 4)) for _ in range(depth)]
        return nn.Sequential(nn.Linear(3, width), *layers, nn.ReLU(), Mean(), nn.Linear(width, 1))

    x, own = 0.7 * normal(3, 3, 3), {"w_std": 0.9, "b_std": 0.2}
    limit = ntkit.infinite_width(build(4, 8), **own)
    mc = ntkit.monte_carlo(build(96, 128), 60, generator=torch.Generator().manual_seed(0), **own)
    for exact, sampled in ((limit.nngp, mc.nngp), (limit.ntk, mc.ntk)):
        mean, error = sampled.estimate(x)
        assert ((exact(x) - mean).abs() < 4 * error).all()
