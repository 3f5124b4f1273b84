"""Operations that read every K[p, p'] at once: matrices of each input, and matrices with long rows."""

import pytest
import torch
from tests.cases import normal
from tests.native.networks import hard
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.native import _core

NODES, FEATURES = 6, 3


class Graph(nn.Module):
    """Two aggregations with the adjacency that the input carries beside the features of its nodes."""

    def __init__(self, transposed=False, bias=True, norm=False):
        super().__init__()
        self.transposed = transposed
        self.first, self.second = nn.Linear(FEATURES, 4, bias), nn.Linear(4, 4, bias)
        self.norm = nn.LayerNorm(4) if norm else nn.Identity()
        self.head = nn.Linear(4, 1, bias)

    def forward(self, x):
        h, adjacency = x[..., :FEATURES], x[..., FEATURES:]
        adjacency = adjacency.transpose(1, 2) if self.transposed else adjacency
        h = F.relu(self.first(torch.bmm(adjacency, h)))
        return self.head(F.gelu(self.norm(self.second(torch.bmm(adjacency, h)))).mean(1))


class Long(nn.Module):
    """A dense matrix along the tokens between two layers."""

    def __init__(self, rows, columns):
        super().__init__()
        self.register_buffer("matrix", normal(rows, columns, seed=4) / columns**0.5)
        self.first, self.second, self.head = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        mapped = torch.einsum("qp,npc->nqc", self.matrix, F.relu(self.first(x)))
        return self.head(F.relu(self.second(mapped)).mean(1))


@pytest.mark.parametrize("options", [{}, {"transposed": True}, {"bias": False}, {"norm": True}])
def test_matrices_of_each_input(options):
    """The adjacency of multiples and zeros scales too: these graphs are of degree three in their numbers."""
    limit = ntkit.infinite_width(Graph(**options).double(), b_std=0.2)
    x, z = hard(normal(7, NODES, FEATURES + NODES)), normal(4, NODES, FEATURES + NODES, seed=1)
    for other in (z, None):
        native, reference = (limit.both(x, other, engine=engine) for engine in ("native", "reference"))
        for a, b in zip(native, reference, strict=True):
            size = reference.nngp.abs().max() if other is None else b.abs().max()
            assert float((a - b).abs().max() / size) < 1e-8  # nearly equal graphs: 1 - rho is a difference of K
            far = [0, 2, 3, 5, 6]
            apart = (a - b)[far] if other is not None else (a - b)[far][:, far]
            assert float(apart.abs().max() / b.abs().max()) < 1e-12
    for kernel, gram in ((limit.ntk, native.ntk), (limit.nngp, native.nngp)):
        torch.testing.assert_close(kernel.diag(x), gram.diagonal(), rtol=1e-12, atol=1e-13)


@pytest.mark.parametrize(("rows", "columns"), [(66, 65), (90, 70)])
def test_matrices_with_long_rows(rows, columns):
    limit = ntkit.infinite_width(Long(rows, columns).double(), b_std=0.2)
    x = normal(3, columns, 3)
    native, reference = (limit.both(x, engine=engine) for engine in ("native", "reference"))
    for a, b in zip(native, reference, strict=True):
        assert float((a - b).abs().max() / b.abs().max()) < 1e-12
    tape = ntkit._src.native.tape_of(limit.program((columns, 3)))
    assert [step.kind for step in tape.instructions].count(_core.Kind.MAP) == 0
