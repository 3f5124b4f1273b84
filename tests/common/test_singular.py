"""Why a Gram matrix is singular: repeated rows, multiples of each other, too many."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ntkit
from ntkit._src.common import why_singular
from ntkit.errors import JitterWarning


def normal(*shape: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def limit(b_std: float) -> ntkit.results.InfiniteWidth:
    return ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1)), b_std=b_std)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_repeated_rows(dtype: torch.dtype) -> None:
    x = normal(8, 3)
    x[5], x[7] = x[2], x[2]
    found = why_singular(limit(0.2).ntk(x.to(dtype)))
    assert "the rows of 3 pairs are the same input to the kernel (rows 2 and 5, say)" in found
    assert "integer and boolean columns" in found and "multiples" not in found


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_collinear_rows_without_biases(dtype: torch.dtype) -> None:
    x = normal(8, 3)
    x[6] = 3 * x[1]
    found = why_singular(limit(0.0).ntk(x.to(dtype)))
    assert found.startswith("rows 1 and 6 are multiples of each other")
    assert "b_std=0.1" in found and "same input" not in found
    assert "multiples" not in why_singular(limit(0.3).ntk(x.to(dtype)))


def test_other_reasons() -> None:
    features = normal(9, 4)
    assert "more rows than the kernel can tell apart" in why_singular(features @ features.T)
    x = normal(4, 3)
    x[2] = 0
    assert "zero rows without biases" in why_singular(limit(0.0).ntk(x))


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_warning_says_why_and_advises_float64_only_in_float32(dtype: torch.dtype) -> None:
    x = (normal(30, 3) > 0).to(dtype)  # boolean columns: at most eight different rows
    with pytest.warns(JitterWarning, match="same input to the kernel") as caught:
        ntkit.solve(limit(0.1).ntk(x), torch.ones(30, dtype=dtype))
    assert ("float64" in str(caught[0].message)) == (dtype == torch.float32)
    if dtype == torch.float64:
        integers = torch.tensor([[1.0, 0, 0], [2.0, 0, 0], [3.0, 0, 0], [0.0, 1, 0]], dtype=dtype)
        with pytest.warns(JitterWarning, match="multiples of each other.*b_std=0.1"):
            ntkit.solve(limit(0.0).ntk(integers), torch.ones(4, dtype=dtype))
