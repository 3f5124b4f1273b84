"""F.scaled_dot_product_attention in forwards that cut the heads themselves, against the layers that do it for them."""

import math

import pytest
import torch
from tests.cases import normal
from tests.trace.matchers.dot_products import (
    GAINS,
    LOWER,
    Exported,
    Net,
    Packed,
    Torch,
    Written,
    X,
    batch_and_heads_merged,
    chunks,
    flattened,
    heads_first,
    indexed,
    interleaved,
    limit,
    merged,
    same,
    unbound,
    unflattened,
    viewed,
)  # fmt: skip
from torch import nn
from torch.nn import functional as F

from ntkit.layers import SelfAttention

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
