"""PyTorch's attention and encoders: the same network written with this library's layer, and finite networks."""

import pytest
import torch
from tests.cases import normal
from tests.rules.families import estimates
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import UnsupportedLayerError
from ntkit.layers import SelfAttention

X = normal(3, 4, 3)
SAMPLES = {"attention_samples": 64}
CAUSAL = torch.ones(4, 4).triu(1).bool()


def seeded(**options):
    return {**SAMPLES, "generator": torch.Generator().manual_seed(0), **options}


class Encoder(nn.Module):
    """Tokens embedded by a linear layer, an encoder, and the mean of its tokens."""

    def __init__(self, encoder, width=8, mask=None):
        super().__init__()
        self.embed, self.encoder, self.head, self.mask = nn.Linear(3, width), encoder, nn.Linear(width, 1), mask

    def forward(self, x):
        h = self.embed(x)
        return self.head((self.encoder(h) if self.mask is None else self.encoder(h, self.mask)).mean(1))


class Block(nn.Module):
    """What nn.TransformerEncoderLayer computes, written out with SelfAttention."""

    def __init__(self, norm_first, activation, mask=None):
        super().__init__()
        self.self_attn = SelfAttention(8, 2, bias=False, mask=mask)
        self.linear1, self.linear2 = nn.Linear(8, 16), nn.Linear(16, 8)
        self.norm1, self.norm2 = nn.LayerNorm(8), nn.LayerNorm(8)
        self.norm_first, self.activation = norm_first, activation

    def mlp(self, x):
        return self.linear2(self.activation(self.linear1(x)))

    def forward(self, x):
        if self.norm_first:
            x = x + self.self_attn(self.norm1(x))
            return x + self.mlp(self.norm2(x))
        x = self.norm1(x + self.self_attn(x))
        return self.norm2(x + self.mlp(x))


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("activation", [F.relu, F.gelu])
@pytest.mark.parametrize("mask", [None, CAUSAL])
def test_encoder_layer_written_out(norm_first, activation, mask):
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, activation, batch_first=True, norm_first=norm_first)
    with_bias = {"w_std": 1.2, "b_std": 0.0}
    torch_layer = ntkit.infinite_width(Encoder(layer, mask=mask), **seeded(**with_bias))
    written = ntkit.infinite_width(Encoder(Block(norm_first, activation, mask)), **seeded(**with_bias))
    for name in ("nngp", "ntk"):
        torch.testing.assert_close(getattr(torch_layer, name)(X), getattr(written, name)(X), rtol=1e-12, atol=1e-13)


def test_encoder_is_its_layers():
    layer = nn.TransformerEncoderLayer(8, 2, 16, 0.0, batch_first=True, norm_first=True)
    stack = nn.TransformerEncoder(layer, 2, norm=nn.LayerNorm(8), enable_nested_tensor=False)
    one_by_one = nn.Sequential(*stack.layers, stack.norm)
    first, second = (ntkit.infinite_width(Encoder(net), **seeded(b_std=0.2)) for net in (stack, one_by_one))
    torch.testing.assert_close(first.ntk(X), second.ntk(X), rtol=1e-12, atol=0.0)


@pytest.mark.parametrize(
    ("norm_first", "init"),
    [
        (False, "torch"),
        (True, "ntk"),
        pytest.param(False, "ntk", marks=pytest.mark.slow),
        pytest.param(True, "torch", marks=pytest.mark.slow),
    ],
)
def test_encoder_layer_against_finite_networks(norm_first, init):
    """With the biases of queries, keys and values, and with PyTorch's own initialisation."""

    def build(width, heads):
        layer = nn.TransformerEncoderLayer(width, heads, 2 * width, batch_first=True, norm_first=norm_first)
        return Encoder(layer.eval(), width)

    own = {"w_std": 1.2, "b_std": 0.4} if init == "ntk" else {"init": "torch"}
    wide = build(96, 12)
    limit = ntkit.infinite_width(wide, **own, attention_samples=512, generator=torch.Generator().manual_seed(0))
    mc = ntkit.monte_carlo(wide, 30, generator=torch.Generator().manual_seed(1), **own)
    for kernel, (mean, error) in zip((limit.nngp, limit.ntk), estimates(mc, X), strict=True):
        value, own_error = kernel.estimate(X)
        assert ((value - mean).abs() < 4 * (error**2 + own_error**2).sqrt()).all()


