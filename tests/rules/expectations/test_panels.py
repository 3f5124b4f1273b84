"""Functions with kinks anywhere, between which they are no polynomials."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tests.rules.expectations.functions import dual_at_singular_inputs, f64, quadrature
from tests.rules.families import Vectors
from torch import nn

import ntkit
from ntkit._src.program import Activation
from ntkit._src.rules.expectations import _mehler, _panels, dual, gain_dual, mean
from ntkit._src.rules.expectations._any_function import kinked_dual, kinked_mean
from ntkit._src.rules.expectations._mehler import BANDS, mehler_fields, mehler_reaches
from ntkit._src.rules.expectations._pair import Pair
from ntkit._src.rules.expectations._panels import FINE, panel_fields
from ntkit._src.rules.expectations._partition import has_strong_kinks, jumps
from ntkit._src.rules.expectations._piecewise import pieces, piecewise_dual, piecewise_mean
from ntkit._src.rules.expectations._table import table_dual
from ntkit.errors import QuadratureError, QuadratureWarning


def one_kink_function(z):
    return torch.where(z > 1, torch.tanh(z - 1), (z - 1) ** 2 * torch.exp(-z * z))


LOW, HIGH = math.atanh(-0.5), math.atanh(0.7)
ONE = quadrature("one", one_kink_function, (1.0,))
TWO = quadrature("two", lambda z: torch.tanh(z).clamp(-0.5, 0.7), (LOW, HIGH))
THREE = quadrature("three", lambda z: (z.abs() - 0.5).relu().sin() + 1 / (1 + (z - 2).relu()), (-0.5, 0.5, 2.0))
JUMP = quadrature("jump", lambda z: torch.where(z > 0.5, torch.exp(-z * z), torch.tanh(z)), (0.5,))
RHOS = (1.0, 1 - 1e-12, 1 - 1e-6, 0.999, 0.9, 0.3, 0.0, -0.5, -1 + 1e-9, -1.0)
GAUSS = np.polynomial.legendre.leggauss(16)


def panels(edges, width):
    """Nodes and weights of composite Gauss-Legendre, Gaussian density included, between the edges of each row."""
    grid = np.linspace(-9.5, 9.5, math.ceil(19 / width) + 1)
    edges = np.asarray(edges, dtype=float)
    edges = np.concatenate([edges, np.broadcast_to(grid, (*edges.shape[:-1], len(grid)))], axis=-1)
    edges = np.sort(np.clip(edges, -9.5, 9.5), axis=-1)
    middle, half = (edges[..., 1:] + edges[..., :-1]) / 2, (edges[..., 1:] - edges[..., :-1]) / 2
    z = middle[..., None] + half[..., None] * GAUSS[0]
    w = half[..., None] * GAUSS[1] * np.exp(-z * z / 2) / math.sqrt(math.tau)
    return z.reshape(*edges.shape[:-1], -1), w.reshape(*edges.shape[:-1], -1)


def both(phi, z):
    z = torch.from_numpy(z).requires_grad_()
    y = phi.function(z)
    return np.stack([y.detach().numpy(), torch.autograd.grad(y.sum(), z)[0].numpy()])


def symmetric(phi, s1, s2, rho):
    """E[f f], E[f' f'] in coordinates of their own: x = p a + m b, y = +-(p a - m b), p, m = sqrt((1 +- |rho|) / 2).

    Given b, the integrand in a has its kinks on lines that are known; the integral over a is smooth in b but where two
    of the lines cross. Nothing is singular at rho = +-1, and there are no layers.
    """
    sign = -1.0 if rho < 0 else 1.0
    p, m = math.sqrt((1 + abs(rho)) / 2), math.sqrt((1 - abs(rho)) / 2)
    first, second = [t / s1 for t in phi.kinks], [sign * t / s2 for t in phi.kinks]
    crossings = [(x - y) / (2 * m) for x in first for y in second] if m else []
    scales = [t / s for s in (s1, s2) for t in (-4, -2, -1, -0.5, 0, 0.5, 1, 2, 4)]
    width = min(1.5, 1.5 / max(s1, s2))
    b, weights = panels([*crossings, *(t / m for t in scales if m > 0.02)], 1.5 if m < 0.02 else max(width, 0.3))
    shift = m * b[:, None]
    edges = [(np.array([*first, *scales]) - shift) / p, (np.array([*second, *scales]) + shift) / p]
    a, w = panels(np.concatenate(edges, axis=1), max(width, 0.3))
    product = both(phi, s1 * (p * a + shift)) * both(phi, s2 * sign * (p * a - shift))
    return (product * w).sum(-1) @ weights


def scales(phi, s1, s2):
    """sqrt(E f(s1 x)^2 E f(s2 x)^2) for f and f'."""
    squares = []
    for s in (s1, s2):
        x, w = panels([t / s for t in (*phi.kinks, *np.linspace(-6, 6, 25))], 0.5)
        squares.append(both(phi, s * x) ** 2 @ w)
    return np.sqrt(squares[0] * squares[1])


