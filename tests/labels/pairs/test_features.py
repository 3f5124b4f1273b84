"""Pair features and their products against one pair at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.cases import normal
from tests.labels.pairs.oracles import vector_features

import ntkit
from ntkit._src.labels.pairs._features import fit_features, geometry, tiles
from ntkit._src.labels.pairs._pairs import l1_distances, pair_products
from ntkit.labels import Pairs


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize(("n1", "n2", "d"), [(5, 7, 3), (9, 4, 80), (3, 5, 300_000), (1, 1, 1), (300, 200, 2000)])
def test_l1_distances(n1, n2, d, dtype):
    x1, x2 = normal(n1, d).to(dtype)[: n1 if d < 1000 else 3], normal(n2, d, seed=1).to(dtype)
    expected = torch.stack([(row - x2).double().abs().sum(1) for row in x1])
    rtol = 1e-13 if dtype == torch.float64 else 1e-6
    torch.testing.assert_close(l1_distances(x1, x2).double(), expected, rtol=rtol, atol=0)


@pytest.mark.parametrize(("n", "d"), [(6, 3), (300, 2000), (1, 70)])
def test_symmetric_products(n, d):
    """More rows than a tile has: symmetric to the bit, and what two batches give."""
    x = normal(n, d)
    own, cross = pair_products(x), pair_products(x, x.clone())
    for name in ("inner", "l1"):
        matrix = getattr(own, name)
        assert torch.equal(matrix, matrix.T)
        torch.testing.assert_close(matrix, getattr(cross, name), rtol=1e-12, atol=1e-10)
    assert bool((own.l1.diagonal() == 0).all())


CASES = {
    "normal": normal(6, 5),
    "positive": normal(6, 5).abs() + 3,
    "far from zero": normal(6, 5) + 1e4,
    "tiny": 1e-9 * normal(6, 5),
    "one coordinate": normal(6, 1),
    "zero and constant vectors": torch.cat(
        [normal(3, 5), torch.zeros(1, 5).double(), 0.1 + torch.zeros(2, 5).double()]
    ),
    "parallel": torch.cat([normal(2, 5), 2 * normal(2, 5), -normal(2, 5) / 3]),
}


@pytest.mark.parametrize("case", CASES)
def test_features(case):
    x = CASES[case]
    own = fit_features(x, components=False)
    points = x.numpy()
    mean_square = np.mean([[np.sum((a - b) ** 2) for b in points] for a in points])
    assert own.mean_square == pytest.approx(mean_square, rel=1e-10)
    expected = np.array([[vector_features(a, b, mean_square) for b in points] for a in points])
    for products in (pair_products(x), pair_products(x, x.clone())):
        found = torch.stack(geometry(products, own.mean_square), -1).numpy()
        for index in range(9):
            scale = np.abs(expected[..., index]).max() if index in (1, 2, 3, 4) else 1.0
            # Far from zero all vectors are nearly parallel: angles are square roots of what is left of the cosine.
            rounding = 3e-7 if case == "far from zero" and index in (5, 6) else 3e-12
            np.testing.assert_allclose(found[..., index], expected[..., index], rtol=0, atol=rounding * scale)


def test_repeated_inputs_have_no_angle():
    x = normal(4, 3000).float() + 0.5
    cosine, _, _, _, l1, angle, sine, _, _ = geometry(pair_products(x, x.clone()), 1.0)
    for feature, value in ((cosine, 1.0), (angle, 0.0), (sine, 0.0), (l1, 0.0)):
        assert bool((feature.diagonal() == value).all())


@pytest.mark.parametrize(("n", "d", "kept"), [(30, 12, 5), (200, 100, 5), (20, 3, 3), (3, 40, 3)])
def test_principal_components(n, d, kept):
    x = normal(n, d) * torch.linspace(2, 0.5, d) + 3
    features = fit_features(x, components=True)
    left, values, _ = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    assert features.axes.shape == (d, kept)
    projected = (x - features.center) @ features.axes
    torch.testing.assert_close(projected.abs(), (left * values)[:, :kept].abs(), rtol=1e-8, atol=1e-8)
    assert bool((features.axes.gather(0, features.axes.abs().argmax(0, keepdim=True)) > 0).all())
    again = fit_features(x[torch.randperm(n, generator=torch.Generator().manual_seed(0))], components=True)
    torch.testing.assert_close(
        again.axes[:, : min(kept, n - 1)], features.axes[:, : min(kept, n - 1)], rtol=1e-7, atol=1e-8
    )


@pytest.mark.parametrize("components", [False, True])
def test_tiles_are_parts_of_the_whole(components):
    x, z = normal(11, 6), normal(7, 6, seed=1)
    features = fit_features(x, components)
    for pairs in (Pairs(x, None, x @ x.T), Pairs(x, z, x @ z.T)):
        (everything,) = tiles(pairs, 10**6)
        whole = features.of(pairs)(everything)
        seen = torch.zeros_like(pairs.k)
        for tile in tiles(pairs, 3 * pairs.k.shape[1]):
            seen[tile] += 1
            for part, values in zip(features.of(pairs)(tile), whole, strict=True):
                torch.testing.assert_close(part, values[tile], rtol=1e-9, atol=1e-9)
        assert float(seen.max()) == 1
        assert bool(((seen + seen.T) > 0).all()) if pairs.x2 is None else bool((seen == 1).all())
        assert len(whole) == len(features.names)


def test_parts_of_pairs_share_their_products():
    x = normal(10, 6)
    pairs = Pairs(x, None, x @ x.T)
    rows, columns = torch.tensor([1, 4, 7]), torch.tensor([0, 2])
    for part, own in (
        (pairs.take(rows), Pairs(x[rows], None, (x @ x.T)[rows][:, rows])),
        (pairs.take(rows, columns), Pairs(x[rows], x[columns], (x @ x.T)[rows][:, columns])),
    ):
        torch.testing.assert_close(part.k, own.k)
        assert torch.equal(part.x1, own.x1) and (part.x2 is None) == (own.x2 is None)
        for mine, anew in zip(geometry(part.products, 1.0), geometry(own.products, 1.0), strict=True):
            torch.testing.assert_close(mine, anew, rtol=1e-10, atol=1e-10)


def test_kernel_of_components_is_that_of_the_two_layer_network():
    x = normal(9, 4) * torch.linspace(2, 0.5, 4)
    features = fit_features(x, components=True)
    (tile,) = tiles(pairs := Pairs(x, None, x @ x.T), 10**6)
    found = dict(zip(features.names, features.of(pairs)(tile), strict=True))
    assert len(found) == 20
    net = torch.nn.Sequential(torch.nn.Linear(4, 8, bias=False), torch.nn.ReLU(), torch.nn.Linear(8, 1, bias=False))
    exact = 4 * ntkit.infinite_width(net).ntk((x - features.center) @ features.axes) / 2
    torch.testing.assert_close(found["kernel of components"], exact, rtol=1e-9, atol=1e-9)
