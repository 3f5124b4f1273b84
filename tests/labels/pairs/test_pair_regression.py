"""The streamed least squares, where features depend on one another and where they do not."""

from __future__ import annotations

import threading

import pytest
import torch
from sklearn.datasets import load_digits
from tests.labels.pairs.oracles import base, data

import ntkit
from ntkit._src.common._threads import on_threads
from ntkit._src.labels import Pairs
from ntkit._src.labels.pairs import _pair_regression as module
from ntkit._src.labels.pairs._pair_regression import PairRegression, Triangle


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("heights", [[40], [1, 2, 3, 30, 4], [9000, 20_000]])
def test_triangle(heights):
    blocks = [normal(5, height, seed=height) for height in heights]
    triangle = Triangle(5)
    for block in blocks:
        triangle.add(block.clone())
    whole = torch.cat(blocks, 1)
    torch.testing.assert_close(triangle.value.T @ triangle.value, whole @ whole.T, rtol=1e-12, atol=1e-9)
    assert torch.equal(triangle.value, triangle.value.triu())


def test_tiles_do_not_matter(monkeypatch):
    x, y = data(30, 3)
    whole = ntkit.LabelAware(base(), pairs="fjlt-v2").fit(x, y)
    monkeypatch.setattr(module, "_TILE_ENTRIES", 100)
    monkeypatch.setattr(module, "_BLOCK_ROWS", 7)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    tiled = ntkit.LabelAware(base(), pairs="fjlt-v2").fit(x, y)
    torch.testing.assert_close(tiled(x[:5], x), whole(x[:5], x), rtol=1e-9, atol=1e-9)


def test_threads(monkeypatch):
    """They compute without gradients, in order, and start no further threads."""
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    own = threading.get_ident()

    def inner(item):
        return threading.get_ident()

    def outer(item):
        assert not torch.is_grad_enabled()
        return item, threading.get_ident(), on_threads(inner, [1, 2])

    found = on_threads(outer, range(5))
    assert [item for item, _, _ in found] == list(range(5))
    for _, mine, theirs in found:
        assert mine != own and theirs == [mine, mine]
    assert on_threads(outer, [7])[0][1] == own


@pytest.mark.parametrize("components", [False, True])
def test_dependent_features(components):
    """Unit vectors with the inner product as base: kernel = cosine = inner, norms = 1, and the distance is 2 - 2 cosine."""
    x, y = data(25, 2)
    x = x / x.norm(dim=1, keepdim=True)
    labels = (2.0 * (y == y.max()) - 1)[:, None].double()
    pairs = Pairs(x, None, x @ x.T)
    estimator = PairRegression(components).fit(pairs, labels)
    assert estimator.rank <= len(estimator.features.names) - 4
    found = estimator(pairs)
    columns = [torch.ones_like(found), *estimator.features.of(pairs)((slice(25), slice(25)))]
    design = torch.stack([column.flatten() for column in columns], 1)
    target = (labels @ labels.T).flatten()
    solution = torch.linalg.lstsq(design, target, driver="gelsd", rcond=1e-11).solution
    torch.testing.assert_close(found.flatten(), design @ solution, rtol=0, atol=1e-7)
    assert float(estimator.coefficients.abs().max()) < 1e4


def test_duplicates_and_few_points():
    """Fewer pairs than features: the regression reproduces the targets, as it can."""
    x = normal(2, 6)
    labels = torch.tensor([[1.0], [-1.0]], dtype=torch.float64)
    pairs = Pairs(x, None, base()(x))
    torch.testing.assert_close(PairRegression(False).fit(pairs, labels)(pairs), labels @ labels.T, rtol=0, atol=1e-8)
    same = x[:1].repeat(4, 1)
    pairs = Pairs(same, None, base()(same))
    mixed = torch.tensor([[1.0], [1.0], [1.0], [-1.0]], dtype=torch.float64)
    estimator = PairRegression(True).fit(pairs, mixed)
    assert estimator.rank == 0
    torch.testing.assert_close(estimator(pairs), torch.full((4, 4), 0.25, dtype=torch.float64), rtol=1e-12, atol=0)


@pytest.mark.parametrize("pairs", ["fjlt-v1", "fjlt-v2"])
def test_single_precision_on_images(pairs):
    images, digits = (torch.from_numpy(array[:300]) for array in load_digits(return_X_y=True))
    parts = [
        ntkit.LabelAware(base(64), pairs=pairs).fit(x, digits).label_part(x).double() for x in (images, images.float())
    ]
    assert float((parts[1] - parts[0]).norm() / parts[0].norm()) < 1e-4
