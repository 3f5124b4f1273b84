"""Pairs of inputs: their products, and parts that share those of the whole."""

from __future__ import annotations

import torch

from ntkit._src.labels.pairs import _pairs
from ntkit._src.labels.pairs._pairs import PairEstimator, Pairs
from ntkit._src.labels.pairs._products import pair_products


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64) + 3


def test_products_are_those_of_flattened_inputs_computed_once(monkeypatch):
    calls = []
    monkeypatch.setattr(_pairs, "pair_products", lambda *x: calls.append(x) or pair_products(*x))
    x1, x2 = normal(4, 2, 3), normal(3, 2, 3, seed=1)
    pairs = Pairs(x1, x2, normal(4, 3))
    assert torch.equal(pairs.products.l1, pair_products(x1.flatten(1), x2.flatten(1)).l1)
    assert pairs.products is pairs.products
    part = pairs.take(torch.tensor([2, 0]), torch.tensor([1]))
    assert part.products.l1.shape == (2, 1)
    assert len(calls) == 1


def test_parts_of_parts_and_of_two_batches():
    x1, x2, k = normal(5, 4), normal(6, 4, seed=1), normal(5, 6, seed=2)
    whole = Pairs(x1, x2, k)
    rows, columns = torch.tensor([4, 0, 3]), torch.tensor([1, 5])
    part = whole.take(rows, columns)
    assert torch.equal(part.x1, x1[rows]) and torch.equal(part.x2, x2[columns])
    again = part.take(torch.tensor([2]), torch.tensor([0]))
    assert torch.equal(again.k, k[3:4, 1:2])
    assert torch.equal(again.products.inner, whole.products.inner[3:4, 1:2])
    same = Pairs(x1, None, normal(5, 5)).take(rows, columns.clamp(max=4))
    assert torch.equal(same.x2, x1[columns.clamp(max=4)])  # the columns of one batch are its rows


def test_parts_share_the_products_of_the_whole():
    x, k = normal(6, 4), normal(6, 6, seed=2)
    whole = Pairs(x, None, k + k.T)
    rows, columns = torch.tensor([4, 0, 3]), torch.tensor([1, 5])
    for part, chosen in ((whole.take(rows), rows), (whole.take(rows, columns), columns)):
        assert torch.equal(part.k, whole.k[rows][:, chosen])
        assert torch.equal(part.products.inner, whole.products.inner[rows][:, chosen])
        assert torch.equal(part.products.l1, whole.products.l1[rows][:, chosen])
        assert torch.equal(part.products.columns.norm, whole.products.columns.norm[chosen])
        assert torch.equal(part.products.rows.spread, whole.products.rows.spread[rows])
    tile = whole.products.tile(slice(1, 3), slice(2, 6))
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
