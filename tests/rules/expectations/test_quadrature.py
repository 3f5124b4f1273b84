"""Expectations of functions without a closed form, against slow nested integration."""

from __future__ import annotations

import math
from functools import cache

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.rules.expectations.functions import dual_at_singular_inputs, f64, quadrature

from ntkit._src.program import AnyFunction, Polynomial, Rectified
from ntkit._src.rules.expectations import _any_function, _table, dual, mean
from ntkit._src.rules.expectations._piecewise import pieces
from ntkit._src.rules.expectations._table import mean_tabulated

SMOOTH = [
    quadrature("tanh", torch.tanh),
    quadrature("sigmoid", torch.sigmoid),
    quadrature("silu", F.silu),
    quadrature("elu", F.elu, (0.0,)),
    quadrature("selu", F.selu, (0.0,)),
    quadrature("celu", lambda z: F.celu(z, alpha=0.7), (0.0,)),
    quadrature("softplus", F.softplus),
    quadrature("mish", F.mish),
    quadrature("softsign", F.softsign, (0.0,)),
    quadrature("tanh-gelu", lambda z: F.gelu(z, approximate="tanh")),
]
PIECEWISE = [
    quadrature("hardtanh", F.hardtanh, (-1.0, 1.0)),
    quadrature("relu6", F.relu6, (0.0, 6.0)),
    quadrature("hardswish", F.hardswish, (-3.0, 3.0)),
    # not F.hardsigmoid: its derivative in torch is 1/6 in float32, whatever the dtype
    quadrature("hardsigmoid", lambda z: (z / 6 + 0.5).clamp(0, 1), (-3.0, 3.0)),
    quadrature("softshrink", lambda z: F.softshrink(z, 0.5), (-0.5, 0.5)),
]
ALL = SMOOTH + PIECEWISE
RELU = quadrature("relu", torch.relu, (0.0,))
GAUSS = np.polynomial.legendre.leggauss(16)


def panels(edges):
    """Nodes and weights of composite Gauss-Legendre, Gaussian density included."""
    edges = np.asarray(sorted({float(np.clip(e, -9.5, 9.5)) for e in (*edges, *np.linspace(-9.5, 9.5, 14))}))
    middle, half = (edges[1:] + edges[:-1]) / 2, (edges[1:] - edges[:-1]) / 2
    z = (middle[:, None] + half[:, None] * GAUSS[0]).ravel()
    return z, (half[:, None] * GAUSS[1]).ravel() * np.exp(-z * z / 2) / math.sqrt(math.tau)


def function_and_slope(phi, z):
    z = torch.from_numpy(z).requires_grad_()
    y = phi.function(z)
    return y.detach().numpy(), torch.autograd.grad(y.sum(), z)[0].numpy()


@cache
def nested(phi, q1, q2, rho):
    """E[f f], E[f' f'] as an integral over u of one over v given u, both split at the kinks and at their layers."""
    s1, s2, c = math.sqrt(q1), math.sqrt(q2), math.sqrt((1 - rho) * (1 + rho))
    points = (*phi.kinks, 0.0)
    layers = [w * c for w in (-8, -4, -2, -1, 1, 2, 4, 8)]
    scales = [x for s in (s1, s2) for x in (-2 / s, -1 / s, -0.3 / s, 0.3 / s, 1 / s, 2 / s)]
    second = [t / s2 / rho for t in points] if rho else []
    x, w = panels([*scales, *(t / s1 for t in points), *second, *(p + d for p in second for d in layers)])
    left = function_and_slope(phi, s1 * x)
    if not c:
        return [w @ (a * b) for a, b in zip(left, function_and_slope(phi, s2 * rho * x), strict=True)]
    rows = [panels([(a - rho * u) / c for a in (*(t / s2 for t in points), *scales)]) for u in x]
    lengths = [len(y) for y, _ in rows]
    y, v = (np.concatenate(parts) for parts in zip(*rows, strict=True))
    right = function_and_slope(phi, s2 * (rho * np.repeat(x, lengths) + c * y))
    return [np.repeat(w * a, lengths) @ (v * b) for a, b in zip(left, right, strict=True)]


@pytest.mark.parametrize("phi", ALL, ids=str)
def test_against_nested_integration(phi):
    # (2, 2) at rho = 1 is where two inputs meet the same kink; the variances stay in few cells to keep this quick
    for q1, q2, rho in ((2.0, 2.0, 1.0), (2.0, 2.0, -1.0), (1.2, 9.0, -0.3), (9.0, 2.0, 0.999), (3.0, 3.1, 0.0)):
        q = f64(q1, q2)
        value, slope = dual(phi, rho * torch.sqrt(q[0] * q[1]), *q, tangent=True)
        exact = nested(phi, q1, q2, rho)
        scales = [math.sqrt(a * b) for a, b in zip(nested(phi, q1, q1, 1.0), nested(phi, q2, q2, 1.0), strict=True)]
        assert abs(value.item() - exact[0]) < 1e-10 * scales[0], (q1, q2, rho)
        assert abs(slope.item() - exact[1]) < 1e-10 * scales[1], (q1, q2, rho)


