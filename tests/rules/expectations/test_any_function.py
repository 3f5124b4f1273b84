"""Entries integrated one by one: which cells their error is measured in, functions that oscillate, undeclared kinks."""

from __future__ import annotations

import warnings

import pytest
import torch

from ntkit._src.program import AnyFunction, Cos, Sin
from ntkit._src.rules.expectations import dual, mean
from ntkit._src.rules.expectations._any_function import _deviations, _error, _mean_error, integrable
from ntkit._src.rules.expectations._limits import cell_bounds, cells
from ntkit.errors import QuadratureError, QuadratureWarning

SINE = AnyFunction(torch.sin, label="sine")
COSINE = AnyFunction(torch.cos, label="cosine")


@pytest.mark.parametrize("cell", [-3, 0, 2])
def test_deviations_lie_in_their_cell(cell):
    """Positions 0 and 1 are the ends: variances 16^cell and 16^(cell + 1)."""
    low, high = cell_bounds(cell)
    assert (low, high) == (16.0**cell, 16.0 ** (cell + 1))
    s = _deviations((low, high), torch.tensor([0.0, 0.5, 1.0], dtype=torch.float64))
    torch.testing.assert_close(s * s, torch.tensor([low, (low * high) ** 0.5, high], dtype=torch.float64))
    inside = torch.tensor([low, (low * high) ** 0.5, high * (1 - 1e-12)], dtype=torch.float64)
    assert cells(inside).tolist() == [cell] * 3


@pytest.mark.parametrize("q", [20.0, pytest.param(1000.0, marks=pytest.mark.slow)])
def test_waves_equal_their_closed_forms(q):
    """A sine by quadrature is that of the closed form: it was off by 6e-5 at q = 20, by 9e-2 at q = 1000."""
    rho = torch.tensor([1.0, 1 - 1e-6, 0.999, 0.9, 0.2, -0.97], dtype=torch.float64)
    q1 = torch.full_like(rho, q)
    q2 = q1 * torch.tensor([1.0, 1.0, 1.01, 0.7, 1.3, 1.0], dtype=torch.float64)
    k = rho * (q1 * q2).sqrt()
    for phi, closed in ((SINE, Sin()), (COSINE, Cos())):
        found, exact = dual(phi, k, q1, q2, tangent=True), dual(closed, k, q1, q2, tangent=True)
        for a, b in zip(found, exact, strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-11)


def test_tables_and_integrals_in_one_matrix():
    """Small variances from a table, large ones one by one, gradients through both."""
    q1 = torch.tensor([[0.4], [2.0], [30.0]], dtype=torch.float64, requires_grad=True)
    q2 = torch.tensor([[1.5, 40.0]], dtype=torch.float64, requires_grad=True)
    k = torch.tensor([[0.3, 1.0], [1.6, -2.0], [-4.0, 33.0]], dtype=torch.float64, requires_grad=True)
    sums = []
    for phi in (SINE, Sin()):
        value, slope = dual(phi, k, q1, q2, tangent=True)
        gradients = torch.autograd.grad((value + 0.3 * slope).sum(), (k, q1, q2))
        sums.append((value.detach(), slope.detach(), *gradients))
    for found, exact in zip(*sums, strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-8, atol=1e-10)
    alone = dual(SINE, k, q1, q2, tangent=False)
    torch.testing.assert_close(alone[0], sums[0][0])
    assert alone[1] is None


def test_means():
    q = torch.tensor([[0.5, 30.0], [900.0, 3.0]], dtype=torch.float64)
    torch.testing.assert_close(mean(COSINE, q), torch.exp(-q / 2), rtol=0, atol=1e-12)
    large = q[:, 1:] * torch.tensor([[1.0], [10.0]], dtype=torch.float64)
    torch.testing.assert_close(mean(COSINE, large), torch.exp(-large / 2), rtol=0, atol=1e-12)


def test_measured_errors():
    first = cell_bounds(0)
    assert _error(SINE, cell_bounds(1), cell_bounds(1), slopes=True) < 1e-12
    assert _mean_error(COSINE, cell_bounds(1)) < 1e-12
    rough = AnyFunction(lambda z: torch.sin(z) + 0.1 * (z - 0.7).abs(), label="kink")
    assert _error(rough, first, first, slopes=False) < 1e-10 < _error(rough, first, first, slopes=True)
    jump = AnyFunction(lambda z: torch.where(z > 0.71, torch.sin(z), 1 + z), label="jump")
    assert _mean_error(jump, first) > 1e-10
    growing = AnyFunction(lambda z: torch.exp(z * z / 10), label="growing")
    assert _error(growing, first, first, slopes=False) == _mean_error(growing, first) == float("inf")
    assert _error(growing, (0.5, 2.0), (0.5, 2.0), slopes=True) < 1e-12 and _mean_error(growing, (0.5, 2.0)) < 1e-12


def test_errors_are_those_of_the_variances_at_hand():
    """A kink at 12.3 is undeclared: variances of 1 do not reach it, though others of their cell would."""
    phi = AnyFunction(lambda z: torch.sin(5 * z) + 100 * (z - 12.3).relu(), label="far")
    one, ten = torch.ones(2, 1, dtype=torch.float64)
    found = dual(phi, one / 2, one, one, tangent=True)
    for which, name in enumerate(found):
        exact = dual(Sin(), 25 * one / 2, 25 * one, 25 * one, tangent=True)[which]
        torch.testing.assert_close(name, exact * 25**which, rtol=0, atol=1e-12)
    with pytest.raises(QuadratureError, match=r"far .*variances between 1 and 10, .*Near z = 12\.3 it is not smooth"):
        dual(phi, one, one, 10 * ten, tangent=True)
    with pytest.raises(QuadratureError, match=r"far .*variances between 1 and 10, .*Near z = 12\.3 it is not smooth"):
        dual(phi, one, 10 * ten, one, tangent=True)


def test_too_many_features_are_not_integrated():
    q = torch.tensor([1.0, 1e3, 1e5], dtype=torch.float64)
    assert integrable(SINE, q).tolist() == [True, True, False]
    with pytest.raises(ValueError, match="finite"):
        integrable(SINE, q * torch.inf)


FAR = 60.0


def _far_kink(z):
    """A kink at 1, which is declared, and a slope that changes at 60, which is not."""
    return torch.where(z > 1, torch.tanh(z - 1), (z - 1) ** 2 * torch.exp(-z * z)) + (z - FAR).relu()


def test_warning_names_the_variances_that_reach_the_kink():
    phi = AnyFunction(_far_kink, kinks=(1.0,), label="far")
    one = torch.tensor([2.0, 15.0], dtype=torch.float64)  # 15 standard deviations and more from the kink
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dual(phi, one / 2, one, one, tangent=False)
    large = torch.tensor([300.0], dtype=torch.float64)  # 3.5 standard deviations
    with pytest.warns(QuadratureWarning, match=r"far.*variances of 300,.*Near z = 60"):
        dual(phi, large / 2, large, large, tangent=False)
    # the cells of both variances count, in either order
    with pytest.warns(QuadratureWarning, match=r"far.*variances between 3 and 300,"):
        dual(phi, large / 40, large, large / 100, tangent=False)
    with pytest.warns(QuadratureWarning, match=r"far.*variances between 3 and 300,"):
        dual(phi, large / 50, large / 100, large, tangent=False)
