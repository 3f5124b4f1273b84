"""The factorisations in place against torch's, and what they leave of the matrix."""

from __future__ import annotations

import pytest
import torch
from tests.cases import normal

from ntkit._src.solvers import _lapack


@pytest.fixture(params=[1, 10**9], ids=["in place", "torch"], autouse=True)
def size(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_lapack, "_LARGE", request.param)


def matrix(n: int, dtype: torch.dtype, definite: bool = True) -> torch.Tensor:
    x = normal(n, n)
    return (x @ x.T if definite else x + x.T).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_cholesky(dtype: torch.dtype) -> None:
    a = matrix(7, dtype)
    before = a.clone()
    lower, exists = _lapack.cholesky(a, 0.5)
    assert exists and torch.equal(a, before)
    assert torch.equal(lower, lower.tril())
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(lower @ lower.T, a + 0.5 * torch.eye(7, dtype=dtype), rtol=tolerance, atol=tolerance)


def test_no_cholesky() -> None:
    a = matrix(5, torch.float64, definite=False)
    assert not _lapack.cholesky(a, 0.0)[1]
    assert _lapack.cholesky(a, 1 - float(torch.linalg.eigvalsh(a)[0]))[1]


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
@pytest.mark.parametrize("overwrite", [True, False])
def test_eigh(dtype: torch.dtype, overwrite: bool) -> None:
    a = matrix(6, dtype, definite=False)
    given = a.clone()
    values, vectors = _lapack.eigh(given, overwrite)
    assert overwrite or torch.equal(given, a)
    tolerance = 1e-12 if dtype == torch.float64 else 1e-4
    torch.testing.assert_close(values, torch.linalg.eigvalsh(a), rtol=tolerance, atol=tolerance)
    torch.testing.assert_close(a @ vectors, vectors * values, rtol=tolerance, atol=tolerance)