def pair_of(s1, s2, rho):
    s1, s2, rho = f64(s1, s2, rho)
    return Pair(rho * s1 * s2, s1 * s1, s2 * s2)


@pytest.mark.parametrize(
    ("phi", "s1", "s2", "rhos"),
    [
        (ONE, 1.0, 1.0, RHOS),
        (ONE, 1.3, 0.6, RHOS),
        (ONE, 1e-3, 2.0, (1.0, 0.999, 0.3, -1 + 1e-9)),
        (ONE, 30.0, 30.0, (1.0, 1 - 1e-12, 0.9999)),
        (TWO, 1.0, 1.0, RHOS),
        (TWO, HIGH, -LOW, (1.0, 0.999, -0.5, -0.9999, -1 + 1e-12, -1.0)),  # at rho = -1 both kinks are met together
        (THREE, 2.0, 0.5, RHOS),  # and so are those at 2 and 0.5 at rho = 1
    ],
    ids=lambda case: str(case) if isinstance(case, Activation) else "",
)
def test_against_independent_integration(phi, s1, s2, rhos):
    assert pieces(phi) is None
    scale = scales(phi, s1, s2)
    pair = pair_of(s1, s2, rhos)
    found = dual(phi, pair.k, pair.v1, pair.v2, tangent=True)
    # near +-1 the product k = rho s1 s2 has rounded the correlation: compare at the one that is meant
    exact = np.stack([symmetric(phi, s1, s2, rho) for rho in pair.rho.tolist()], axis=1)
    for value, reference, size in zip(found, exact, scale, strict=True):
        assert (np.abs(value.numpy() - reference) < 2e-12 * size).all(), (s1, s2, value, reference)


PIECEWISE = [
    quadrature("hardtanh", F.hardtanh, (-1.0, 1.0)),
    quadrature("relu6", F.relu6, (0.0, 6.0)),
    quadrature("hardswish", F.hardswish, (-3.0, 3.0)),
]


@pytest.mark.parametrize("phi", PIECEWISE, ids=str)
def test_equals_closed_form_of_piecewise_polynomials(phi):
    rho = torch.tensor((*RHOS, 0.97, 0.985, -0.995), dtype=torch.float64)
    s1, s2 = f64([[1.0], [0.3]], [[1.0], [2.5]])
    pair = Pair(rho * s1 * s2, s1 * s1, s2 * s2)
    exact = piecewise_dual(pieces(phi), pair, tangent=True)
    ones = Pair(s1 * s1, s1 * s1, s1 * s1), Pair(s2 * s2, s2 * s2, s2 * s2)
    squares = [piecewise_dual(pieces(phi), p, tangent=True) for p in ones]
    for a, b, c, d in zip(kinked_dual(phi, pair, tangent=True), exact, *squares, strict=True):
        assert ((a - b).abs() <= 1e-12 * torch.sqrt(c * d)).all()
    torch.testing.assert_close(
        kinked_mean(phi, s1 * s1), piecewise_mean(pieces(phi), Pair(s1 * s1, s1 * s1, s1 * s1)), rtol=1e-12, atol=1e-15
    )


