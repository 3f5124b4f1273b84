"""Class tokens, tables of positions and embeddings against the conformance suite and finite networks."""

import pytest
import torch
from tests.cases import Mean, normal
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError, UnsupportedLayerError
from ntkit.layers import SelfAttention
from ntkit.testing import RuleConformance


def signs(rows, width):
    """Rows of Walsh functions: their inner products are the same at every width that 8 divides."""
    codes = torch.tensor([[1, 1], [1, -1]], dtype=torch.float64)
    walsh = torch.kron(torch.kron(codes, codes), codes)
    return walsh[:rows].repeat(1, width // 8)


class Vision(nn.Module):
    """Patches, a class token, a table of positions, read at the class token and two patches."""

    def __init__(self, width):
        super().__init__()
        self.patches = nn.Conv2d(2, width, 2, stride=2)
        self.cls = nn.Parameter(0.7 * signs(2, width)[1:] + 0.2)
        self.positions = nn.Parameter(0.5 * signs(5, width)[None])
        self.norm, self.mix = nn.LayerNorm(width), nn.Linear(width, width)
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.patches(x).flatten(2).transpose(1, 2)
        h = torch.cat([self.cls.expand(len(x), 1, -1), h], 1) + self.positions
        h = h + self.mix(self.norm(h).mean(1, keepdim=True))
        return self.head(h[:, :3].mean(1))


class TestVision(RuleConformance):
    gains = {"w_std": 1.1, "b_std": 0.3}
    width, n_samples = 32, 200

    def module(self, width):
        return Vision(width)

    def inputs(self):
        return normal(4, 2, 4, 4)


class Text(nn.Module):
    def __init__(self, width, tokens=7, padding=None):
        super().__init__()
        self.tokens, self.places = nn.Embedding(tokens, width, padding_idx=padding), nn.Embedding(9, width)
        self.mix, self.head = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        h = self.tokens(x) + 0.5 * self.places(torch.arange(x.shape[1], device=x.device))
        return self.head(torch.relu(self.mix(torch.relu(h))).mean(1))


IDS = torch.tensor([[0, 1, 2, 3], [1, 1, 4, 0], [3, 2, 1, 0], [6, 5, 5, 5]])


@pytest.mark.parametrize("padding", [None, 1])
def test_embeddings_against_finite_networks(padding):
    gains = {"w_std": 1.3, "b_std": 0.2}
    limit = ntkit.infinite_width(Text(8, padding=padding), **gains)
    mc = ntkit.monte_carlo(Text(128, padding=padding), 60, generator=torch.Generator().manual_seed(0), **gains)
    for exact, sampled in ((limit.nngp, mc.nngp), (limit.ntk, mc.ntk)):
        mean, error = sampled.estimate(IDS)
        assert ((exact(IDS) - mean).abs() < 4 * error).all()
        torch.testing.assert_close(exact.diag(IDS), exact(IDS).diagonal())
        torch.testing.assert_close(exact(IDS[:2], IDS[1:]), exact(IDS)[:2, 1:])


def test_an_embedding_is_a_linear_layer_of_one_hot_inputs():
    class OneHot(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.head = nn.Linear(7, 8, bias=False), nn.Linear(8, 1)

        def forward(self, x):
            return self.head(torch.relu(self.table(x)).mean(1))

    one_hot = ntkit.infinite_width(OneHot(), overrides={"table": {"w_std": 7**0.5}})
    x = nn.functional.one_hot(IDS, 7).double()
    limit = ntkit.infinite_width(nn.Sequential(nn.Embedding(7, 8), nn.ReLU(), Mean(), nn.Linear(8, 1)))
    torch.testing.assert_close(limit.ntk(IDS), one_hot.ntk(x), rtol=1e-12, atol=0.0)
    assert limit.ntk(IDS).dtype == torch.float64


def test_a_frozen_table_is_not_trained():
    net = Text(8)
    net.tokens.weight.requires_grad_(False)
    trained, frozen = ntkit.infinite_width(Text(8)), ntkit.infinite_width(net)
    torch.testing.assert_close(frozen.nngp(IDS), trained.nngp(IDS))
    assert (frozen.ntk.diag(IDS) < trained.ntk.diag(IDS)).all()


def test_independent_tokens_are_joined():
    class Two(nn.Module):
        def __init__(self, shared):
            super().__init__()
            self.a, self.b, self.head = nn.Linear(3, 8), nn.Linear(3, 8), nn.Linear(8, 1)
            self.shared = shared

        def forward(self, x):
            a = self.a(x)
            return self.head(torch.relu(torch.cat([a, a.flip(1) if self.shared else self.b(x)], 1)).mean(1))

    x = normal(3, 4, 3)
    limit = ntkit.infinite_width(Two(False), w_std=1.2)
    one = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), Mean(), nn.Linear(8, 1)), w_std=1.2)
    # The mean over both halves of two independent fields: K = (K_a + K_b) / 4 + 2 m m' / 4.
    m = 1.2 * (x.square().mean(2).sqrt() / (2 * torch.pi) ** 0.5).mean(1)
    expected = one.nngp(x) / 2 + 1.2**2 * m[:, None] * m[None] / 2
    torch.testing.assert_close(limit.nngp(x), expected, rtol=1e-12, atol=0.0)
    torch.testing.assert_close(limit.ntk(x), expected + (one.ntk(x) - one.nngp(x)) / 2, rtol=1e-12, atol=0.0)
    with pytest.raises(UnsupportedLayerError, match="depend on each other"):
        ntkit.infinite_width(Two(True))


