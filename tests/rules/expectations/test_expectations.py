"""Closed forms against numerical integration, Price's theorem, limits and gradients."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import special

from ntkit._src.program import (
    GELU,
    Activation,
    Cos,
    Cosh,
    Erf,
    Exp,
    Expm1,
    Polynomial,
    Rectified,
    Sign,
    Sin,
    Sinh,
    Step,
)
from ntkit._src.rules.expectations import dual, dual_with_difference, mean

RHOS = (-1.0, -0.999999, -0.3, 0.0, 0.3, 0.999999, 1.0)
VARIANCES = ((1.0, 1.0), (0.01, 2.5), (3.0, 0.7), (7.0, 7.0))


def polar(f, q1, q2, rho, panels=28):
    """E[f(u) f(v)] by Gauss-Legendre in polar coordinates, split where u or v is zero: slow and independent."""
    x, w = np.polynomial.legendre.leggauss(24)
    psi = math.acos(rho)
    zeros = {math.pi / 2, math.pi / 2 + psi, 3 * math.pi / 2, (3 * math.pi / 2 + psi) % math.tau}
    edges = sorted(zeros | {0.0, math.pi, math.tau})
    radius = (np.arange(panels)[:, None] + (x + 1) / 2).ravel() * (14 / panels)
    weight = np.tile(w, panels) * (7 / panels) * radius * np.exp(-(radius**2) / 2)
    total = 0.0
    for low, high in itertools.pairwise(edges):
        for part in range(2):
            angle = low + (high - low) * (part + (x + 1) / 2) / 2
            u = math.sqrt(q1) * radius[:, None] * np.cos(angle)
            v = math.sqrt(q2) * radius[:, None] * np.cos(angle - psi)
            total += weight @ (f(u) * f(v)) @ (w * (high - low) / 4) / math.tau
    return total


def gelu_slope(z: NDArray[np.float64]) -> NDArray[np.float64]:
    return special.ndtr(z) + z * np.exp(-z * z / 2) / math.sqrt(math.tau)


CASES = {
    "relu": (Rectified(0.0, 1.0), lambda z: np.maximum(z, 0), lambda z: (z > 0) * 1.0),
    "leaky": (
        Rectified(0.2, 1.5),
        lambda z: np.where(z > 0, 1.5, 0.2) * z,
        lambda z: np.where(z > 0, 1.5, 0.2),
    ),
    "abs": (Rectified(-1.0, 1.0), np.abs, np.sign),
    "identity": (Rectified(1.0, 1.0), lambda z: z, np.ones_like),
    "erf": (Erf(), special.erf, lambda z: 2 / math.sqrt(math.pi) * np.exp(-z * z)),
    "gelu": (GELU(), lambda z: z * special.ndtr(z), gelu_slope),
    "sin": (Sin(), np.sin, np.cos),
    "cos": (Cos(), np.cos, lambda z: -np.sin(z)),
    "exp": (Exp(), np.exp, np.exp),
    "sinh": (Sinh(), np.sinh, np.cosh),
    "cosh": (Cosh(), np.cosh, np.sinh),
    "expm1": (Expm1(), np.expm1, np.exp),
    "polynomial": (
        Polynomial((0.5, -1.0, 0.3, 0.1)),
        lambda z: 0.5 - z + 0.3 * z**2 + 0.1 * z**3,
        lambda z: -1 + 0.6 * z + 0.3 * z**2,
    ),
    "sign": (Sign(), np.sign, None),
    "step": (Step(0.5), lambda z: (z > 0) * 1.0, None),
}
SMOOTH = [name for name, case in CASES.items() if case[2] is not None]


def tensors(q1, q2, rho):
    q1, q2 = torch.tensor(q1, dtype=torch.float64), torch.tensor(q2, dtype=torch.float64)
    return rho * torch.sqrt(q1 * q2), q1, q2


@pytest.mark.parametrize("name", CASES)
def test_closed_form_equals_integral(name):
    phi, f, g = CASES[name]
    squares = {(function, q): polar(function, q, q, 1.0) for function in (f, g) if function for q in sum(VARIANCES, ())}
    for q1, q2 in VARIANCES:
        for rho in RHOS:
            value, slope = dual(phi, *tensors(q1, q2, rho), tangent=g is not None)
            for found, function in ((value, f), (slope, g)):
                if function is None:
                    continue
                scale = math.sqrt(squares[function, q1] * squares[function, q2])
                # the oracle's own acos(rho) loses digits near rho = 1
                assert abs(found.item() - polar(function, q1, q2, rho)) < 1e-10 * scale, (name, q1, q2, rho)


@pytest.mark.parametrize("name", SMOOTH)
def test_price_theorem_and_gradcheck(name):
    phi = CASES[name][0]
    k = torch.tensor([[0.4, -0.9], [0.1, 1.2]], dtype=torch.float64, requires_grad=True)
    q1 = torch.tensor([[0.9], [1.7]], dtype=torch.float64, requires_grad=True)
    q2 = torch.tensor([[1.1, 2.0]], dtype=torch.float64, requires_grad=True)
    value, slope = dual(phi, k, q1, q2, tangent=True)
    torch.testing.assert_close(torch.autograd.grad(value.sum(), k)[0], slope.detach(), rtol=1e-12, atol=1e-13)
    assert torch.autograd.gradcheck(lambda *a: dual(phi, *a, tangent=True), (k, q1, q2))


def test_duplicates_are_exact():
    q = torch.linspace(0.1, 9, 50, dtype=torch.float64)
    for factor in (1, 1 + 1e-15, 1 - 1e-15, -1):
        _, slope = dual(Rectified(0.0, 1.0), q * factor, q, q, tangent=True)
        assert (slope == (0.5 if factor > 0 else 0.0)).all()


@pytest.mark.parametrize("name", SMOOTH)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_gradients_are_finite_where_inputs_coincide_or_vanish(name, dtype):
    phi, f, _ = CASES[name]
    k = torch.tensor([2.0, -2.0, 2.0 * (1 + 1e-7), 0.0, 0.0], dtype=dtype, requires_grad=True)
    q1 = torch.tensor([2.0, 2.0, 2.0, 0.0, 0.0], dtype=dtype, requires_grad=True)
    q2 = torch.tensor([2.0, 2.0, 2.0, 3.0, 0.0], dtype=dtype, requires_grad=True)
    value, slope = dual(phi, k, q1, q2, tangent=True)
    assert value.dtype == dtype
    for output in (value, slope):
        if not output.requires_grad:  # the derivative of the identity is a constant
            continue
        gradients = torch.autograd.grad(output.sum(), (k, q1, q2), retain_graph=True, allow_unused=True)
        assert torch.isfinite(output).all()
        assert all(g is None or torch.isfinite(g).all() for g in gradients)
    zero = float(f(np.zeros(1))[0])
    assert value[4].item() == pytest.approx(zero**2, abs=1e-15)
    assert value[3].item() == pytest.approx(zero * mean(phi, q2[3]).item(), rel=1e-6)
    # Price's theorem holds there too
    torch.testing.assert_close(torch.autograd.grad(value.sum(), k)[0][:2], slope[:2].detach())


def test_zero_variance_of_sign_and_step():
    k, q1, q2 = torch.zeros(3), torch.tensor([0.0, 0.0, 1.0]), torch.tensor([0.0, 1.0, 1.0])
    torch.testing.assert_close(dual(Sign(), k, q1, q2, False)[0], torch.zeros(3))
    tenth = dual(Step(0.1), *(t.double() for t in (k, q1, q2)), False)[0]
    torch.testing.assert_close(tenth, torch.tensor([0.01, 0.05, 0.25], dtype=torch.float64), rtol=1e-15, atol=0)
    step = Step(1.0)
    torch.testing.assert_close(dual(step, k, q1, q2, False)[0], torch.tensor([1.0, 0.5, 0.25]))
    torch.testing.assert_close(mean(step, q1), torch.tensor([1.0, 1.0, 0.5]))


@pytest.mark.parametrize("name", ["sign", "step"])
def test_jumps_have_no_tangent(name):
    with pytest.raises(ValueError, match="jumps"):
        dual(CASES[name][0], torch.ones(1), torch.ones(1), torch.ones(1), tangent=True)


def test_unregistered_class():
    class Swoosh(Activation):
        def __call__(self, z):
            return z

    with pytest.raises(ValueError, match="Got Swoosh"):
        dual(Swoosh(), torch.ones(1), torch.ones(1), torch.ones(1), tangent=False)


@pytest.mark.parametrize("name", CASES)
def test_mean(name):
    phi, f, _ = CASES[name]
    z, w = np.polynomial.legendre.leggauss(200)
    z, w = np.concatenate([5.5 + 5.5 * z, -5.5 - 5.5 * z]), np.tile(5.5 * w, 2)
    for q in (0.01, 1.0, 4.0):
        expected = (w * np.exp(-z * z / 2) / math.sqrt(math.tau)) @ f(math.sqrt(q) * z)
        assert mean(phi, torch.tensor(q, dtype=torch.float64)).item() == pytest.approx(expected, rel=1e-12, abs=1e-13)


def test_large_variances_do_not_overflow():
    k, q = torch.tensor([900.0, -900.0], dtype=torch.float64), torch.tensor(900.0, dtype=torch.float64)
    value, slope = dual(Sin(), k, q, q, tangent=True)
    torch.testing.assert_close(value, torch.tensor([0.5, -0.5], dtype=torch.float64))
    torch.testing.assert_close(slope, torch.tensor([0.5, 0.5], dtype=torch.float64))


@given(st.sampled_from(list(CASES)), st.floats(1e-6, 50), st.floats(1e-6, 50), st.floats(-1, 1))
@settings(max_examples=150, deadline=None)
def test_cauchy_schwarz(name, q1, q2, rho):
    if name in ("exp", "sinh", "cosh", "expm1"):
        q1, q2 = q1 / 10, q2 / 10
    phi = CASES[name][0]
    k, q1, q2 = tensors(q1, q2, rho)
    value = dual(phi, k, q1, q2, tangent=False)[0].item()
    bound = dual(phi, q1, q1, q1, False)[0].item() * dual(phi, q2, q2, q2, False)[0].item()
    assert value**2 <= bound * (1 + 1e-12)


@pytest.mark.parametrize("phi", [Rectified(0.0, 1.0), Rectified(-0.3, 1.1), Erf()])
def test_values_and_differences_at_once(phi):
    k, q1, q2 = (
        torch.tensor(v, dtype=torch.float64)
        for v in ([0.5, 1.0, -0.7, 0.0], [1.0, 1.0, 0.8, 0.0], [1.2, 1.0, 0.9, 0.5])
    )
    h = (q1 + q2) / 2 - k
    value, slope, difference = dual_with_difference(phi, k, q1, q2, True, h)
    for found, one in zip((value, slope), dual(phi, k, q1, q2, True, h), strict=True):
        torch.testing.assert_close(found, one, rtol=1e-14, atol=1e-16)
    assert (difference is not None) == phi.homogeneous
    if difference is not None:
        own = sum(dual(phi, q, q, q, False)[0] for q in (q1, q2)) / 2
        torch.testing.assert_close(difference, own - value, rtol=1e-14, atol=1e-16)


def test_derivatives_change_no_value():
    """Without derivatives fewer steps are taken; equal, opposite, nearly equal and vanishing inputs included."""
    relu = Rectified(0.0, 1.0)
    q1 = torch.tensor([1.0, 2.0, 0.0, 1.0, 1.0, 0.5], dtype=torch.float64)
    q2 = torch.tensor([1.0, 0.5, 1.0, 1.0, 1.0, 0.7], dtype=torch.float64)
    k = torch.tensor([1.0, -1.0, 0.0, 1 - 1e-13, 1 - 1e-9, 0.2], dtype=torch.float64)
    for some in (slice(None), slice(4, 6)):
        plain = dual(relu, k[some], q1[some], q2[some], tangent=True)
        graded = dual(relu, k[some].clone().requires_grad_(), q1[some], q2[some], tangent=True)
        for a, b in zip(plain, graded, strict=True):
            torch.testing.assert_close(a, b.detach(), rtol=1e-14, atol=0)