class Attends(nn.Module):
    def __init__(self, call, batch_first=True, heads=2, **options):
        super().__init__()
        self.embed, self.head, self.call = nn.Linear(3, 8), nn.Linear(8, 1), call
        self.attention = nn.MultiheadAttention(8, heads, batch_first=batch_first, **options)

    def forward(self, x):
        return self.head(self.call(self.attention, self.embed(x)).mean(1))


def plain(attention, h):
    return attention(h, h, h, need_weights=False)[0]


def tokens_first(attention, h):
    t = h.transpose(0, 1)
    return attention(t, t, t)[0].transpose(0, 1)


def by_name(attention, h):
    return attention(query=h, key=h, value=h)[0]


def masked(attention, h):
    return attention(h, h, h, attn_mask=CAUSAL)[0]


def masked_by_numbers(attention, h):
    return attention(h, h, h, attn_mask=torch.zeros(4, 4).masked_fill(CAUSAL, -torch.inf))[0]


@pytest.mark.parametrize(
    ("first", "second", "options"),
    [
        (plain, by_name, {}),
        (plain, plain, {"kdim": 8, "vdim": 8}),
        (plain, tokens_first, {"batch_first": False}),
        (masked, masked_by_numbers, {}),
    ],
)
def test_the_same_attention_called_otherwise(first, second, options):
    kernels = [ntkit.infinite_width(Attends(first), **seeded(b_std=0.3)).ntk(X)]
    kernels.append(ntkit.infinite_width(Attends(second, **options), **seeded(b_std=0.3)).ntk(X))
    torch.testing.assert_close(kernels[0], kernels[1], rtol=1e-12, atol=0.0)
    assert not torch.allclose(kernels[0], ntkit.infinite_width(Attends(plain), **seeded()).ntk(X))


class Masked(Attends):
    def __init__(self, name, mask):
        super().__init__(plain)
        self.name, self.mask = name, mask

    def forward(self, x):
        h = self.embed(x)
        return self.head(self.attention(h, h, h, **{self.name: self.mask(x)})[0].mean(1))


REFUSED = {
    "no samples": (lambda: Attends(plain), {}, "attention_samples=1024"),
    "one head": (lambda: Attends(plain, heads=1), SAMPLES, "single head"),
    "cross-attention": (lambda: Attends(lambda a, h: a(h, h.flip(1), h)[0]), SAMPLES, "cross-attention"),
    "padding by numbers": (lambda: Masked("key_padding_mask", lambda x: x.sum(-1)), SAMPLES, "truth values"),
    "mask of the data": (
        lambda: Masked("attn_mask", lambda x: (x > 9).any(0)[:, :1].expand(4, 4)),
        SAMPLES,
        "the data",
    ),
    "other tokens": (lambda: Attends(lambda a, h: a(h[:, :3], h[:, :3], h[:, :3])[0][:, :1]), {}, "softmax"),
    "blind": (
        lambda: Attends(lambda a, h: a(h, h, h, attn_mask=torch.ones(4, 4).bool())[0].nan_to_num()),
        SAMPLES,
        "hides every token",
    ),
    "a token of its own": (lambda: Attends(plain, add_bias_kv=True), SAMPLES, "add_bias_kv"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    build, options, message = REFUSED[name]
    with pytest.raises(UnsupportedLayerError, match=message) as caught:
        ntkit.infinite_width(build(), **options).ntk(X[:2])
    assert caught.value.problems[0].path == "attention"