@pytest.mark.parametrize("phi", [SMOOTH[3], SMOOTH[9], PIECEWISE[0], PIECEWISE[2]], ids=str)
def test_small_and_large_variances(phi):
    for q1, q2, rho in ((1e-3, 30.0, 0.9), (1e-3, 2e-3, 0.5)):
        q = f64(q1, q2)
        value, slope = dual(phi, rho * torch.sqrt(q[0] * q[1]), *q, tangent=True)
        exact = nested(phi, q1, q2, rho)
        scales = [math.sqrt(a * b) for a, b in zip(nested(phi, q1, q1, 1.0), nested(phi, q2, q2, 1.0), strict=True)]
        assert abs(value.item() - exact[0]) < 1e-10 * scales[0], (q1, q2, rho)
        assert abs(slope.item() - exact[1]) < 1e-10 * scales[1], (q1, q2, rho)


def test_relu_by_table_and_by_pieces_equals_closed_form(monkeypatch):
    assert pieces(RELU).corners == ((0.0, 1, (0.0, 1.0)),)
    rho = torch.linspace(-1, 1, 41, dtype=torch.float64)
    q1, q2 = f64([[0.7], [1e-3], [5.0]], [0.8])
    k = rho * torch.sqrt(q1 * q2)
    exact = dual(Rectified(0.0, 1.0), k, q1, q2, tangent=True)
    by_pieces = dual(RELU, k, q1, q2, tangent=True)
    monkeypatch.setattr("ntkit._src.rules.expectations._any_function.pieces", lambda phi: None)
    by_table = dual(RELU, k, q1, q2, tangent=True)
    for found in (by_pieces, by_table):
        for a, b in zip(found, exact, strict=True):
            assert ((a - b).abs() <= 1e-11 * b.amax(dim=1, keepdim=True)).all()


def test_pieces_are_recognised():
    assert pieces(PIECEWISE[0]).corners == ((-1.0, -1, (0.0, 1.0)), (1.0, 1, (0.0, -1.0)))
    assert pieces(SMOOTH[0]) is None
    assert pieces(SMOOTH[3]) is None
    cubic = quadrature("cubic", lambda z: 1 - z + 0.5 * z**3)
    q1, q2, k = f64(1.3, 0.4, 0.2)
    for a, b in zip(dual(cubic, k, q1, q2, True), dual(Polynomial((1, -1, 0, 0.5)), k, q1, q2, True), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


@pytest.mark.parametrize("phi", [SMOOTH[1], SMOOTH[3], *PIECEWISE[:3]], ids=str)
def test_gradients(phi):
    k, q1, q2 = f64([[0.4, -0.9], [0.1, 1.2]], [[1.4], [1.7]], [[1.1, 2.0]])
    for t in (k, q1, q2):
        t.requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: dual(phi, *a, tangent=True), (k, q1, q2), eps=1e-5, atol=1e-6)
    value, slope = dual(phi, k, q1, q2, tangent=True)
    torch.testing.assert_close(torch.autograd.grad(value.sum(), k)[0], slope.detach())
    value, q2 = dual_at_singular_inputs(phi)
    zero = phi.function(torch.zeros(1, dtype=torch.float64)).item()
    torch.testing.assert_close(value[4].item(), zero**2, rtol=1e-12, atol=1e-15)
    torch.testing.assert_close(value[3].item(), zero * mean(phi, q2[3]).item(), rtol=1e-12, atol=1e-15)
    assert value[2] == value[0]


@pytest.mark.parametrize("phi", [SMOOTH[1], PIECEWISE[1]], ids=str)
def test_value_depends_neither_on_the_batch_nor_on_its_shape(phi):
    generator = torch.Generator().manual_seed(0)
    q1 = torch.rand(3, 1, 5, 1, dtype=torch.float64, generator=generator) * 3 + 0.3
    q2 = torch.rand(1, 4, 1, 5, dtype=torch.float64, generator=generator) * 3 + 0.3
    k = torch.sqrt(q1 * q2) * (2 * torch.rand(3, 4, 5, 5, dtype=torch.float64, generator=generator) - 1)
    value, slope = dual(phi, k, q1, q2, tangent=True)
    flat = dual(phi, k.reshape(-1), *(q.expand(k.shape).reshape(-1) for q in (q1, q2)), tangent=True)
    torch.testing.assert_close(value.reshape(-1), flat[0], rtol=1e-12, atol=1e-14)
    torch.testing.assert_close(slope.reshape(-1), flat[1], rtol=1e-12, atol=1e-14)
    # pixels of equal position: axes shared by both variances
    shared = dual(phi, k.diagonal(dim1=2, dim2=3), q1[..., 0], q2[:, :, 0], tangent=False)[0]
    torch.testing.assert_close(shared, value.diagonal(dim1=2, dim2=3), rtol=1e-12, atol=1e-14)
    one = dual(phi, k[1, 2, 3, 4], q1[1, 0, 3, 0], q2[0, 2, 0, 4], tangent=False)[0]
    torch.testing.assert_close(one, value[1, 2, 3, 4], rtol=1e-12, atol=1e-14)
    low = dual(phi, k.float(), q1.float(), q2.float(), tangent=False)[0]
    assert low.dtype == torch.float32
    torch.testing.assert_close(low.double(), value, rtol=1e-4, atol=1e-5)
    assert dual(phi, k[:0], q1[:0], q2, tangent=False)[0].shape == (0, 4, 5, 5)