def test_equals_tables_of_smooth_functions():
    declared = quadrature("declared", torch.tanh, (0.7,))
    smooth = quadrature("tanh", torch.tanh)
    rho = torch.tensor(RHOS, dtype=torch.float64)
    pair = Pair(1.5 * rho, *f64([1.5], [1.5]))
    for which, found in enumerate(kinked_dual(declared, pair, tangent=True)):
        table = table_dual(smooth, which, pair.theta, pair.q1, pair.q2)
        torch.testing.assert_close(found, table, rtol=0, atol=1e-12)
    # a kink that is declared but not there, or that is far below rounding, does not lose the table
    assert not has_strong_kinks(declared)
    assert not has_strong_kinks(quadrature("softplus", F.softplus, (20.0,)))
    assert not has_strong_kinks(quadrature("elu", F.elu, (0.0,)))
    for phi in (ONE, TWO, THREE, JUMP):
        assert has_strong_kinks(phi)
    weak = quadrature("second derivative", lambda z: torch.tanh(z) + 0.01 * (z - 1).relu() ** 2, (1.0,))
    assert has_strong_kinks(weak)


@pytest.mark.parametrize("phi", [pytest.param(ONE, marks=pytest.mark.slow), THREE, JUMP], ids=str)
def test_expansion_equals_panels(phi):
    rows = itertools.product((1e-3, 1.0, 30.0), (0.5, 6.0), (0.3, 0.9, -0.98, 0.99, 0.0))
    s1, s2, rho = torch.tensor(list(rows), dtype=torch.float64).T.contiguous()
    assert mehler_reaches(phi, s1).all()
    found, exact = mehler_fields(phi, s1, s2, rho, graded=True), panel_fields(phi, s1, s2, rho)
    squares = []  # E f^2 and E f'^2 of each row, integrated once for each of the few deviations
    for s in (s1, s2):
        few, row = s.unique(return_inverse=True)
        squares.append(panel_fields(phi, few, few, torch.ones_like(few))[:, :1, row])
    scale = torch.sqrt(squares[0] * squares[1]).clamp_min(1e-300)
    # s dE/ds and dE/drho lose digits to 1 / tau in one rule and to the factor n in the other
    error = ((found - exact).abs() / scale).amax(dim=(0, 2))
    assert (error < torch.tensor([2e-12, 2e-11, 2e-11, 2e-10])).all(), error
    plain = mehler_fields(phi, s1, s2, rho, graded=False)
    torch.testing.assert_close(plain[:, 0], found[:, 0], rtol=1e-13, atol=1e-15)


def test_blocks_do_not_matter(monkeypatch):
    generator = torch.Generator().manual_seed(0)
    s1, s2 = (0.5 + torch.rand(40, dtype=torch.float64, generator=generator) for _ in range(2))
    rho = 2 * torch.rand(40, dtype=torch.float64, generator=generator) - 1
    rho[20:] = torch.sign(rho[20:]) * (1 - 1e-3 * rho[20:].abs())
    q = (s1 * s1, s2 * s2)
    whole = dual(TWO, rho * s1 * s2, *q, tangent=True)
    monkeypatch.setattr(_mehler, "_KEPT", 2000)
    monkeypatch.setattr(_mehler, "_SPLIT", 2000)
    monkeypatch.setattr(_mehler, "_PRODUCTS", 2000)
    monkeypatch.setattr(_panels, "_ENTRIES", 3)
    monkeypatch.setattr(_panels, "_NODES", 5000)
    for a, b in zip(whole, dual(TWO, rho * s1 * s2, *q, tangent=True), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-13, atol=1e-15)


