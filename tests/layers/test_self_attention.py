"""The layer itself: what it computes, and what it refuses."""

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError, UnsupportedLayerError
from ntkit.layers import SelfAttention


def test_softmax_is_pytorchs():
    own, torchs = SelfAttention(8, 2).double(), nn.MultiheadAttention(8, 2, batch_first=True).double()
    with torch.no_grad():
        torchs.in_proj_weight.copy_(torch.cat([own.query.weight, own.key.weight, own.value.weight]))
        torchs.out_proj.weight.copy_(own.out.weight)
        torchs.out_proj.bias.copy_(own.out.bias)
    x = normal(2, 5, 8)
    torch.testing.assert_close(own(x), torchs(x, x, x)[0])
    image = x[:, :4].transpose(1, 2).unflatten(2, (2, 2))
    torch.testing.assert_close(own(image).flatten(2).transpose(1, 2), own(x[:, :4]))


def test_hidden_keys_have_weight_zero():
    layer = SelfAttention(4, 2, ntkit.Elementwise(torch.cos), mask="causal").double()
    x = normal(1, 3, 4)
    changed = x.clone()
    changed[:, 2] += 1
    torch.testing.assert_close(layer(x)[:, :2], layer(changed)[:, :2])
    assert not torch.allclose(layer(x)[:, 2], layer(changed)[:, 2])


BAD = {
    "heads": (lambda: SelfAttention(8, 3), InputError, "channels=8 and heads=3"),
    "no heads": (lambda: SelfAttention(8, 0), InputError, "heads must be at least 1"),
    "mechanism": (lambda: SelfAttention(8, 2, "tanh"), InputError, "ntkit.Elementwise"),
    "scaling": (lambda: SelfAttention(8, 2, scaling="none"), InputError, "scaling must be"),
    "tied at 1/sqrt(d)": (lambda: SelfAttention(8, 2, tied=True), InputError, 'scaling="linear"'),
    "blind": (lambda: SelfAttention(8, 2, mask=torch.ones(3, 3).bool()), InputError, r"queries \[0, 1, 2\]"),
    "mask of numbers": (lambda: SelfAttention(8, 2, mask=torch.zeros(3, 3)), InputTypeError, "boolean"),
    "mask shape": (lambda: SelfAttention(8, 2, mask=torch.zeros(3, 2).bool()), InputError, r"\(3, 2\)"),
    "mask name": (lambda: SelfAttention(8, 2, mask="future"), InputError, "causal"),
    "positions of integers": (lambda: SelfAttention(8, 2, positions=3), InputTypeError, "torch.eye"),
    "positions shape": (lambda: SelfAttention(8, 2, positions=torch.zeros(3, 2)), InputError, r"\(3, 2\)"),
    "positions indefinite": (lambda: SelfAttention(8, 2, positions=-torch.eye(3)), InputError, "semidefinite"),
    "positions skew": (lambda: SelfAttention(8, 2, positions=torch.ones(3, 3).triu()), InputError, "symmetric"),
    "positions infinite": (lambda: SelfAttention(8, 2, positions=torch.eye(3) / 0), InputError, "finite"),
    "values without positions": (lambda: SelfAttention(8, 2, position_values=True), InputError, "needs positions"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments(name):
    build, kind, message = BAD[name]
    with pytest.raises(kind, match=message):
        build()


class Net(nn.Module):
    def __init__(self, **options):
        super().__init__()
        self.embed, self.attention, self.head = nn.Linear(3, 8), SelfAttention(8, 2, "relu", **options), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.attention(self.embed(x)).mean(1))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"positions": torch.eye(3)}, "layer 'attention'.*positions for 3 tokens. Got an input of 5 tokens"),
        ({"mask": torch.zeros(4, 4).bool()}, "layer 'attention'.*mask for 4 tokens. Got an input of 5 tokens"),
    ],
)
def test_wrong_number_of_tokens(options, message):
    with pytest.raises(InputError, match=message):
        ntkit.infinite_width(Net(**options)).ntk(normal(2, 5, 3))


def test_wrong_channels():
    with pytest.raises(InputError, match=r"\(n, tokens, 8\) or \(n, 8, H, W\). Got \(2, 5, 7\)"):
        SelfAttention(8, 2)(torch.zeros(2, 5, 7))


def test_a_single_head_is_refused():
    net = nn.Sequential(SelfAttention(4, 1, "relu"), nn.Flatten(), nn.Linear(8, 1))
    with pytest.raises(UnsupportedLayerError, match="0: SelfAttention: attention with a single head"):
        ntkit.infinite_width(net).ntk(normal(2, 2, 4))
    tied = nn.Sequential(SelfAttention(4, 1, "relu", "linear", True), nn.Flatten(), nn.Linear(8, 1))
    assert ntkit.infinite_width(tied).ntk(normal(2, 2, 4)).shape == (2, 2)  # constant logits need no heads


def test_finite_side():
    """NTK parametrisation, structured empirical kernel, widening with more and wider heads."""
    net = Net(positions=torch.eye(5), mask="causal").double()
    x = normal(3, 5, 3)
    scaled = ntkit.initialize(ntkit.parametrize_ntk(net), generator=torch.Generator().manual_seed(0))
    structured, formed = (ntkit.empirical(scaled, method=method).ntk(x) for method in ("structured", "jacobian"))
    torch.testing.assert_close(structured, formed, rtol=1e-10, atol=1e-12)
    wide = ntkit.widen(scaled, 16, x)
    attention = wide.attention
    assert (attention.channels, attention.heads, attention.key_channels) == (128, 8, 16)
    assert attention.position.shape == (5, 128) and wide(x).shape == (3, 1)
    same = ntkit.widen(nn.Sequential(SelfAttention(3, 3), nn.Flatten(), nn.Linear(15, 1)), 9, x)[0]
    assert (same.channels, same.heads, same.key_channels) == (3, 9, 3)
    torchs = nn.Sequential(nn.Linear(3, 8), nn.TransformerEncoderLayer(8, 2, 8, batch_first=True), nn.Linear(8, 1))
    assert ntkit.widen(torchs, 4, x.float())[1].self_attn.num_heads == 4
