"""Normalisations of rows of very different size."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit.native._runner import BeyondRange, Runner


@pytest.mark.parametrize("size", [1.0, 1e4, 1e9])
def test_rows_of_very_different_size(size: float) -> None:
    """K of H has lost log2(size) bits; beyond a limit the reference engine computes, which divides K itself."""
    x = torch.randn(6, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    y = size * torch.randn(4, 5, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    net = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net, b_std=0.3)
    for a, b in ((x, y), (torch.cat([x, y]), None)):
        found, exact = (limit.both(a, b, engine=engine) for engine in ("native", "reference"))
        for one, other in zip(found, exact, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    runner = limit._native(limit._tracer.program((5,))).runner()
    assert isinstance(runner, Runner)
    if size > 1e5:
        with pytest.raises(BeyondRange):
            runner.gram(x, y, True, True)
    else:
        runner.gram(x, y, True, True)
