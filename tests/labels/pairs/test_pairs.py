"""Pairs of inputs: their products, and parts that share those of the whole."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.cases import normal

from ntkit._src.labels.pairs import _pairs
from ntkit._src.labels.pairs._pairs import common_mean, l1_distances, pair_products
from ntkit.labels import PairEstimator, Pairs


def shifted(*shape: int, seed: int = 0, dtype=torch.float64) -> torch.Tensor:
    return normal(*shape, seed=seed).to(dtype) + 3


def test_products_are_those_of_flattened_inputs_computed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(_pairs, "pair_products", lambda *x: calls.append(x) or pair_products(*x))
    x1, x2 = shifted(4, 2, 3), shifted(3, 2, 3, seed=1)
    pairs = Pairs(x1, x2, shifted(4, 3))
    assert torch.equal(pairs.products.l1, pair_products(x1.flatten(1), x2.flatten(1)).l1)
    assert pairs.products is pairs.products
    part = pairs.take(torch.tensor([2, 0]), torch.tensor([1]))
    assert part.products.l1.shape == (2, 1)
    assert len(calls) == 1


def test_parts_of_parts_and_of_two_batches():
    x1, x2, k = shifted(5, 4), shifted(6, 4, seed=1), shifted(5, 6, seed=2)
    whole = Pairs(x1, x2, k)
    rows, columns = torch.tensor([4, 0, 3]), torch.tensor([1, 5])
    part = whole.take(rows, columns)
    assert torch.equal(part.x1, x1[rows]) and torch.equal(part.x2, x2[columns])
    again = part.take(torch.tensor([2]), torch.tensor([0]))
    assert torch.equal(again.k, k[3:4, 1:2])
    assert torch.equal(again.products.inner, whole.products.inner[3:4, 1:2])
    same = Pairs(x1, None, shifted(5, 5)).take(rows, columns.clamp(max=4))
    assert torch.equal(same.x2, x1[columns.clamp(max=4)])  # the columns of one batch are its rows


def test_parts_share_the_products_of_the_whole():
    x, k = shifted(6, 4), shifted(6, 6, seed=2)
    whole = Pairs(x, None, k + k.T)
    rows, columns = torch.tensor([4, 0, 3]), torch.tensor([1, 5])
    for part, chosen in ((whole.take(rows), rows), (whole.take(rows, columns), columns)):
        assert torch.equal(part.k, whole.k[rows][:, chosen])
        assert torch.equal(part.products.inner, whole.products.inner[rows][:, chosen])
        assert torch.equal(part.products.l1, whole.products.l1[rows][:, chosen])
        assert torch.equal(part.products.columns.norm, whole.products.columns.norm[chosen])
        assert torch.equal(part.products.rows.spread, whole.products.rows.spread[rows])
    tile = whole.products.take(slice(1, 3), slice(2, 6))
    assert torch.equal(tile.inner, whole.products.inner[1:3, 2:6])
    assert torch.equal(tile.columns.shifted_sum, whole.products.columns.shifted_sum[2:6])


def test_estimators_are_told_by_their_methods():
    class Mine:
        def fit(self, pairs, labels):
            return self

        def __call__(self, pairs):
            return pairs.k

    assert isinstance(Mine(), PairEstimator)
    assert not isinstance(object(), PairEstimator)


@pytest.mark.parametrize("same", [True, False])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_products_of_every_pair(same, dtype, monkeypatch):
    monkeypatch.setattr(_pairs, "_BLOCK_ROWS", 3)  # several blocks, the last one short
    monkeypatch.setattr(_pairs, "_TILE_ROWS", 4)
    x1, x2 = shifted(7, 5, dtype=dtype), None if same else shifted(6, 5, seed=1, dtype=dtype)
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


@pytest.mark.parametrize("rows", [1, 3, 4, 256])
@pytest.mark.parametrize("same", [True, False])
def test_against_a_loop_whatever_the_tiles(rows, same, monkeypatch):
    monkeypatch.setattr(_pairs, "_TILE_ROWS", rows)
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
