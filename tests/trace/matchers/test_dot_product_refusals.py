"""F.scaled_dot_product_attention where its limit is not known, or not Gaussian: refused, with the reason."""

import pytest
import torch
from tests.cases import normal
from tests.trace.matchers.dot_products import (
    LOWER,
    Exported,
    Net,
    Packed,
    Torch,
    Written,
    X,
    chunks,
    limit,
    side_by_side,
    viewed,
)
from torch import nn
from torch.nn import functional as F

from ntkit.errors import UnsupportedLayerError


def add_values(net, h):
    q, k, v = net.qkv(h).chunk(3, -1)
    y = F.scaled_dot_product_attention(*(part.view(h.shape[0], 4, 2, 4).transpose(1, 2) for part in (q, k, v)))
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
    return [(2.0 * layer(h)).view(h.shape[0], 4, 2, 4).transpose(1, 2) for layer in (net.q, net.k, net.v)]


def from_two(net, h):
    q, k, _ = viewed(net, h)
    return q, k, net.v(h.relu()).view(h.shape[0], 4, 2, 4).transpose(1, 2)


def heads_not_transposed(net, h):
    return [layer(h).view(h.shape[0], 2, 4, 4) for layer in (net.q, net.k, net.v)]


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
    return y.reshape(y.shape[0], 4, 8)


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
