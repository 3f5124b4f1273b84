"""The gains that adapters read from a kernel, tune, and give back to it."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from tests.cases import mlp, normal

import ntkit

NET = mlp(3, 8, 1)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, {"w_std": 2**0.5, "b_std": 0.0}),
        ({"w_std": 1.1, "b_std": torch.tensor(0.3, dtype=torch.float64)}, {"w_std": 1.1, "b_std": 0.3}),
        ({"init": "torch"}, {"w_std": None, "b_std": None}),
    ],
)
def test_gains(given: dict[str, object], expected: dict[str, float | None]) -> None:
    kernel = ntkit.as_sklearn_kernel(ntkit.infinite_width(NET, **given).ntk)  # type: ignore[arg-type]
    assert {name: getattr(kernel, name) for name in expected} == pytest.approx(expected)


def test_other_kernels_have_none() -> None:
    kernel = ntkit.as_sklearn_kernel(2.0 * ntkit.infinite_width(NET).ntk)
    assert kernel.w_std is None and kernel.theta.size == 0


@pytest.mark.parametrize("which", ["ntk", "nngp"])
def test_other_gains_of_the_same_module(which: str) -> None:
    x = normal(4, 3)
    limit, other = ntkit.infinite_width(NET, b_std=0.1), ntkit.infinite_width(NET, w_std=0.9, b_std=0.2)
    kernel = ntkit.as_sklearn_kernel(getattr(limit, which))
    found = kernel.clone_with_theta(np.log([0.2, 0.9]))  # in the order of the alphabet
    assert (found.w_std, found.b_std) == pytest.approx((0.9, 0.2))
    np.testing.assert_allclose(found(x.numpy()), getattr(other, which)(x).numpy(), rtol=1e-13)
    changed = limit.with_gains(0.9, 0.2)
    assert torch.equal(getattr(changed, which)(x), getattr(other, which)(x))
