"""The streamed least squares, where features depend on one another and where they do not."""

from __future__ import annotations

import itertools
import threading

import pytest
import scipy.linalg
import torch
from sklearn.datasets import load_digits
from tests.labels.pairs.oracles import base, data, targets

import ntkit
from ntkit._src.common import on_threads
from ntkit._src.labels import Pairs
from ntkit._src.labels.pairs import _pair_regression as module
from ntkit._src.labels.pairs._pair_regression import PairRegression, Sketch, sketch_size, triangle_of, walsh_hadamard
from ntkit.errors import InputError


def normal(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("heights", [[40], [1, 2, 3, 30, 4], [9000, 20_000]])
def test_triangle(heights):
    blocks = [normal(5, height, seed=height) for height in heights]
    triangle = triangle_of(5, (block.clone() for block in blocks))
    whole = torch.cat(blocks, 1)
    torch.testing.assert_close(triangle.T @ triangle, whole @ whole.T, rtol=1e-12, atol=1e-9)
    assert torch.equal(triangle, triangle.triu())


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


def seeded(seed):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("length", [1, 2, 8, 64])
def test_walsh_hadamard(length):
    x = torch.randn(3, 2, length, generator=seeded(0), dtype=torch.float64)
    matrix = torch.from_numpy(scipy.linalg.hadamard(length)).double() / length**0.5
    torch.testing.assert_close(walsh_hadamard(x), x @ matrix, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(walsh_hadamard(walsh_hadamard(x)), x, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("length", [0, 3, 12])
def test_walsh_hadamard_needs_a_power_of_two(length):
    with pytest.raises(InputError, match="power of two"):
        walsh_hadamard(torch.ones(2, length))


def test_norms_are_kept_on_average():
    """Even of a matrix with one row that outweighs the others, and of blocks of any length."""
    a = torch.randn(2, 700, generator=seeded(0), dtype=torch.float64)
    a[:, 3] *= 100
    squares = []
    for seed in range(200):
        sketch = Sketch(30, 2, total=700, generator=seeded(seed))
        for block in a.split([300, 1, 399], dim=1):
            sketch.add(block)
        squares.append(sketch.value.T @ sketch.value)
    found, exact = torch.stack(squares), a @ a.T
    error = found.std(0) / 200**0.5
    assert bool(((found.mean(0) - exact).abs() < 4 * error).all())
    assert float((error / exact.abs()).max()) < 0.1


def test_size():
    assert sketch_size(12, 0.1) == 2982
    assert sketch_size(2, 1.0) == 3


@pytest.mark.parametrize("classes", [2, 3])
def test_sketch_approaches_the_exact_regression(classes):
    x, y = data(40, classes)
    exact = ntkit.LabelAware(base(), pairs="fjlt-v1").fit(x, y)
    z = exact.label_part(x) / exact.weight
    residual = float((torch.from_numpy(targets(y)) - z).norm())

    def error(eps):
        """The distance to the exact fit over the residual, which the sketch keeps to 1 + eps."""
        parts = []
        for seed in range(5):
            sketched = ntkit.LabelAware(base(), pairs="fjlt-v1", solver="fjlt", eps=eps, generator=seeded(seed)).fit(
                x, y
            )
            parts.append(float((sketched.label_part(x) / sketched.weight - z).norm() / residual) ** 2)
        return (sum(parts) / len(parts)) ** 0.5

    errors = [error(eps) for eps in (0.4, 0.2, 0.1)]
    for coarse, fine in itertools.pairwise(errors):
        assert 0.3 < fine / coarse < 0.75  # halving eps halves the error
    assert errors[-1] < 0.1  # sqrt(p/k) is eps / sqrt(log p)


def test_sketch_is_reproducible():
    x, y = data(30, 2)
    first, second, third = (
        ntkit.LabelAware(base(), pairs="fjlt-v2", solver="fjlt", eps=0.3, generator=seeded(seed)).fit(x, y)(x)
        for seed in (1, 1, 2)
    )
    assert torch.equal(first, second) and not torch.equal(first, third)
