"""L1 distances of all pairs against a loop."""

from __future__ import annotations

import pytest
import torch

from ntkit._src.labels.pairs import _distances
from ntkit._src.labels.pairs._distances import l1_distances


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("rows", [1, 3, 4, 256])
@pytest.mark.parametrize("same", [True, False])
def test_against_a_loop_whatever_the_tiles(rows, same, monkeypatch):
    monkeypatch.setattr(_distances, "_TILE_ROWS", rows)
    x1, x2 = normal(7, 5), None if same else normal(9, 5, seed=1)
    found = l1_distances(x1, x2)
    expected = [[sum(abs(a - b) for a, b in zip(u, v, strict=True)) for v in (x1 if same else x2)] for u in x1]
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-14, atol=0)
    if same:
        assert torch.equal(found, found.T)
        assert not found.diagonal().any()


def test_single_precision_is_summed_in_double():
    x = torch.full((1, 30_000), 0.1)
    found = l1_distances(x, torch.zeros_like(x))
    assert found.dtype == torch.float32
    assert found.item() == float((x.double().sum()).float())
