"""The ends of a Gram matrix's spectrum, on matrices of known eigenvalues."""

from __future__ import annotations

import pytest
import torch

from ntkit._src.labels import definiteness


def with_eigenvalues(*values: float) -> torch.Tensor:
    q = torch.linalg.qr(torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(0)).double())[0]
    return q * torch.tensor(values, dtype=torch.float64) @ q.T


@pytest.mark.parametrize("smallest", [-0.5, -1e-3, 0.2])
def test_smallest_and_largest_eigenvalue(smallest):
    found = definiteness(with_eigenvalues(1.0, smallest, 2.5))
    assert (found.smallest, found.largest) == pytest.approx((smallest, 2.5), abs=1e-12)
    assert found.negative == (smallest < 0)


def test_rounding_is_not_negative():
    assert definiteness(with_eigenvalues(1.0, -1e-16, -2e-3, -1.0)).negative == 2
    single = with_eigenvalues(1.0, -1e-7, -2e-3, -1.0).float()
    assert definiteness(single).negative == 2
    assert definiteness(single.double()).negative == 3