def test_batches_of_matrices_and_chunks(monkeypatch):
    phi = SMOOTH[1]
    q1 = torch.linspace(0.3, 3, 27, dtype=torch.float64).reshape(9, 1, 3)
    q2 = torch.linspace(0.5, 2, 24, dtype=torch.float64).reshape(1, 8, 3)
    k = 0.7 * torch.sqrt(q1 * q2)
    loop = dual(phi, k, q1, q2, tangent=False)[0]
    monkeypatch.setattr(_table, "_CHUNK", 1000)
    flat = dual(phi, k.reshape(-1), *(q.expand(k.shape).reshape(-1) for q in (q1, q2)), tangent=False)[0]
    torch.testing.assert_close(loop.reshape(-1), flat, rtol=1e-12, atol=1e-14)


@pytest.mark.parametrize("phi", [SMOOTH[1], SMOOTH[3], *PIECEWISE], ids=str)
def test_mean(phi):
    for q in (0.3, 2.0):
        z, w = panels([t / math.sqrt(q) for t in (*phi.kinks, 0.0)])
        exact = w @ function_and_slope(phi, math.sqrt(q) * z)[0]
        assert mean(phi, f64(q)[0]).item() == pytest.approx(exact, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda z: z.sum(), "same shape"),
        (lambda z: z.float(), "same shape"),
        (lambda z: torch.softmax(z.reshape(-1), 0).reshape(z.shape), "each element alone"),
        (lambda z: torch.log(z), "finite"),
        (lambda z: z.detach() ** 2, "differentiable"),
    ],
)
def test_unusable_functions(function, message):
    one = f64(1.0)[0]
    with pytest.raises(ValueError, match=message):
        dual(quadrature("broken", function), one / 2, one, one, tangent=False)


def test_jump_has_no_tangent():
    one = f64(1.0)[0]
    phi = quadrature("hardshrink", F.hardshrink, (-0.5, 0.5))
    value, _ = dual(phi, one, one, one, tangent=False)
    assert value.item() == pytest.approx(nested(phi, 1.0, 1.0, 1.0)[0], abs=1e-13)
    with pytest.raises(ValueError, match="hardshrink jumps"):
        dual(phi, one, one, one, tangent=True)
    at_zero = quadrature("at zero", lambda z: torch.where(z > 0, torch.cos(z), torch.tanh(z)), (0.0,))
    value, _ = dual(at_zero, one / 2, one, one, tangent=False)
    assert value.item() == pytest.approx(nested(at_zero, 1.0, 1.0, 0.5)[0], abs=1e-13)
    with pytest.raises(ValueError, match="at zero jumps"):
        dual(at_zero, one, one, one, tangent=True)
    k, q = f64([0.3, -0.99], [1.0, 1.3])
    for jumping in (phi, at_zero):  # the kernel without a tangent has gradients all the same
        k.requires_grad_()
        q.requires_grad_()
        assert torch.autograd.gradcheck(lambda k, q, f=jumping: dual(f, k, q, q.flip(0), tangent=False)[0], (k, q))


@pytest.mark.parametrize("q", [0.01, 0.05])
def test_functions_that_overflow_far_away(q):
    """E[cosh cosh] = exp(q) cosh(q) of a variable with itself; cosh(1000) is infinite."""
    variance = torch.tensor([q], dtype=torch.float64)
    value, slope = dual(AnyFunction(torch.cosh), variance, variance, variance, tangent=True)
    torch.testing.assert_close(value, variance.exp() * variance.cosh(), rtol=1e-10, atol=0)
    torch.testing.assert_close(slope, variance.exp() * variance.sinh(), rtol=1e-10, atol=0)


def test_means_come_from_the_table_where_it_reaches_whatever_the_neighbours(monkeypatch):
    panels, kinked = [], _any_function.kinked_mean
    monkeypatch.setattr(_any_function, "kinked_mean", lambda phi, q: panels.append(q) or kinked(phi, q))
    phi = AnyFunction(lambda z: torch.exp(-z * z), label="bump")
    q = torch.tensor([0.1, 0.3, 0.7, 2.0, 5.0, 20.0, 300.0, 1e4], dtype=torch.float64)
    reached = mean_tabulated(phi, q)
    assert reached[0] and not reached[-1]
    found = mean(phi, q)
    assert len(panels) == 1 and torch.equal(panels[0], q[~reached])
    torch.testing.assert_close(found, 1 / (1 + 2 * q).sqrt(), rtol=1e-10, atol=0)
