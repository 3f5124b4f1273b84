"""The eigendecomposition of Gram matrices: memory, rounding, indefiniteness."""

from __future__ import annotations

import pytest
import torch
from tests.cases import normal
from torch import Tensor

from ntkit._src.solvers import _eigh, decompose
from ntkit.errors import InputError, SingularKernelError


def _gram(n: int, rank: int, dtype: torch.dtype = torch.float64) -> Tensor:
    factor = normal(n, rank, seed=n)
    return (factor @ factor.T).to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("n", [60, 1030])
def test_equals_torch_and_is_orthogonal(dtype: torch.dtype, n: int) -> None:
    gram = _gram(n, 2 * n, dtype)
    spectrum = decompose(gram)
    eps = torch.finfo(dtype).eps
    assert spectrum.values.dtype == spectrum.vectors.dtype == dtype
    largest = float(spectrum.values[-1])
    torch.testing.assert_close(spectrum.values, torch.linalg.eigvalsh(gram), rtol=0, atol=4 * n**0.5 * eps * largest)
    eye = spectrum.vectors.T @ spectrum.vectors - torch.eye(n, dtype=dtype)
    assert float(eye.abs().max()) < 60 * eps
    rebuilt = (spectrum.vectors * spectrum.values) @ spectrum.vectors.T
    torch.testing.assert_close(rebuilt, gram, rtol=0, atol=4 * n**0.5 * eps * largest)
    assert spectrum.scale == pytest.approx(float(gram.trace()) / n, rel=1e-5)
    assert spectrum.rank == n
    assert f"all {n}" in spectrum.status


def test_overwrites_only_when_told() -> None:
    gram = _gram(1030, 1100)
    before, place = gram.clone(), gram.data_ptr()
    assert decompose(gram).vectors.data_ptr() != place
    torch.testing.assert_close(gram, before, rtol=0, atol=0)
    strided = torch.nn.functional.pad(before, (0, 1))[:, :1030]
    torch.testing.assert_close(decompose(strided, overwrite=True).values, decompose(before).values)
    torch.testing.assert_close(strided, before, rtol=0, atol=0)  # not contiguous, so copied
    assert decompose(gram, overwrite=True).vectors.data_ptr() == place


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("n", "rank"), [(50, 3), (300, 10), (300, 290)])
def test_rank_is_told_from_rounding(n: int, rank: int, dtype: torch.dtype) -> None:
    spectrum = decompose(_gram(n, rank, dtype))
    assert spectrum.rank == rank
    assert f"{n - rank} of {n} eigenvalues are rounding" in spectrum.status
    assert int((spectrum.clean == 0).sum()) == n - rank
    assert (spectrum.shifted(0.0) >= 0).all()


def test_indefinite_matrix_needs_a_ridge() -> None:
    spectrum = decompose(torch.diag(torch.tensor([3.0, 2.0, -1.0])))
    with pytest.raises(SingularKernelError, match=r"ridge above 7.5e-01"):
        spectrum.shifted(0.5)
    torch.testing.assert_close(spectrum.shifted(1.0), torch.tensor([-1.0, 2.0, 3.0]) + 4 / 3)


def test_bad_input_is_explained() -> None:
    with pytest.raises(SingularKernelError, match="inputs zero"):
        decompose(torch.zeros(3, 3))
    with pytest.raises(InputError, match="symmetric"):
        decompose(torch.tensor([[1.0, 0.5], [0.0, 1.0]]))
    large = torch.eye(1200)
    large[1100, 3] = 1.0  # in another block than its mirror image
    with pytest.raises(InputError, match="symmetric"):
        decompose(large)
    large[1100, 3] = float("nan")
    with pytest.raises(InputError, match="NaN"):
        decompose(large)


def test_tolerance_is_rounding_or_what_entries_rounded_at_random_explain() -> None:
    """Twice the most negative eigenvalue, up to sqrt(n) times the rounding of the largest; beyond, the matrix is indefinite."""
    rounding = 10 * torch.finfo(torch.float64).eps
    for lowest, expected in ((0.0, 1.0), (-0.4, 1.0), (-0.9, 1.8), (-1.99, 3.98), (-2.01, 1.0), (-2.9, 1.0)):
        values = torch.tensor([lowest * rounding, 0.5, 0.5, 1.0], dtype=torch.float64)  # sqrt(n) = 2
        assert _eigh._tolerance(values) == pytest.approx(expected * rounding, rel=1e-12)


def test_eigenvalues_at_the_tolerance_are_rounding() -> None:
    values = torch.tensor([0.0, 0.5, 0.75, 2.0], dtype=torch.float64)
    spectrum = _eigh.Spectrum(values, torch.eye(4, dtype=torch.float64), 1.0, tolerance=0.5)
    assert spectrum.rank == 2
