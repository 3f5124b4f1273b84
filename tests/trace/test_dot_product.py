"""F.scaled_dot_product_attention in forwards that cut the heads themselves, against the layers that do it for them."""

import math

import pytest
import torch
from tests.rules.families import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import UnsupportedLayerError
from ntkit.layers import SelfAttention

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


LAYOUTS = {
    "view": lambda: Written(viewed),
    "unflatten": lambda: Written(unflattened, flattened),
    "batch and heads merged": lambda: Written(merged, batch_and_heads_merged),
    "interleaved": lambda: Written(interleaved),
    "chunk": lambda: Packed(chunks),
    "unbind": lambda: Packed(unbound, flattened),
    "index": lambda: Packed(indexed),
    "heads first": lambda: Packed(heads_first),
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_layouts_are_nn_multi_head_attention(name):
    same(limit(Net(LAYOUTS[name]())), limit(Net(Torch())))


MASKS = {
    "causal": {"is_causal": True},
    "booleans": {"attn_mask": LOWER},
    "numbers": {"attn_mask": torch.zeros(4, 4).masked_fill(~LOWER, -torch.inf)},
    "four dimensions": {"attn_mask": LOWER[None, None]},
}


@pytest.mark.parametrize("name", MASKS)
def test_masks(name):
    written = limit(Net(Written(viewed, **MASKS[name])))
    same(written, limit(Net(Torch(~LOWER))))
    assert not torch.allclose(written.ntk(X), limit(Net(Torch())).ntk(X))


def test_a_mask_of_one_row_hides_keys():
    row = torch.tensor([True, True, False, True])
    same(limit(Net(Written(viewed, attn_mask=row[None]))), limit(Net(Torch(~row.expand(4, 4)))))


@pytest.mark.parametrize("raw", [False, True])
def test_is_self_attention(raw):
    """Queries, keys and values without biases, on hidden layers and on data."""
    channels = 3 if raw else 8

    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = SelfAttention(channels, 2, key_channels=4, bias=False)
            self.out = nn.Linear(channels, 8, bias=False)

        def forward(self, h):
            return self.out(self.layer(h))

    class Hand(nn.Module):
        def __init__(self):
            super().__init__()
            self.layer = Written(heads_of_8, channels=channels, bias=False)
            self.layer.out = nn.Linear(8, channels, bias=False)
            self.out = nn.Linear(channels, 8, bias=False)

        def forward(self, h):
            return self.out(self.layer(h))

    def heads_of_8(net, h):
        return [layer(h).view(len(h), 4, 2, 4).transpose(1, 2) for layer in (net.q, net.k, net.v)]

    same(limit(Net(Hand(), raw)), limit(Net(Own(), raw)))


@pytest.mark.parametrize("scale", [1.0, 0.25])
def test_scale_is_a_gain_of_the_logits(scale):
    """Queries so much larger give the same NNGP kernel; 0.25 is 1/d."""
    scaled, plain = Net(Written(viewed, scale=scale, bias=False)), Net(Written(viewed, bias=False))
    larger = limit(plain, overrides={"attention.q": {"w_std": GAINS["w_std"] * scale * math.sqrt(4)}})
    torch.testing.assert_close(limit(scaled).nngp(X), larger.nngp(X), rtol=1e-12, atol=0.0)
    same(limit(Net(Written(viewed, scale=0.5))), limit(Net(Written(viewed))))
    assert torch.allclose(limit(scaled).nngp(X), limit(plain).nngp(X)) is False


class Exported(Net):
    """A branch on values, which symbolic tracing cannot follow."""

    def forward(self, x):
        torch._check(x.shape[1] == 4)
        scale = float(self.head.weight.new_ones(()).numpy()) if not torch.compiler.is_compiling() else 1.0
        return super().forward(x * scale)


def test_exported_forward():
    same(limit(Exported(Packed(unbound))), limit(Net(Torch())))


def test_images_by_convolutions():
    """Queries, keys and values from convolutions of one pixel, the tokens being the pixels of an image."""

    class Image(nn.Module):
        def __init__(self, by_convolution):
            super().__init__()
            self.embed, self.head = nn.Conv2d(3, 8, 1), nn.Linear(8, 1)
            self.qkv = nn.Conv2d(8, 24, 1) if by_convolution else nn.Linear(8, 24)
            self.out = nn.Conv2d(8, 8, 1)

        def forward(self, x):
            n, _, height, width = x.shape
            h = self.embed(x)
            if isinstance(self.qkv, nn.Conv2d):
                q, k, v = self.qkv(h).view(n, 3, 2, 4, height * width).transpose(-2, -1).unbind(1)
            else:
                q, k, v = self.qkv(h.flatten(2).mT).view(n, -1, 3, 2, 4).permute(2, 0, 3, 1, 4)
            y = F.scaled_dot_product_attention(q, k, v).transpose(-2, -1).reshape(n, 8, height, width)
            return self.head(self.out(y).mean((2, 3)))

    same(limit(Image(True)), limit(Image(False)), normal(2, 3, 2, 2))


def add_values(net, h):
    q, k, v = net.qkv(h).chunk(3, -1)
    y = F.scaled_dot_product_attention(*(part.view(len(h), 4, 2, 4).transpose(1, 2) for part in (q, k, v)))
    return side_by_side(y) + v


def multiply_halves(net, h):
    first, second = side_by_side(F.scaled_dot_product_attention(*chunks(net, h))).chunk(2, -1)
    return torch.cat([first * second, first], -1)


def square(net, h):
    return side_by_side(F.scaled_dot_product_attention(*chunks(net, h))) ** 2


def rectify(net, h):
    return side_by_side(F.scaled_dot_product_attention(*chunks(net, h))).relu()


@pytest.mark.parametrize("body", [square, rectify])
def test_attention_without_an_output_layer_is_not_gaussian(body):
    class Body(Packed):
        def forward(self, h):
            return self.out(body(self, h))

    with pytest.raises(UnsupportedLayerError, match="attention with no layer between"):
        limit(Net(Body(None)))


@pytest.mark.parametrize("body", [add_values, multiply_halves])
def test_what_depends_on_attention_is_not_taken_as_independent(body):
    class Body(Packed):
        def forward(self, h):
            return self.out(body(self, h))

    with pytest.raises(UnsupportedLayerError, match="independent|depend"):
        limit(Net(Body(None)))


def test_fewer_keys_than_queries():
    class Reduced(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.head = nn.Conv1d(3, 8, 1), nn.Conv1d(8, 1, 1)
            self.q, self.kv = nn.Conv1d(8, 8, 1), nn.Conv1d(8, 16, 2, 2)

        def forward(self, x):
            h = self.embed(x)
            q, kv = (layer(h).unflatten(1, (-1, 2, 4)).mT for layer in (self.q, self.kv))
            y = F.scaled_dot_product_attention(q[:, 0], kv[:, 0], kv[:, 1])
            return self.head(y.mT.flatten(1, 2)).mean(2)

    with pytest.raises(UnsupportedLayerError, match="cross-attention"):
        limit(Reduced()).ntk(normal(2, 3, 4))


def test_a_residual_without_an_output_layer():
    """Attention is uncorrelated with what its values are computed from."""

    class Residual(Written):
        def forward(self, h):
            return h + self.join(F.scaled_dot_product_attention(*self.cut(self, h)))

    class Alone(Residual):
        def forward(self, h):
            return super().forward(h) - h

    residual, alone = limit(Net(Residual(viewed)), b_std=0.0), limit(Net(Alone(viewed)), b_std=0.0)
    rest = limit(Net(nn.Identity()), b_std=0.0)
    torch.testing.assert_close(residual.nngp(X), alone.nngp(X) + rest.nngp(X), rtol=1e-12, atol=1e-14)


def few_keys(net, h):
    q, k, v = viewed(net, h)
    return q, k[:, :1], v[:, :1]


def shared_keys(net, h):
    q, k, v = viewed(net, h)
    return q, k[:, :1].expand(-1, 2, -1, -1), v


def tied(net, h):
    q, _, v = viewed(net, h)
    return q, q, v


def normalised(net, h):
    q, k, v = viewed(net, h)
    return F.normalize(q, dim=-1), k, v


def scaled(net, h):
    q, k, v = viewed(net, h)
    return q * 2.0, k, v


def scaled_before(net, h):
    return [(2.0 * layer(h)).view(len(h), 4, 2, 4).transpose(1, 2) for layer in (net.q, net.k, net.v)]


def from_two(net, h):
    q, k, _ = viewed(net, h)
    return q, k, net.v(h.relu()).view(len(h), 4, 2, 4).transpose(1, 2)


def heads_not_transposed(net, h):
    return [layer(h).view(len(h), 2, 4, 4) for layer in (net.q, net.k, net.v)]


def one_head(net, h):
    return net.q(h), net.k(h), net.v(h)


class Biased(Written):
    """Trained numbers added to the logits."""

    def __init__(self, cut):
        super().__init__(cut)
        self.bias = nn.Parameter(torch.zeros(4, 4))

    def forward(self, h):
        return self.out(self.join(F.scaled_dot_product_attention(*self.cut(self, h), attn_mask=self.bias)))


def mixed(y):
    return y.reshape(len(y), 4, 8)


WRITE = r"transpose\(1, 2\).*nn.MultiheadAttention or ntkit.layers.SelfAttention"
REFUSED = {
    "no samples": (lambda: Written(viewed), "attention_samples=1024"),
    "one head": (lambda: Written(one_head, lambda y: y), "single head"),
    "tied": (lambda: Written(tied), "share channels"),
    "shared keys": (lambda: Written(shared_keys), WRITE),
    "fewer heads of keys": (lambda: Written(few_keys, enable_gqa=True), "different numbers of heads"),
    "normalised": (lambda: Written(normalised), WRITE),
    "scaled": (lambda: Written(scaled), WRITE),
    "scaled before": (lambda: Written(scaled_before), "scale="),
    "cross-attention": (lambda: Written(from_two), "cross-attention"),
    "heads not transposed": (lambda: Written(heads_not_transposed), r"heads, tokens, d\) of all 4 tokens"),
    "heads and tokens mixed": (lambda: Written(viewed, mixed), WRITE),
    "a trained mask": (lambda: Biased(viewed), "from parameters"),
    "dropout": (lambda: Written(viewed, dropout_p=0.5), "self.training"),
    "a mask for each head": (lambda: Written(viewed, attn_mask=LOWER.expand(1, 2, 4, 4)), r"expected \(4, 4\)"),
    "blind": (
        lambda: Written(viewed, lambda y: side_by_side(y).nan_to_num(), attn_mask=LOWER.tril(-1)),
        r"hides every token from the queries \[0\]",
    ),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused(name):
    build, message = REFUSED[name]
    with pytest.raises(UnsupportedLayerError, match=f"(?s){message}") as caught:
        limit(Net(build()), samples=None if name == "no samples" else 64).ntk(X)
    assert caught.value.problems[0].path.startswith("attention")


def test_mask_of_the_data():
    class Masked(Written):
        def forward(self, h):
            return self.out(self.join(F.scaled_dot_product_attention(*self.cut(self, h), attn_mask=self.mask)))

    class Data(Net):
        def forward(self, x):
            self.attention.mask = (x.sum((0, 2)) < 99).expand(4, 4)
            return super().forward(x)

    with pytest.raises(UnsupportedLayerError, match="computed from the data"):
        limit(Data(Masked(viewed))).ntk(X)


def test_torch_attention_that_only_the_exporter_reads():
    class Weighted(Torch):
        def forward(self, h):
            return self.layer(h, h, h)[0]

    with pytest.raises(UnsupportedLayerError, match=r"(?s)only torch.export.*ntkit.layers.SelfAttention") as caught:
        limit(Exported(Weighted())).ntk(X)
    assert [(p.path, p.what) for p in caught.value.problems] == [("attention.layer", "MultiheadAttention")]
