"""Kernels of one layer's weight: both ways against the definition, and blocks that keep to the byte budget."""

from __future__ import annotations

import pytest
import torch
from tests.cases import normal
from torch import Tensor, nn

from ntkit._src.kernels.finite_network import _layers

# What the layer reads, (n, P, q), and what arrives at its output, (n, s, d, P).
A = normal(3, 4, 5), normal(2, 4, 5, seed=1)
G = normal(3, 2, 6, 4, seed=2), normal(2, 2, 6, 4, seed=3)


def weight_gram(full: bool) -> Tensor:
    first, second = (torch.einsum("npq,nsdp->nsdq", a, g) for a, g in zip(A, G, strict=True))
    return torch.einsum("asdq,brdq->asbr" if full else "asdq,bsdq->ab", first, second)


@pytest.mark.parametrize("way", [_layers._formed_gram, _layers._paired_gram])
@pytest.mark.parametrize("full", [True, False])
@pytest.mark.parametrize("byte_budget", [1, 900, 3000, 10**9])
def test_whatever_the_budget(way, full, byte_budget):
    torch.testing.assert_close(way(A, G, full, byte_budget), weight_gram(full), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("byte_budget", "rows"), [(1, [1] * 6), (3 * 2 * 5 * 8 + 2 * 2 * 5 * 8, [1] * 6), (1000, [2, 2, 2]), (1700, [4, 2])]
)
def test_rows_of_the_weight_at_a_time(byte_budget, rows, monkeypatch):
    """One row's derivatives take (3 + 2) inputs x 2 outputs x 5 numbers of 8 bytes, 400 in all."""
    seen, form = [], _layers._form
    monkeypatch.setattr(_layers, "_form", lambda a, g: seen.append(g.shape[2]) or form(a, g))
    _layers._formed_gram(A, G, False, byte_budget)
    assert seen[::2] == rows


class Doubled(nn.Linear):
    def forward(self, x: Tensor) -> Tensor:
        return 2 * super().forward(x)


class Renamed(nn.Linear):
    pass


def test_layers_with_a_forward_of_their_own_are_not_structured():
    net = nn.Sequential(nn.Linear(3, 4), Doubled(4, 4), Renamed(4, 4), nn.ReLU(), nn.Conv1d(2, 2, 1))
    assert list(_layers.structured_layers(net)) == ["0", "2", "4"]
