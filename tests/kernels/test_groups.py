"""Inputs of different sizes against padded ones with masks, formulas and finite networks; forwards of several arguments."""

import pickle
from types import SimpleNamespace

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import EngineError, InputError, InputTypeError, UnsupportedLayerError
from ntkit.layers import SelfAttention

LENGTHS = (4, 6, 1, 4, 2)
LONGEST = max(LENGTHS)
INSIDE = torch.arange(LONGEST) < torch.tensor(LENGTHS)[:, None]
SEQUENCES = [normal(3, length, seed=seed) for seed, length in enumerate(LENGTHS)]
PADDED = torch.stack([F.pad(x, (0, LONGEST - x.shape[1]), value=7.0) for x in SEQUENCES])
GAINS = {"w_std": 1.3, "b_std": 0.2}


def near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-13)


class Convolutions(nn.Module):
    """Convolutions, normalisation, and the mean over positions; with a mask, that over what is there."""

    def __init__(self, how="mean"):
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.head, self.how = nn.Linear(8, 1), how

    def forward(self, x, mask=None):
        if mask is None:
            h = torch.relu(self.second(torch.relu(self.first(x))))
            h = F.adaptive_avg_pool1d(h, 1).squeeze(2) if self.how == "adaptive" else h.mean(2)
            return self.head(h)
        mask, numbers = mask[:, None], mask[:, None].to(x.dtype)
        h = torch.relu(self.first(x * mask))
        if self.how == "product":
            h = torch.relu(self.second(h * mask)) * (numbers / numbers.sum(2, keepdim=True))
            return self.head(h.sum(2))
        if self.how == "masked_fill":
            h = torch.relu(self.second(h.masked_fill(~mask, 0.0))).masked_fill(~mask, 0.0)
            return self.head(h.sum(2) / mask.sum(2))
        h = torch.where(mask, torch.relu(self.second(h.where(mask, 0.0))), torch.zeros(()))
        return self.head((torch.where(~mask, 0.0, h) / mask.sum(2, keepdim=True)).sum(2))


