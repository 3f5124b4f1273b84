"""Predictions of the early correlation against averages over random matrices and networks."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from ntkit import features
from ntkit._src.common import random_rotation
from ntkit.errors import InputError, InputTypeError
from ntkit_studies.methods import expected_derivatives, predict_alignment
from ntkit_studies.methods._predict_alignment import limit_moments, predict_from_moments, sampled_moments


def _traces(A: Tensor, B: Tensor, R: Tensor) -> Tensor:
    """P = C R C and Q = C R B R C with C = A^1/2, traces divided by the dimension."""
    d, AR = len(A), A @ R
    ARBR = AR @ B @ R
    return torch.stack([torch.trace(AR @ ARBR), torch.trace(AR @ AR), torch.trace(ARBR @ ARBR)]) / d


def test_traces_are_averages_over_haar_random_eigenvectors() -> None:
    d, generator = 200, torch.Generator().manual_seed(0)
    A = torch.diag(torch.rand(d, generator=generator, dtype=torch.float64) ** 3)
    basis = random_rotation(d, generator)
    # B shares some directions with A, so that mixed traces matter.
    B = 0.5 * torch.diag(torch.rand(d, generator=generator, dtype=torch.float64)) + A
    spectrum = torch.rand(d, generator=generator, dtype=torch.float64) ** 2 * 3
    r = tuple(float((spectrum**p).mean()) for p in range(1, 5))
    predicted = predict_from_moments(A, B, r)  # type: ignore[arg-type]
    total = torch.zeros(3, dtype=torch.float64)
    for _ in range(20):
        basis = random_rotation(d, generator)
        total += _traces(A, B, (basis * spectrum) @ basis.T) / 20
    for value, mean in zip((predicted.numerator, predicted.first, predicted.second), total.tolist(), strict=True):
        assert value == pytest.approx(mean, rel=0.03)
    assert predicted.rho == pytest.approx(float(total[0] / (total[1] * total[2]).sqrt()), rel=0.03)


def test_moments_of_wide_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    for width, d in ((300, 300), (600, 300), (150, 300)):
        limit = limit_moments(width / d)
        sampled = sampled_moments(width, d, 40, generator)
        # Relative standard deviations of a^2, a^4, a^6 and a^8, of which width * 40 were drawn.
        for exact, mean, spread in zip(limit, sampled, (1.4, 3.3, 6.7, 13.5), strict=True):
            assert mean == pytest.approx(exact, rel=3 * spread / (width * 40) ** 0.5 + 2 / d)
    assert limit_moments(1.0) == (1.0, 4.0, 25.0, 202.0)


def test_expected_derivatives_are_averages_over_networks() -> None:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(8, 4, generator=generator, dtype=torch.float64)
    y = torch.randn(8, generator=generator, dtype=torch.float64)
    k, draws = 6, 200_000
    P, Q = expected_derivatives(x, y, width=k)
    C, B = x.T @ torch.diag(y) @ x, x.T @ x
    W = torch.randn(draws, k, 4, generator=generator, dtype=torch.float64) / k**0.5
    a = torch.randn(draws, k, generator=generator, dtype=torch.float64)
    scaled = W * a[..., None]
    R = scaled.mT @ scaled
    mean_P, mean_Q = C @ R.mean(0) @ C, C @ (R @ B @ R).mean(0) @ C
    assert float((mean_P - P).norm() / P.norm()) < 0.05
    assert float((mean_Q - Q).norm() / Q.norm()) < 0.05


@pytest.mark.parametrize("alpha", [None, 1.0, 2.0])
def test_gaussian_data_at_moderate_size(alpha: float | None) -> None:
    n = 256
    generator = torch.Generator().manual_seed(0)
    basis = torch.eye(n, dtype=torch.float64) if alpha is None else random_rotation(n, generator)
    x = torch.randn(n, n, generator=generator, dtype=torch.float64)
    if alpha is not None:
        x = x / (1 + torch.arange(1, n + 1, dtype=torch.float64) ** alpha).sqrt() @ basis.T
    y = x[:, 0] * x[:, 1]
    predicted = predict_alignment(x, y)
    C, B = x.T @ torch.diag(y) @ x, x.T @ x
    observed = []
    for _ in range(10):
        W = torch.randn(n, n, generator=generator, dtype=torch.float64) / n**0.5
        a = torch.randn(n, generator=generator, dtype=torch.float64)
        R = (W.T * a**2) @ W
        observed.append(features.correlation(C @ R @ C, C @ R @ B @ R @ C))
    mean = sum(observed) / 10
    assert abs(predicted.rho - mean) < 0.06
    sampled = predict_alignment(x, y, moments="sampled", nets=10, generator=generator)
    assert abs(sampled.rho - mean) < 0.06
    assert predict_alignment(x, y, moments=sampled.moments) == sampled


def test_zero_labels_have_no_correlation() -> None:
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0))
    assert math.isnan(predict_alignment(x, torch.zeros(6)).rho)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda x, y: predict_alignment(x, y, moments="exact"),
            InputError,
            '"limit", "sampled" or four numbers',
        ),
        (lambda x, y: predict_alignment(x, y, moments="sampled"), InputTypeError, "generator"),
        (lambda x, y: predict_alignment(x, y, width=0), InputError, "at least 1"),
        (lambda x, y: predict_alignment(x, y, width=2.0), InputTypeError, "width"),
        (lambda x, y: predict_alignment(x, y[:3]), InputError, "one label for each row"),
        (lambda x, y: predict_alignment(x, y.double()), InputTypeError, "dtype and device of x"),
        (lambda x, y: predict_alignment(x[:, :, None], y), InputError, r"shape \(n, d\)"),
        (lambda x, y: predict_alignment(x, y / 0), InputError, "y must be finite"),
        (lambda x, y: expected_derivatives(x, y, width=0), InputError, "at least 1"),
        (
            lambda x, y: predict_alignment(x, y, "sampled", nets=0, generator=torch.Generator()),
            InputError,
            "nets must be",
        ),
    ],
)
def test_bad_arguments(call, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        call(torch.ones(5, 3), torch.ones(5))
