"""Inputs that a module does not take: the message names the layer, the operation, and the sizes that fit."""

import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import InputError


class Graph(nn.Module):
    """Features and adjacency side by side: (n, nodes, 3 + nodes)."""

    def __init__(self, form):
        super().__init__()
        self.first, self.last, self.form = nn.Linear(3, 8), nn.Linear(8, 1), form

    def forward(self, x):
        h = torch.relu(self.first(x[..., :3]))
        return self.last(self.form(x[..., 3:], h).mean(1))


class Outer(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, x):
        return self.inner(x)


def einsum(a, h):
    return torch.einsum("bij,bjc->bic", a, h)


def dots(a, h):
    return torch.einsum("...ij,...jc->...ic", a, h)


class Constant(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)
        self.register_buffer("matrix", torch.eye(5))

    def forward(self, x):
        return self.last((self.matrix @ torch.relu(self.first(x))).mean(1))


CASES = {
    "bmm": (Graph(torch.bmm), (5, 3 + 6), r"forward: bmm of shapes \(2, 5, 6\) and \(2, 5, 8\).*5 columns.*Got 6.*\(5, 5\)"),
    "matmul": (Graph(torch.matmul), (5, 3 + 4), r"forward: matmul of shapes .*5 columns.*Got 4.*\(5, 5\)"),
    "@": (Graph(lambda a, h: a @ h), (5, 3 + 6), r"forward: matmul of shapes .*5 columns.*Got 6"),
    "square": (
        Graph(lambda a, h: torch.bmm(a[:, :4, :4], h)), (5, 3 + 5), r"Got 4. Give each input a matrix of shape \(5, 5\)",
    ),
    "einsum": (
        Graph(einsum), (5, 3 + 6),
        r"forward: einsum of shapes \(2, 5, 6\) and .*: 'j' must .*Got 6 and 5. Give a left operand of shape \(2, 5, 5\)",
    ),
    "einsum with dots": (Graph(dots), (5, 3 + 6), r"forward: einsum of shapes \(2, 5, 6\) and \(2, 5, 8\): einsum"),
    "constant": (Constant(), (6, 3), r"forward: matmul .*6 columns.*Got 5. Use a matrix of shape \(6, 6\), or inputs .* 5 rows"),
    "inside": (Outer(Graph(torch.bmm)), (5, 3 + 6), r"layer 'inner' \(Graph\): bmm of shapes"),
    "layer": (nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), (4,), r"layer '0' \(Linear\): linear of shapes"),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_where_it_fails(name):
    module, shape, words = CASES[name]
    limit = ntkit.infinite_width(module)
    with pytest.raises(InputError, match=words):
        limit.ntk(torch.ones(2, *shape, dtype=torch.float64))


class Tokens(nn.Module):
    """Read without a layer at the end, so that vectors run through it too."""

    def __init__(self, read, table=None):
        super().__init__()
        self.first, self.second, self.read = nn.Linear(3, 8), nn.Linear(8, 8), read
        self.table = None if table is None else nn.Parameter(torch.randn(table, 8))

    def forward(self, x):
        h = self.first(x)
        return self.read(torch.relu(self.second(h if self.table is None else h + self.table)))


@pytest.mark.parametrize(
    ("module", "tokens"),
    [
        (Tokens(lambda h: h.mean(1)), 5),
        (Tokens(lambda h: h[:, 0]), 5),
        (Tokens(lambda h: h[:, 7]), 10),
        (Tokens(lambda h: h, table=2), 2),
    ],
)
def test_guessed_shapes_refuse_nothing_that_tokens_allow(module, tokens):
    """For vectors (n, 3) these read single channels, or mix the batch; for tokens they have limits."""
    assert ntkit.infinite_width(module).ntk(torch.ones(2, tokens, 3, dtype=torch.float64)).shape == (2, 2)
