"""Attention written by hand around F.scaled_dot_product_attention, in networks that tests compare or see refused."""

import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit

X = normal(3, 4, 3)
LOWER = torch.ones(4, 4).tril().bool()
GAINS = {"w_std": 1.2, "b_std": 0.3}


def limit(net, samples=64, **options):
    generator = torch.Generator().manual_seed(0)
    return ntkit.infinite_width(net, attention_samples=samples, generator=generator, **{**GAINS, **options})


def same(first, second, x=X):
    for name in ("nngp", "ntk"):
        torch.testing.assert_close(getattr(first, name)(x), getattr(second, name)(x), rtol=1e-12, atol=0.0)


class Net(nn.Module):
    """Tokens embedded by a linear layer, unless ``raw``, then attention and the mean of its tokens."""

    def __init__(self, attention, raw=False):
        super().__init__()
        self.embed = nn.Identity() if raw else nn.Linear(3, 8)
        self.attention, self.head = attention, nn.Linear(8, 1)

    def forward(self, x):
        return self.head(self.attention(self.embed(x)).mean(1))


class Torch(nn.Module):
    """nn.MultiheadAttention as a function of one tensor."""

    def __init__(self, mask=None):
        super().__init__()
        self.layer, self.mask = nn.MultiheadAttention(8, 2, batch_first=True), mask

    def forward(self, h):
        return self.layer(h, h, h, attn_mask=self.mask, need_weights=False)[0]


class Written(nn.Module):
    """Attention written by hand: ``cut`` gives queries, keys and values, ``join`` puts the heads side by side."""

    def __init__(self, cut, join=None, channels=8, bias=True, width=8, **options):
        super().__init__()
        self.q, self.k, self.v, self.out = (nn.Linear(n, width, bias) for n in (channels,) * 3 + (width,))
        self.cut, self.join, self.options = cut, join or side_by_side, options

    def forward(self, h):
        return self.out(self.join(F.scaled_dot_product_attention(*self.cut(self, h), **self.options)))


class Packed(Written):
    def __init__(self, cut, *arguments, **options):
        super().__init__(cut, *arguments, **options)
        self.q = self.k = self.v = None
        self.qkv = nn.Linear(8, 24)


def side_by_side(y):
    n, _, tokens, _ = y.shape
    return y.transpose(1, 2).reshape(n, tokens, 8)


def flattened(y):
    return y.permute(0, 2, 1, 3).contiguous().flatten(2)


def batch_and_heads_merged(y):
    return y.unflatten(0, (-1, 2)).transpose(1, 2).flatten(2)


def viewed(net, h):
    n, tokens, c = h.shape
    return tuple(layer(h).view(n, tokens, 2, c // 2).transpose(1, 2) for layer in (net.q, net.k, net.v))


def unflattened(net, h):
    return [layer(h).unflatten(-1, (2, 4)).permute(0, 2, 1, 3) for layer in (net.q, net.k, net.v)]


def merged(net, h):
    return [layer(h).unflatten(-1, (2, 4)).transpose(1, 2).flatten(0, 1) for layer in (net.q, net.k, net.v)]


def interleaved(net, h):
    return [layer(h).reshape(len(h), 4, 4, 2).permute(0, 3, 1, 2) for layer in (net.q, net.k, net.v)]


def chunks(net, h):
    return [part.view(len(h), 4, 2, 4).transpose(1, 2) for part in net.qkv(h).chunk(3, dim=-1)]


def unbound(net, h):
    return net.qkv(h).reshape(h.shape[0], h.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4).unbind(0)


def indexed(net, h):
    qkv = net.qkv(h).view(h.shape[0], h.shape[1], 3, 2, 4).permute(2, 0, 3, 1, 4)
    return qkv[0], qkv[1], qkv[2]


def heads_first(net, h):
    return net.qkv(h).view(len(h), 4, 2, 12).transpose(1, 2).chunk(3, dim=-1)


class Exported(Net):
    """A branch on values, which symbolic tracing cannot follow."""

    def forward(self, x):
        torch._check(x.shape[1] == 4)
        scale = float(self.head.weight.new_ones(()).numpy()) if not torch.compiler.is_compiling() else 1.0
        return super().forward(x * scale)