@pytest.mark.parametrize("phi", [ONE, THREE], ids=str)
def test_shapes_dtypes_and_symmetry(phi):
    generator = torch.Generator().manual_seed(0)
    q1 = torch.rand(3, 1, dtype=torch.float64, generator=generator) * 3 + 0.3
    q2 = torch.rand(1, 4, dtype=torch.float64, generator=generator) * 3 + 0.3
    k = torch.sqrt(q1 * q2) * (1 - 0.02 * torch.rand(3, 4, dtype=torch.float64, generator=generator))
    value, slope = dual(phi, k, q1, q2, tangent=True)
    one = dual(phi, k[1, 2], q1[1, 0], q2[0, 2], tangent=False)
    assert one[1] is None
    torch.testing.assert_close(one[0], value[1, 2], rtol=1e-13, atol=0)
    turned = dual(phi, k.T, q2.T, q1.T, tangent=True)
    torch.testing.assert_close(turned[0].T, value, rtol=1e-13, atol=0)
    torch.testing.assert_close(turned[1].T, slope, rtol=1e-13, atol=0)
    low = dual(phi, k.float(), q1.float(), q2.float(), tangent=True)
    assert low[0].dtype == low[1].dtype == torch.float32
    torch.testing.assert_close(low[0].double(), value, rtol=1e-4, atol=1e-5)
    assert dual(phi, k[:0], q1[:0], q2, tangent=True)[1].shape == (0, 4)


@pytest.mark.parametrize("phi", [ONE, TWO], ids=str)
def test_gradients(phi):
    # the last row is beyond the expansion
    k, q1, q2 = f64([[0.4, -0.9], [0.1, 1.2], [1.232, 1.663]], [[1.4], [1.7], [1.39]], [[1.1, 2.0]])
    assert (k / torch.sqrt(q1 * q2))[2].min() > BANDS[-1]
    for t in (k, q1, q2):
        t.requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: dual(phi, *a, tangent=True), (k, q1, q2), eps=1e-6, atol=1e-6)
    value, slope = dual(phi, k, q1, q2, tangent=True)
    torch.testing.assert_close(torch.autograd.grad(value.sum(), k)[0], slope.detach())
    assert torch.autograd.gradcheck(lambda q: mean(phi, q), (q1,), eps=1e-6, atol=1e-7)


@pytest.mark.parametrize("phi", [ONE, TWO], ids=str)
def test_gradients_where_inputs_coincide_or_vanish(phi):
    value, q2 = dual_at_singular_inputs(phi)
    zero = phi.function(torch.zeros(1, dtype=torch.float64)).item()
    assert value[4].item() == pytest.approx(zero**2, rel=1e-12)
    assert value[3].item() == pytest.approx(zero * mean(phi, q2[3]).item(), rel=1e-12)
    assert value[2] == value[0]

    def diagonal(q):
        return dual(phi, q, q, q, tangent=True)

    q = f64([0.6, 2.0])[0].requires_grad_()
    assert torch.autograd.gradcheck(diagonal, (q,), eps=1e-6, atol=1e-7)


def test_gradients_of_collinear_inputs():
    """At rho = 1 with different variances: k = sqrt(q1 q2) moves along."""
    q1, q2 = f64([1.5, 0.7], [0.9, 2.2])

    def collinear(q1, q2):
        return dual(ONE, torch.sqrt(q1 * q2), q1, q2, tangent=True)

    for t in (q1, q2):
        t.requires_grad_()
    assert torch.autograd.gradcheck(collinear, (q1, q2), eps=1e-6, atol=1e-6)


def test_jumps():
    assert jumps(JUMP)
    assert not jumps(ONE)
    for rho in (1.0, 0.999, 0.4, -1 + 1e-9, -1.0):
        pair = pair_of(0.9, 1.2, rho)
        value, slope = dual(JUMP, pair.k, pair.v1, pair.v2, tangent=False)
        assert slope is None
        assert value.item() == pytest.approx(symmetric(JUMP, 0.9, 1.2, pair.rho.item())[0], abs=1e-12)
    k, q1, q2 = f64([0.4, 1.185], [1.3, 1.2], [0.9, 1.2])
    with pytest.raises(ValueError, match="jump jumps"):
        dual(JUMP, k, q1, q2, tangent=True)
    for t in (k, q1, q2):
        t.requires_grad_()
    assert torch.autograd.gradcheck(lambda *a: dual(JUMP, *a, tangent=False)[0], (k, q1, q2), eps=1e-6, atol=1e-6)