BAD = {
    "out of range": (IDS + 1, InputError, "tokens: the embedding must be given integers from 0 to 6"),
    "floats": (IDS.double(), InputError, "cannot take inputs|integers"),
    "no rows": (IDS[:0], InputError, "must have at least one row"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_integers(name):
    x, kind, message = BAD[name]
    limit = ntkit.infinite_width(Text(8))
    with pytest.raises((kind, InputTypeError), match=message):
        limit.ntk(x)


def test_a_table_used_twice_is_refused():
    class Twice(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head, self.p = nn.Linear(3, 8), nn.Linear(8, 1), nn.Parameter(torch.randn(4, 8))

        def forward(self, x):
            return self.head((self.a(x) + self.p + self.p).mean(1))

    with pytest.raises(UnsupportedLayerError, match="also those of 'p'"):
        ntkit.infinite_width(Twice()).ntk(normal(2, 4, 3))


def test_explain_names_them():
    rows = ntkit.infinite_width(Text(8)).explain((4,)).rows
    assert [row.operation for row in rows][:3] == ["embedding", "table", "sum"]
    assert {row.engine for row in rows} == {"native"}


class Gpt(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.tokens, self.places = nn.Embedding(7, width), nn.Parameter(torch.zeros(9, width))
        self.attention = SelfAttention(width, 4, "relu", mask="causal")
        self.head = nn.Linear(width, 1)

    def forward(self, x):
        h = self.tokens(x) + self.places[: x.shape[1]]
        return self.head(torch.relu(h + self.attention(h))[:, -1])


def test_a_table_of_zeros_has_a_tangent_kernel():
    """Its rows are read by place, so the places of two inputs meet only where they are the same."""
    limit = ntkit.infinite_width(Gpt(8), w_std=1.0)
    net = Gpt(8)
    net.places.requires_grad_(False)
    frozen = ntkit.infinite_width(net, w_std=1.0)
    torch.testing.assert_close(limit.nngp(IDS), frozen.nngp(IDS))
    assert (limit.ntk(IDS) > frozen.ntk(IDS)).all()


def test_present_values_of_two_parameters_are_not_independent():
    """The kernel of both added up is that of their sum as one parameter; trained apart, each has its own term."""

    class Two(nn.Module):
        def __init__(self, split):
            super().__init__()
            self.a, self.head, self.split = nn.Linear(3, 8), nn.Linear(8, 1), split
            p, q = normal(4, 8), normal(4, 8, seed=1)
            self.p = nn.Parameter(p if split else p + q)
            self.q = nn.Parameter(q)

        def forward(self, x):
            h = self.a(x) + self.p
            return self.head((h + self.q if self.split else h).mean(1))

    x = normal(3, 4, 3)
    two, one = (ntkit.infinite_width(Two(split)) for split in (True, False))
    torch.testing.assert_close(two.nngp(x), one.nngp(x), rtol=1e-12, atol=0.0)
    assert (two.ntk(x) > one.ntk(x)).all()


def test_present_values_next_to_raw_data_are_refused():
    class Skip(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.head, self.p = nn.Linear(3, 3), nn.Linear(3, 1), nn.Parameter(torch.randn(4, 3))

        def forward(self, x):
            return self.head((x + self.a(x) + self.p).mean(1))

    with pytest.raises(UnsupportedLayerError, match="meets raw data"):
        ntkit.infinite_width(Skip()).ntk(normal(2, 4, 3))
