"""Attention against golden values, finite networks and dense sums."""

from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import ntkit
from ntkit.layers import SelfAttention

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
