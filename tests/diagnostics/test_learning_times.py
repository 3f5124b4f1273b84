from __future__ import annotations

import math

import pytest
import torch
from tests.cases import mlp

import ntkit
from ntkit.diagnostics import learning_times
from ntkit.errors import InputError, InputTypeError, MemoryLimitError

NTK = ntkit.infinite_width(mlp(3, 8, 1)).ntk


def problem(n=12, outputs=None):
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, 3, generator=generator, dtype=torch.float64)
    return x, torch.randn(*((n,) if outputs is None else (n, outputs)), generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("outputs", [None, 1, 3])
def test_what_is_left_is_the_residual_of_gradient_flow(outputs):
    x, y = problem(outputs=outputs)
    found = learning_times(NTK, x, y)
    times = [0.0, 0.1, 1.0, 30.0]
    residual = y - ntkit.GradientFlow(NTK).fit(x, y).predict(t=times)
    expected = residual.flatten(1).square().sum(1) / y.square().sum()
    assert torch.allclose(found.left(times), expected, atol=1e-12)
    assert found.left(0.1) == pytest.approx(float(expected[1]), abs=1e-12)
    assert found.targets.shape == y.shape and float(found.shares.sum()) == pytest.approx(1.0)
    assert torch.allclose(found.vectors @ torch.diag(1 / found.times) @ found.vectors.T, NTK(x), atol=1e-10)
    assert (found.times.diff() >= 0).all()


def test_a_gram_matrix_serves_as_well():
    x, y = problem()
    assert torch.allclose(learning_times(NTK(x), None, y).times, learning_times(NTK, x, y).times)


def test_directions_without_eigenvalue_are_never_learnt():
    v = torch.tensor([[1.0, 1.0], [1.0, 1.0]], dtype=torch.float64)
    found = learning_times(v, None, torch.tensor([1.0, -1.0], dtype=torch.float64))
    assert found.times.tolist() == [0.5, math.inf]
    assert found.left([5.0, math.inf]).tolist() == pytest.approx([1.0, 1.0])


@pytest.mark.parametrize(
    ("kernel", "x", "y", "error", "message"),
    [
        (NTK, None, torch.ones(2), InputTypeError, "x must be the training points"),
        (torch.eye(2), torch.ones(2, 3), torch.ones(2), InputError, "x must be None"),
        ("ntk", None, torch.ones(2), InputTypeError, "kernel must be"),
        (torch.eye(2), None, torch.zeros(2), InputError, "y is zero"),
        (torch.eye(2), None, torch.ones(3), InputError, "y must have shape"),
        (torch.eye(2), None, torch.tensor([1.0, math.nan]), InputError, "NaN"),
        (NTK, torch.tensor([[1.0, math.inf, 0.0]]), torch.ones(1), InputError, "must be finite"),
    ],
)
def test_bad_input(kernel, x, y, error, message):
    with pytest.raises(error, match=message):
        learning_times(kernel, x, y)


def test_too_many_points_are_refused_before_the_work(free_memory):
    x, y = problem()
    free_memory(3 * 8 * 12**2 - 1)
    with pytest.raises(MemoryLimitError, match="n = 12 needs"):
        learning_times(NTK, x, y)
    with pytest.raises(MemoryLimitError, match="n = 12 needs"):
        learning_times(torch.eye(12, dtype=torch.float64), None, y)
