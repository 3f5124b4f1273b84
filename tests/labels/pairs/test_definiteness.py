"""What an indefinite Gram matrix needs, on matrices of known eigenvalues."""

from __future__ import annotations

import math

import pytest
import torch

from ntkit._src.labels import definiteness, shift_needed


def with_eigenvalues(*values: float) -> torch.Tensor:
    q = torch.linalg.qr(torch.randn(len(values), len(values), generator=torch.Generator().manual_seed(0)).double())[0]
    return q * torch.tensor(values, dtype=torch.float64) @ q.T


@pytest.mark.parametrize("smallest", [-0.5, -1e-3, 0.2])
def test_smallest_eigenvalue_changes_its_sign(smallest):
    gram = with_eigenvalues(smallest, 1.0, 2.5)
    found = definiteness(gram)
    assert found.smallest == pytest.approx(smallest, abs=1e-12)
    assert found.shift == pytest.approx(max(0.0, -2 * smallest), abs=1e-12)
    assert found.ridge == pytest.approx(found.shift / float(gram.trace() / 3))
    shifted = gram + found.shift * torch.eye(3, dtype=torch.float64)
    assert float(torch.linalg.eigvalsh(shifted)[0]) == pytest.approx(abs(smallest), abs=1e-10)


def test_no_trace():
    assert definiteness(with_eigenvalues(-1.0, 0.5, 0.25)).ridge == math.inf


@pytest.mark.parametrize(
    ("smallest", "ridge", "needed"),
    [(-0.05, 0.2, 0.0), (-0.04, 0.1, 0.0), (-0.06, 0.1, 0.12), (-0.05, 0.05, 0.1), (0.1, 0.0, 0.0), (-0.05, 0.0, 0.1)],
)
def test_shift_only_where_the_ridge_does_not_suffice(smallest, ridge, needed):
    gram = with_eigenvalues(smallest, 1.0, 2.05 - smallest)  # the ridge is relative to a mean diagonal of 1.0167
    assert shift_needed(gram, ridge) == pytest.approx(needed, abs=1e-10)
