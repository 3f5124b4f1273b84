from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.kernels._infinite_width_kernel import gain, with_gains

NET = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (2**0.5, 0.0)),
        ({"w_std": 1.1, "b_std": torch.tensor(0.3, dtype=torch.float64)}, (1.1, 0.3)),
        ({"init": "torch"}, (0.0, 0.0)),
    ],
)
def test_gains(given: dict[str, object], expected: tuple[float, float]) -> None:
    kernel = ntkit.infinite_width(NET, **given).ntk  # type: ignore[arg-type]
    assert (gain(kernel, "w_std"), gain(kernel, "b_std")) == pytest.approx(expected)


def test_other_kernels_have_none() -> None:
    assert gain(2.0 * ntkit.infinite_width(NET).ntk, "w_std") == 0.0


@pytest.mark.parametrize("which", ["ntk", "nngp"])
def test_other_gains_of_the_same_module(which: str) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    limit, other = ntkit.infinite_width(NET), ntkit.infinite_width(NET, w_std=0.9, b_std=0.2)
    found = with_gains(getattr(limit, which), 0.9, 0.2)
    assert torch.equal(found(x), getattr(other, which)(x))
    assert (gain(found, "w_std"), gain(found, "b_std")) == (0.9, 0.2)
