"""The fast Johnson-Lindenstrauss transform, and the regression that uses it."""

from __future__ import annotations

import itertools

import pytest
import scipy.linalg
import torch
from tests.labels.pairs.oracles import base, data, targets

import ntkit
from ntkit._src.labels.pairs._sketch import Sketch, sketch_size, walsh_hadamard
from ntkit.errors import InputError


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
