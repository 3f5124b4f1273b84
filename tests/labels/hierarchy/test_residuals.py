"""The time integrals of the hierarchy against quadrature, and their unit of time against gradient flow."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from torch import Tensor

import ntkit
from ntkit._src.dynamics import flow_filter
from ntkit._src.labels.hierarchy._residuals import Residuals, check_time, double_integral
from ntkit.errors import InputError, InputTypeError, SingularKernelError


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


@pytest.mark.parametrize("t", [1e-9, 1e-3, 0.5, 1.0, 3.0, 1e3, math.inf])
def test_time_integrals(t: float) -> None:
    """Both integrals to twelve digits over twelve decades, against panels of Gauss-Legendre quadrature."""
    d = torch.logspace(-6, 6, 25, dtype=torch.float64)
    nodes, weights = (torch.from_numpy(a) for a in np.polynomial.legendre.leggauss(30))
    end = min(t, 1e9)
    edges = torch.cat(
        [
            torch.zeros(1, dtype=torch.float64),
            torch.logspace(-11, math.log10(end), 90, dtype=torch.float64).clamp(max=end),
        ]
    )
    s = (edges[:-1, None] + edges.diff()[:, None] * (nodes + 1) / 2).flatten()
    ds = (edges.diff()[:, None] * weights / 2).flatten()
    single = torch.exp(-d[:, None] * s) @ ds
    torch.testing.assert_close(flow_filter(d, t), single, rtol=1e-11, atol=0)
    # The inner integral in the order that has only positive terms: dr e^(-r d2) int_r^t e^(-s d1) ds.
    double = torch.stack([torch.exp(-d[:, None] * s) @ (ds * _from(a, s, t)) for a in d])
    torch.testing.assert_close(double_integral(d[:, None], d[None, :], t), double, rtol=1e-10, atol=0)


def _from(a: Tensor, s: Tensor, t: float) -> Tensor:
    """int_s^t e^(-a r) dr."""
    if math.isinf(t):
        return torch.exp(-a * s) / a
    return torch.exp(-a * s) * -torch.expm1(-a * (t - s)) / a


def test_weights_have_a_low_rank() -> None:
    """The pairs of vectors are few, and reproduce y_k y_l / (d_k (d_k + d_l)) to rounding over ten decades of eigenvalues."""
    n = 60
    q = torch.linalg.qr(draw(n, n))[0]
    d = torch.logspace(-6, 4, n, dtype=torch.float64)
    residuals = Residuals(d, q, draw(n, seed=1))
    u, v = residuals.second(math.inf)
    assert len(u) < 40
    expected = residuals.y[:, None] * residuals.y / (d[:, None] * (d[:, None] + d))
    found = q.T @ u.T @ v @ q
    assert (found - expected).abs().max() < 1e-11 * expected.abs().max()


def test_rank_is_relative_to_the_largest_singular_value() -> None:
    """One row has one pair of vectors; a second target too small to matter adds none."""
    one = torch.ones(1, 1, dtype=torch.float64)
    u, v = Residuals(3 * one[0], one, 2 * one[0]).second(math.inf)
    torch.testing.assert_close(u.T @ v, 2 * 2 / (3 * (3 + 3)) * one)
    d, identity = torch.tensor([1.0, 2.0], dtype=torch.float64), torch.eye(2, dtype=torch.float64)
    for size, count in ((1.0, 2), (1e-12, 1)):
        u, _ = Residuals(d, identity, torch.tensor([1.0, size], dtype=torch.float64)).second(math.inf)
        assert len(u) == count


@pytest.mark.parametrize("t", [0.0, 0.03, 0.5, 40.0, math.inf])
def test_time_is_that_of_gradient_flow(t: float) -> None:
    """H u is what ``ntkit.GradientFlow`` predicts at t, and d/dt of the second weights is (y - h_t) u^T."""
    gram, y = draw(5, 5), draw(5, seed=1)
    gram = gram @ gram.T
    residuals = Residuals.of(gram, y, 0.0)
    flow = ntkit.GradientFlow("precomputed").fit(gram, y)
    torch.testing.assert_close(gram @ residuals.first(t), flow.predict(gram, t), rtol=1e-10, atol=1e-10)
    if 0 < t < 1:
        later, sooner = (torch.einsum("qi,qj->ij", *residuals.second(t + step)) for step in (1e-6, -1e-6))
        expected = torch.outer(y - flow.predict(gram, t), residuals.first(t))
        torch.testing.assert_close((later - sooner) / 2e-6, expected, rtol=1e-6, atol=1e-6)


def test_singular_and_ridge() -> None:
    x = draw(4, 2)
    with pytest.raises(SingularKernelError, match="Remove repeated inputs"):
        Residuals.of(x @ x.T, draw(4), 0.0)
    values = Residuals.of(x @ x.T, draw(4), 0.5).values
    torch.testing.assert_close(values, torch.linalg.eigvalsh(x @ x.T) + 0.5 * x.square().sum() / 4)


@pytest.mark.parametrize("t", [-1e-9, math.nan, True, "1"])
def test_no_time(t: object) -> None:
    with pytest.raises((InputError, InputTypeError), match="a time other than infinity must be"):
        check_time(t)  # type: ignore[arg-type]
