from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal

from ntkit.diagnostics import two_layer_gram
from ntkit.errors import InputError


def dense(x):
    inner, norms = x @ x.T, x.norm(dim=1)
    cosine = (inner / (norms[:, None] * norms)).clamp(-1, 1)
    return inner * (math.pi - torch.arccos(cosine)) / (2 * math.pi)


@pytest.mark.parametrize("dim", [1, 2, 9])
def test_it_is_the_arc_cosine_kernel(dim):
    x = normal(7, dim)
    x[1], x[2] = -x[0], 3 * x[0]
    assert torch.allclose(two_layer_gram(x), dense(x), atol=1e-12)
    assert two_layer_gram(x.float()).dtype == torch.float32


def test_it_is_the_mean_over_neurons():
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    on = (torch.randn(40_000, 4, generator=generator, dtype=torch.float64) @ x.T > 0).double()
    sampled = (on.T @ on) / len(on) * (x @ x.T)
    # The indicators' mean has a standard error of at most 1 / (2 sqrt(40,000)).
    assert ((sampled - two_layer_gram(x)).abs() <= 4 * 0.0025 * (x @ x.T).abs() + 1e-12).all()


def test_bad_input():
    with pytest.raises(InputError, match="Write x.flatten"):
        two_layer_gram(torch.ones(2, 3, 4))
    with pytest.raises(InputError, match="finite"):
        two_layer_gram(torch.tensor([[math.nan]]))