def test_sequences_of_different_lengths_equal_masked_ones():
    limit = ntkit.infinite_width(Convolutions(), **GAINS)
    found = limit.both(SEQUENCES)
    near(ntkit.infinite_width(Convolutions("adaptive"), **GAINS).ntk(SEQUENCES), found.ntk)
    for how in ("product", "masked_fill", "where"):
        masked = ntkit.infinite_width(Convolutions(how), **GAINS)
        near(masked.ntk((PADDED, INSIDE)), found.ntk)
        near(masked.nngp({"x": PADDED, "mask": INSIDE}), found.nngp)
    assert torch.equal(found.ntk, found.ntk.T)
    near(limit.ntk(SEQUENCES[1:3], SEQUENCES), found.ntk[1:3])
    near(limit.ntk.diag(SEQUENCES), found.ntk.diag())
    assert torch.equal(found.ntk[[0, 3]][:, [0, 3]], limit.ntk(torch.stack([SEQUENCES[0], SEQUENCES[3]])))
    seen = []
    limit.ntk(SEQUENCES, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (15, 15)
    near(pickle.loads(pickle.dumps(limit)).ntk(SEQUENCES[:3]), found.ntk[:3, :3])
    near(
        limit.with_gains(1.0, 0.1).ntk(SEQUENCES[:2]), ntkit.infinite_width(Convolutions(), 1.0, 0.1).ntk(SEQUENCES[:2])
    )


def test_gradients_pass_between_lengths():
    x = [SEQUENCES[0].clone().requires_grad_(), SEQUENCES[1]]
    kernel = ntkit.infinite_width(Convolutions(), **GAINS).ntk
    (gradient,) = torch.autograd.grad(kernel(x)[0, 1], x[0])
    step = 1e-6 * torch.ones_like(gradient)
    change = kernel([SEQUENCES[0] + step, x[1]])[0, 1] - kernel([SEQUENCES[0] - step, x[1]])[0, 1]
    torch.testing.assert_close((gradient * 2 * step).sum(), change.detach(), rtol=1e-6, atol=0.0)


class Periodic(nn.Module):
    """Nothing in it notices whether an image is repeated: circular convolutions, and maps and averages of positions."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.third = (
            nn.Conv2d(channels, 4, 3, stride, padding=1, padding_mode="circular")
            for channels, stride in ((2, 1), (4, 2), (4, 1))
        )
        self.norm, self.head = nn.GroupNorm(1, 4), nn.Linear(4, 1)

    def forward(self, x):
        h = torch.relu(self.norm(self.first(x)))
        h = F.avg_pool2d(F.interpolate(h, scale_factor=2), 2) + self.second(F.interpolate(h, scale_factor=2)).flip(2, 3)
        return self.head(torch.relu(self.third(h)).flatten(2).mean(2))


def test_images_of_different_sizes_equal_repeated_ones():
    x, y = normal(2, 2, 4, seed=1), normal(2, 3, 2, seed=2)
    limit = ntkit.infinite_width(Periodic(), **GAINS)
    found = limit.both([x, y])
    both = limit.both(torch.stack([x.repeat(1, 3, 1), y.repeat(1, 2, 2)]), engine="reference")
    near(found.ntk, both.ntk)
    near(found.nngp, both.nngp)


class Attending(nn.Module):
    def __init__(self, width=8, **options):
        super().__init__()
        self.first, self.attention = nn.Linear(3, width), SelfAttention(width, width // 4, **options)
        self.last, self.head = nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        return self.head(torch.relu(self.last(self.attention(torch.relu(self.first(x))))).mean(1))


@pytest.mark.parametrize("mechanism", ["relu", "identity"])
def test_attention_between_lengths_is_that_of_tokens_that_are_repeated(mechanism):
    """Every token twice doubles all sums over the keys; so K and Theta between lengths follow from those of one length."""
    x, y = normal(2, 3, seed=1), normal(4, 3, seed=2)
    net = Attending(mechanism=mechanism, bias=False)
    own = {name: {"w_std": 1.0} for name in ("attention.query", "attention.key", "attention.value", "attention.out")}
    limit = ntkit.infinite_width(net, 1.3, 0.0, overrides=own)
    twice = x.repeat_interleave(2, 0)
    near(2 * limit.ntk([x, y])[0, 1], limit.ntk(twice[None], y[None])[0, 0])
    near(2 * limit.nngp([x, y])[0, 1], limit.nngp(torch.stack([twice, y]))[0, 1])


def test_tied_attention_between_lengths():
    """Averages of tokens do not change if every token comes twice."""
    x, y = normal(2, 3, seed=1), normal(4, 3, seed=2)
    limit = ntkit.infinite_width(Attending(scaling="linear", tied=True), **GAINS)
    near(limit.ntk([x, y])[0, 1], limit.ntk(torch.stack([x.repeat_interleave(2, 0), y]))[0, 1])


class Softmax(nn.Module):
    """Attention of PyTorch on the data, with padding hidden if a mask is given."""

    def __init__(self, direct=False):
        super().__init__()
        self.attention, self.head, self.direct = nn.MultiheadAttention(3, 3, batch_first=True), nn.Linear(3, 1), direct
        self.q, self.k, self.v = (nn.Linear(3, 3) for _ in range(3))

    def forward(self, x, mask=None):
        if self.direct:
            q, k, v = (layer(x).view(len(x), x.shape[1], 3, 1).transpose(1, 2) for layer in (self.q, self.k, self.v))
            seen = None if mask is None else mask[:, None, None]
            h = F.scaled_dot_product_attention(q, k, v, attn_mask=seen).transpose(1, 2).reshape(len(x), x.shape[1], 3)
        else:
            h = self.attention(x, x, x, key_padding_mask=None if mask is None else ~mask, need_weights=False)[0]
        if mask is None:
            return self.head(h.mean(1))
        return self.head(h.masked_fill(~mask[..., None], 0.0).sum(1) / mask.sum(1, keepdim=True))


@pytest.mark.parametrize("direct", [False, True])
def test_padding_masks_of_attention(direct):
    options = {"attention_samples": 32, **GAINS}
    limit = ntkit.infinite_width(Softmax(direct), **options, generator=torch.Generator().manual_seed(0))
    masked = limit.ntk((PADDED.mT, INSIDE))
    near(masked, limit.ntk(torch.nested.nested_tensor([x.T for x in SEQUENCES], layout=torch.jagged)))
    assert not torch.allclose(masked, limit.ntk((PADDED.mT, torch.ones_like(INSIDE))))
    with pytest.raises(InputError, match="hides every token from a query of input 2"):
        limit.ntk((PADDED.mT, INSIDE & (torch.arange(5) != 2)[:, None]))


class Tokens(nn.Module):
    """Tokens with learned positions, or a class token in front."""

    def __init__(self, kind):
        super().__init__()
        self.table, self.kind = nn.Embedding(7, 8), kind
        self.own = nn.Parameter(normal(1, 1 if kind == "class" else 9, 8)) if kind != "drawn" else nn.Embedding(9, 8)
        self.layer, self.attention, self.head = nn.Linear(8, 8), SelfAttention(8, 2, "identity"), nn.Linear(8, 1)

    def forward(self, x):
        h = self.table(x)
        if self.kind == "class":
            h = torch.cat([self.own.expand(len(h), -1, -1), h], 1)
        else:
            h = h + (self.own(torch.arange(x.shape[1])) if self.kind == "drawn" else self.own[:, : x.shape[1]])
        h = torch.relu(self.layer(self.attention(h)))
        return self.head(h[:, 0] if self.kind == "class" else h.mean(1))


@pytest.mark.parametrize("kind", ["class", "given", "drawn"])
def test_learned_tokens(kind):
    """The covariance of two tables is that of the rows that each reads: between all lengths it is one Gram matrix."""
    net = Tokens(kind).double()
    x = [torch.arange(length) % 7 for length in (3, 1, 5)]
    both = ntkit.infinite_width(net, **GAINS).both(x)
    assert float(torch.linalg.eigvalsh(both.nngp).min()) > 0
    if kind == "class":
        return
    # Without attention and with the mean of tokens, a layer of the tokens of both inputs is one field over 3 + 5 rows.
    rows = [net.own(torch.arange(9)) if kind == "drawn" else net.own[0]][0].detach()
    equal = torch.eye(7, dtype=torch.float64)[x[0]] @ torch.eye(7, dtype=torch.float64)[x[2]].T
    shared = torch.eye(9, dtype=torch.float64)[:3, :5] if kind == "drawn" else rows[:3] @ rows[:5].T / 8

    class Mean(Tokens):
        def forward(self, x):
            own = self.own(torch.arange(x.shape[1])) if self.kind == "drawn" else self.own[:, : x.shape[1]]
            return self.head((self.table(x) + own).mean(1))

    plain = Mean(kind).double()
    plain.load_state_dict(net.state_dict())
    found = ntkit.infinite_width(plain, 1.0, 0.0, overrides={"head": {"w_std": 1.0}}).both([x[0], x[2]])
    near(found.nngp[0, 1], (equal + shared).mean())
    near(found.ntk[0, 1], (2 * equal + shared + torch.eye(9, dtype=torch.float64)[:3, :5]).mean())


class Graphs(nn.Module):
    def __init__(self, channels=2):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(channels, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, h, adjacency, mask=None):
        if mask is None:
            loops = adjacency + torch.eye(adjacency.shape[1], dtype=adjacency.dtype)
        else:
            loops = adjacency + torch.diag_embed(mask)
        h = torch.relu(self.second(loops @ torch.relu(self.first(loops @ h))))
        return self.head(h.sum(1) if mask is None else (h * mask[..., None]).sum(1))


EDGES = [[(0, 1), (1, 0), (1, 2), (2, 1)], [], [(0, 1), (1, 0)], [(0, 3), (3, 0), (1, 2), (2, 1), (0, 1)]]
NODES = (3, 1, 2, 4)
GRAPHS = [
    (torch.tensor(edges, dtype=torch.int64).reshape(-1, 2), normal(n, 2, seed=n))
    for edges, n in zip(EDGES, NODES, strict=True)
]


def test_graphs_of_different_sizes_equal_padded_ones():
    limit = ntkit.infinite_width(Graphs(), **GAINS)
    found = limit.ntk(GRAPHS)
    h, adjacency, mask = torch.zeros(4, 4, 2).double(), torch.zeros(4, 4, 4).double(), torch.zeros(4, 4).double()
    for i, (edges, x) in enumerate(GRAPHS):
        h[i, : len(x)], mask[i, : len(x)] = x, 1.0
        adjacency[i, edges[:, 1], edges[:, 0]] = 1.0
    near(limit.ntk((h, adjacency, mask)), found)
    objects = [SimpleNamespace(x=x, edge_index=edges.T, batch=None) for edges, x in GRAPHS]
    near(limit.ntk(objects), found)
    starts = (0, 3, 4, 6)
    whole = SimpleNamespace(
        x=torch.cat([x for _, x in GRAPHS]),
        edge_index=torch.cat([edges + start for (edges, _), start in zip(GRAPHS, starts, strict=True)]).T,
        batch=torch.repeat_interleave(torch.arange(4), torch.tensor(NODES)),
    )
    near(limit.ntk(whole), found)
    assert float(torch.linalg.eigvalsh(found).min()) > 0
    near(limit.ntk([{"h": h[i, :n], "adjacency": adjacency[i, :n, :n]} for i, n in enumerate(NODES)]), found)


class Flattened(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.how, self.layer, self.other = how, nn.Linear(3, 4), nn.Linear(3, 4)
        self.heads = nn.ModuleList(nn.Linear(4 * size, 1, bias=False) for size in range(1, 8))

    def forward(self, x):
        if self.how == "other layers":
            return self.heads[0]((self.layer if x.shape[1] > 4 else self.other)(x).mean(1))
        h = torch.relu(self.layer(x))
        return self.heads[0](h) if self.how == "positions" else self.heads[x.shape[1] - 1](h.flatten(1))


@pytest.mark.parametrize(
    ("how", "message"),
    [("flatten", "other parameters"), ("positions", "none in common"), ("other layers", "other parameters")],
)
def test_what_sizes_do_not_share_is_refused(how, message):
    limit = ntkit.infinite_width(Flattened(how))
    x = [normal(4, 3), normal(6, 3)]
    assert limit.ntk([x[0], x[0]]).shape == (2, 2)
    with pytest.raises(UnsupportedLayerError, match=message):
        limit.ntk(x)


def test_bad_batches():
    limit = ntkit.infinite_width(Convolutions(), **GAINS)
    with pytest.raises(EngineError, match="one size"):
        limit.ntk(SEQUENCES, engine="native")
    with pytest.raises(InputError, match="at least one input"):
        limit.ntk([])
    with pytest.raises(InputTypeError, match="one dtype"):
        limit.ntk([SEQUENCES[0], SEQUENCES[1].float()])
    with pytest.raises(InputTypeError, match=r"x\[0\] must be a tensor without the batch"):
        limit.ntk([3.0])
    with pytest.raises(InputError, match="as many rows"):
        limit.ntk((PADDED, INSIDE[:2]))
    with pytest.raises(InputError, match=r"\(n, 3, 6\), \(n, 5\)"):
        limit.ntk((PADDED, INSIDE[:, :5]))
    with pytest.raises(InputTypeError):
        limit.ntk.positions(SEQUENCES)
    with pytest.raises(InputError, match="NaN"):
        limit.ntk([SEQUENCES[0], SEQUENCES[1] * torch.nan])