def test_gain_dual():
    """E[u f'(u) v f'(v)] of a trained affine weight: z f'(z) jumps at the kink, which an integral does not mind."""
    k, q1, q2 = f64([0.5, 0.995, 1.0], [1.0, 1.0, 1.0], [1.0, 1.0, 1.0])
    found = gain_dual(ONE, k, q1, q2)
    product = quadrature(
        "z f'", lambda z: z * torch.func.jvp(one_kink_function, (z,), (torch.ones_like(z),))[1], (1.0,)
    )
    for i, rho in enumerate(k.tolist()):
        assert found[i].item() == pytest.approx(symmetric(product, 1.0, 1.0, rho)[0], rel=1e-11)
    k.requires_grad_()
    assert torch.autograd.gradcheck(lambda k: gain_dual(ONE, k, q1, q2)[:2], (k,), eps=1e-6, atol=1e-6)


def test_undeclared_kinks_are_refused_and_named():
    phi = quadrature("undeclared", lambda z: torch.tanh(z).clamp(-0.5, 0.7), (HIGH,))
    q = f64(2.0)[0]
    for k in (q / 2, q / 3):  # each time
        with pytest.raises(QuadratureError, match=r"undeclared.*variances of 2,.*Near z = -0\.549"):
            dual(phi, k, q, q, tangent=True)
    # a kink in the wrong place is none there, and an undeclared one elsewhere
    rounded = quadrature("rounded", lambda z: torch.tanh(z).clamp(max=0.7), (0.867,))
    with pytest.warns(QuadratureWarning, match="rounded.*Near z = 0.8673.*to all digits"):
        dual(rounded, q / 2, q, q, tangent=True)


def test_bad_input():
    q = f64(2.0)[0]
    with pytest.raises(ValueError, match="finite"):
        dual(ONE, q / 2, q * math.nan, q, tangent=False)
    log = quadrature("log", lambda z: torch.where(z > 1, torch.log(z), torch.log(z + 5)), (1.0,))
    with pytest.raises(ValueError, match="finite"):
        dual(log, q / 2, q, q, tangent=False)


def test_halved_panels_change_nothing():
    s, one = f64([1.0], [1.0])
    coarse, fine = panel_fields(ONE, s, s, one), panel_fields(ONE, s, s, one, FINE)
    torch.testing.assert_close(coarse, fine, rtol=1e-13, atol=1e-14)


class TestKinkedNetwork(Vectors):
    def module(self, width):
        activation = ntkit.Elementwise(one_kink_function, kinks=(1.0,))
        return nn.Sequential(nn.Linear(4, width), activation, nn.Linear(width, width), activation, nn.Linear(width, 2))


class TestKinkedLayerNorm(Vectors):
    """The trained weight of the normalisation adds E[u f'(u) v f'(v)]."""

    n_samples = 150

    def module(self, width):
        activation = ntkit.Elementwise(one_kink_function, kinks=(1.0,))
        return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), activation, nn.Linear(width, 2))


class TestJumpingNetwork(TestKinkedNetwork):
    tangent = False

    def module(self, width):
        activation = ntkit.Elementwise(JUMP.function, kinks=JUMP.kinks)
        return nn.Sequential(nn.Linear(4, width), activation, nn.Linear(width, 2)).requires_grad_(False)


def test_far_from_kinks_no_panels_are_needed(monkeypatch):
    """Below the first kink, between two and above the last, a mean of few nodes gives E[f(m + sigma z)]."""
    phi = quadrature("corners", lambda z: torch.sin(z) + (z + 1).relu() + (z - 1).relu(), (-1.0, 1.0))
    split, counts = _panels._split, []
    monkeypatch.setattr(
        _panels, "_split", lambda phi, parts, m, *rest: counts.append(len(m)) or split(phi, parts, m, *rest)
    )
    m = torch.tensor([-3.0, 0.0, 3.0], dtype=torch.float64)
    sigma, reach = torch.full_like(m, 0.05), torch.full_like(m, 8.0)
    found = _panels._smoothed(phi, _panels._parts(phi, 8.0, _panels.COARSE), m, sigma, reach, _panels.COARSE, 1)
    exact = torch.sin(m) * math.exp(-(0.05**2) / 2) + (m + 1).relu() + (m - 1).relu()
    torch.testing.assert_close(found[0, 0], exact, rtol=1e-13, atol=1e-13)
    assert sum(counts) == 0
