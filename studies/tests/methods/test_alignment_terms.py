"""Equation 5: mean and covariance of the early correlation's traces."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from ntkit.errors import InputError
from ntkit_studies.methods import alignment_terms, expected_derivatives, predicted_covariance


class Square(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return h.square()


def quadratic(d: int, width: int):
    """Make the paper's network f = a^T (W x)^2, a ~ N(0, 1), W_ij ~ N(0, 1 / k)."""

    def build(number: int) -> nn.Module:
        generator = torch.Generator().manual_seed(number)
        net = nn.Sequential(nn.Linear(d, width, bias=False), Square(), nn.Linear(width, 1, bias=False)).double()
        with torch.no_grad():
            net[0].weight.normal_(0, width**-0.5, generator=generator)
            net[2].weight.normal_(0, 1, generator=generator)
        return net

    return build


def data(n: int, d: int) -> tuple[Tensor, Tensor]:
    x = torch.randn(n, d, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return x, x[:, 0] * x[:, 1]


def test_terms_by_loops_over_networks() -> None:
    x, y = data(12, 4)
    nets, found = 7, alignment_terms(quadratic(4, 5), x, y, 7)
    P, Q = [], []
    for number in range(nets):
        net = quadratic(4, 5)(number)
        W, a = net[0].weight.detach(), net[2].weight.detach()[0]
        slopes = 2 * (x @ W.T) * a  # of f in h, shape (n, k)
        kappa = slopes @ slopes.T
        Y = torch.diag(y)
        P.append(x.T @ Y @ kappa @ Y @ x)
        Q.append(x.T @ Y @ kappa @ kappa @ Y @ x)
    total = sum(float((p * q).sum()) for p, q in zip(P, Q, strict=True)) / nets
    mean_p, mean_q = sum(P) / nets, sum(Q) / nets
    covariance = sum(float(((p - mean_p) * (q - mean_q)).sum()) for p, q in zip(P, Q, strict=True)) / (nets - 1)
    assert float(found.total[0]) == pytest.approx(total)
    assert float(found.covariance[0]) == pytest.approx(covariance)
    torch.testing.assert_close(found.total, found.mean + found.covariance)


def test_the_mean_term_is_that_of_the_expected_derivatives() -> None:
    x, y = data(20, 6)
    P, Q = expected_derivatives(x, y, width=30)
    found = alignment_terms(quadratic(6, 30), x, y, 250)
    exact = 64 * float((P * Q).sum())  # the factors 4 and 16 of the square's derivative
    assert float(found.mean[0]) == pytest.approx(exact, rel=0.1)  # 250 networks


def test_the_covariance_term_is_predicted_by_free_probability() -> None:
    d = width = 32
    x, y = data(64, d)
    found = alignment_terms(quadratic(d, width), x, y, 100)
    error = float(found.error[0] / found.total[0])
    assert float(found.share[0]) == pytest.approx(predicted_covariance(x, y, width), abs=3 * error + 2 / d)


def test_the_covariance_falls_with_the_width() -> None:
    x, y = data(20, 6)
    narrow, wide = (alignment_terms(quadratic(6, width), x, y, 40).share for width in (10, 300))
    assert bool((wide < narrow / 3).all()) and bool((wide > 0).all())


def test_bad_data() -> None:
    x, y = data(5, 3)
    with pytest.raises(InputError, match="shape"):
        alignment_terms(quadratic(3, 4), x, y[:, None], 3)
