"""Correlations of matrices, and matrices with other eigenvectors."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch

from ntkit.errors import InputError, InputTypeError
from ntkit.features import correlation, randomize_eigenvectors


@pytest.mark.parametrize("shape", [(4, 4), (9,), (2, 5)])
@pytest.mark.parametrize("scale", [1.0, 1e-170, 1e170])
def test_correlations_are_numpys(shape: tuple[int, ...], scale: float) -> None:
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.rand(shape, generator=generator, dtype=torch.float64) for _ in range(2))
    u, v = a.flatten().numpy(), b.flatten().numpy()
    assert correlation(scale * a, b) == pytest.approx(u @ v / np.linalg.norm(u) / np.linalg.norm(v), rel=1e-12)
    assert correlation(scale * a, b, kind="pearson") == pytest.approx(np.corrcoef(u, v)[0, 1], rel=1e-12)


def test_no_direction_no_correlation() -> None:
    a, zero, constant = torch.eye(3), torch.zeros(3, 3), torch.full((3, 3), 0.1)
    assert math.isnan(correlation(a, zero)) and math.isnan(correlation(zero, zero))
    assert math.isnan(correlation(a, constant, kind="pearson")) and not math.isnan(correlation(a, constant))


def test_bad_matrices() -> None:
    a = torch.eye(3)
    with pytest.raises(InputError, match="the same shape"):
        correlation(a, torch.eye(2))
    with pytest.raises(InputTypeError, match="the same dtype"):
        correlation(a, a.double())
    with pytest.raises(InputTypeError, match="float32 or float64"):
        correlation(a, a.long())
    with pytest.raises(InputTypeError, match="float32 or float64"):
        correlation(a.half(), a.half())
    with pytest.raises(InputError, match="one of 'cosine', 'pearson'"):
        correlation(a, a, kind="spearman")  # type: ignore[arg-type]
    generator = torch.Generator()
    for matrix, message in (
        (torch.ones(2, 3), "shape"),
        (torch.triu(torch.ones(3, 3)), "symmetric"),
        (a / 0, "finite"),
    ):
        with pytest.raises(InputError, match=message):
            randomize_eigenvectors(matrix, generator)
    with pytest.raises(InputTypeError, match="generator"):
        randomize_eigenvectors(a, 0)  # type: ignore[arg-type]


def test_random_eigenvectors_keep_the_spectrum_and_follow_haars_measure() -> None:
    generator = torch.Generator().manual_seed(0)
    matrix = torch.diag(torch.tensor([5.0, 1.0, 0.0, -2.0], dtype=torch.float64))
    draws = torch.stack([randomize_eigenvectors(matrix, generator) for _ in range(4000)])
    torch.testing.assert_close(torch.linalg.eigvalsh(draws[0]), torch.tensor([-2.0, 0, 1, 5]).double())
    mean = draws.mean(0)  # tr / d on the diagonal, nothing else
    assert float((mean - torch.eye(4) * 1.0).abs().max()) < 5 * float(draws.std()) / 4000**0.5
