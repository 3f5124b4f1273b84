"""Inner products, distances and moments of pairs of rows, against NumPy, pair by pair."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from ntkit._src.labels.pairs import _distances, _products
from ntkit._src.labels.pairs._products import common_mean, pair_products


def normal(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).to(dtype) + 3


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_of_every_pair(same, dtype, monkeypatch):
    monkeypatch.setattr(_products, "_BLOCK_ROWS", 3)  # several blocks, the last one short
    monkeypatch.setattr(_distances, "_TILE_ROWS", 4)
    x1, x2 = normal(7, 5, dtype=dtype), None if same else normal(6, 5, seed=1, dtype=dtype)
    found = pair_products(x1, x2)
    one, two = x1.double().numpy(), (x1 if x2 is None else x2).double().numpy()
    shift = one.mean() if same else (one.mean() + two.mean()) / 2
    close = {"rtol": 1e-5 if dtype == torch.float32 else 1e-12, "atol": 1e-5 if dtype == torch.float32 else 1e-12}
    assert found.shift == pytest.approx(shift, rel=1e-6)
    assert found.dimension == 5
    np.testing.assert_allclose(found.inner, (one - shift) @ (two - shift).T, **close)
    np.testing.assert_allclose(found.l1, np.abs(one[:, None] - two).sum(2), **close)
    for moments, rows in ((found.rows, one), (found.columns, two)):
        np.testing.assert_allclose(moments.norm, np.linalg.norm(rows, axis=1), **close)
        np.testing.assert_allclose(moments.spread, rows.std(1) * 5**0.5, **close)
        np.testing.assert_allclose(moments.shifted_square, ((rows - shift) ** 2).sum(1), **close)
        np.testing.assert_allclose(moments.shifted_sum, (rows - shift).sum(1), **close)
    if same:
        assert torch.equal(found.inner, found.inner.T)
        assert torch.equal(found.l1, found.l1.T)


def test_a_constant_row_has_no_spread():
    assert pair_products(torch.full((1, 7), 0.1, dtype=torch.float64)).rows.spread.item() == 0


def test_means():
    assert common_mean(torch.tensor([[1.0, 3.0]]), torch.tensor([[5.0, 5.0]])) == 3.5
    assert common_mean(torch.tensor([[1.0, 3.0]]), None) == 2.0
