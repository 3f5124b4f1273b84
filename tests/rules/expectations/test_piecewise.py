"""Piecewise polynomials: the pieces that are found, and expectations that one integral gives."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from ntkit._src.program import AnyFunction
from ntkit._src.rules.expectations._pair import Pair
from ntkit._src.rules.expectations._piecewise import (
    Pieces,
    _corner_moments,
    _differs,
    _hermite_moments,
    pieces,
    piecewise_dual,
    piecewise_mean,
)
from ntkit.errors import InputError


def activation(label, function, *kinks):
    return AnyFunction(function, kinks=kinks, label=label)


CUBIC = activation(
    "spline", lambda z: 1 - z + 0.5 * z**3 - 2 * (z - 0.7).relu() ** 2 + (-0.3 - z).relu() ** 3, -0.3, 0.7
)
CASES = [
    activation("hardtanh", F.hardtanh, -1.0, 1.0),
    activation("relu6", F.relu6, 0.0, 6.0),
    activation("hardswish", F.hardswish, -3.0, 3.0),
    activation("jump", lambda z: torch.where(z > 0.5, 2.0 + z, z * z), 0.5),
    CUBIC,
]


def value(found: Pieces, z: torch.Tensor) -> torch.Tensor:
    total = sum(c * z**k for k, c in enumerate(found.centre)) + torch.zeros_like(z)
    for t, side, coefficients in found.corners:
        beyond = (side * (z - t)).relu()
        total = total + sum(c * beyond**i * (beyond > 0) for i, c in enumerate(coefficients))
    return total


def gaussian(s: float, kinks: tuple[float, ...]) -> tuple[torch.Tensor, torch.Tensor]:
    """Nodes of N(0, s^2) with their weights, split at the kinks."""
    nodes, weights = np.polynomial.legendre.leggauss(30)
    edges = np.unique(np.clip([*np.linspace(-10, 10, 21), *(k / s for k in kinks)], -10, 10))
    half = np.diff(edges)[:, None] / 2
    x = (edges[:-1, None] + half * (nodes + 1)).ravel()
    return torch.from_numpy(s * x), torch.from_numpy(
        (half * weights).ravel() * np.exp(-x * x / 2) / math.sqrt(math.tau)
    )


@pytest.mark.parametrize("phi", CASES, ids=str)
def test_pieces_are_the_function(phi):
    found = pieces(phi)
    z = torch.linspace(-12, 12, 401, dtype=torch.float64) + 1e-3
    torch.testing.assert_close(value(found, z), phi.function(z), rtol=1e-12, atol=1e-12)
    assert [(t, side) for t, side, _ in found.corners] == [(t, 1 if t >= 0 else -1) for t in phi.kinks]


@pytest.mark.parametrize("phi", [p for p in CASES if str(p) != "jump"], ids=str)
def test_derivative(phi):
    z = (torch.linspace(-9, 9, 181, dtype=torch.float64) + 1e-3).requires_grad_()
    (slope,) = torch.autograd.grad(phi.function(z).sum(), z)
    torch.testing.assert_close(value(pieces(phi).derivative(), z.detach()), slope, rtol=1e-12, atol=1e-12)


def test_a_jump_has_no_derivative():
    with pytest.raises(InputError, match="jump jumps"):
        pieces(CASES[3]).derivative()


@pytest.mark.parametrize(
    "phi",
    [
        activation("tanh", torch.tanh),
        activation("quartic", lambda z: z**4 + z),
        activation("far", lambda z: torch.where(z.abs() > 25, z * 0, z)),  # changes beyond the samples
        activation("undeclared", lambda z: (z - 1).relu()),
        activation("narrow", lambda z: z + torch.exp(-1000 * (z - 0.2) ** 2)),  # between the points of a fit
        activation("narrow power", lambda z: z**3 + torch.exp(-1000 * (z - 0.2) ** 2)),
        activation("half a power", lambda z: z.abs() ** 2.5),
        activation("zero", lambda z: 0 * z.tanh() + 0 * z.exp()),
        activation("overflows", lambda z: torch.exp(12 * z * z)),
        activation("ends", lambda z: torch.log(5 + z)),
    ],
    ids=str,
)
def test_no_pieces(phi):
    assert pieces(phi) is None


@pytest.mark.parametrize("phi", CASES, ids=str)
@pytest.mark.parametrize("s", [0.2, 1.0, 5.0])
def test_expectations_of_one_variable(phi, s):
    """The mean, the product of means at rho = 0, and the second moments at rho = 1 and -1, against one integral."""
    found = pieces(phi)
    z, w = gaussian(s, (*phi.kinks, *(-k for k in phi.kinks)))
    q = torch.tensor(s * s, dtype=torch.float64)
    mean, square, opposite = (w @ phi.function(z), w @ phi.function(z) ** 2, w @ (phi.function(z) * phi.function(-z)))
    atol = 1e-13 * float(square.sqrt().clamp_min(1))
    torch.testing.assert_close(piecewise_mean(found, Pair(q, q, q)), mean, rtol=1e-12, atol=atol)
    for rho, exact in ((0.0, mean**2), (1.0, square), (-1.0, opposite)):
        torch.testing.assert_close(
            piecewise_dual(found, Pair(rho * q, q, q), tangent=False)[0],
            exact,
            rtol=1e-11,
            atol=1e-12 * float(square + 1),
        )
    for j in range(4):
        hermite = torch.from_numpy(np.polynomial.hermite_e.hermeval((z / s).numpy(), [0] * j + [1]))
        centre = sum(c * z**k for k, c in enumerate(found.centre)) + torch.zeros_like(z)
        moments = _hermite_moments(found.centre, q.sqrt())
        expected = moments[j] if j < len(moments) else torch.zeros_like(q)
        torch.testing.assert_close(w @ (centre * hermite), expected, rtol=1e-11, atol=1e-10)
        corners = sum(_corner_moments(*corner, q.sqrt(), 3)[j] for corner in found.corners)
        torch.testing.assert_close(w @ ((phi.function(z) - centre) * hermite), corners, rtol=1e-10, atol=1e-10)


def test_tangent_is_the_dual_of_the_derivative():
    q1, q2, k = (torch.tensor(v, dtype=torch.float64) for v in (1.3, 0.4, 0.2))
    found = pieces(CUBIC)
    value, slope = piecewise_dual(found, Pair(k, q1, q2), tangent=True)
    torch.testing.assert_close(slope, piecewise_dual(found.derivative(), Pair(k, q1, q2), tangent=False)[0])
    k.requires_grad_()
    graded, _ = piecewise_dual(found, Pair(k, q1, q2), tangent=False)
    torch.testing.assert_close(graded, value, rtol=1e-14, atol=0)
    (price,) = torch.autograd.grad(graded, k)
    torch.testing.assert_close(price, slope)  # Price's theorem: dE[f f]/dk = E[f' f']


@pytest.mark.parametrize(("bend", "found"), [(1.5e-12, True), (0.7e-12, False)])
def test_rounding_is_no_corner(bend: float, found: bool) -> None:
    """Coefficients below 1e-12 of the largest are rounding."""
    ((t, side, jump),) = pieces(activation(f"bend {bend}", lambda z: 1 + z + bend * z.relu(), 0.0)).corners
    assert (t, side) == (0.0, 1)
    assert jump[1:] == (pytest.approx(bend, rel=0.1) if found else 0.0, *jump[2:])


@pytest.mark.parametrize(("error", "found"), [(1.5e-12, True), (0.7e-12, False)])
def test_rounding_is_no_difference(error: float, found: bool) -> None:
    """Values that deviate by more than 1e-12 are another function's, relative to each and at least to the largest / 1000."""
    z, line = np.array([1e-6, 1.0, 10.0]), np.polynomial.Polynomial([0.0, 1.0])
    for bound in ([0.01, 0, 0], [0, 1.0, 0], [0, 0, 10.0]):
        assert _differs(line, z, z + error * np.array(bound)) is found


@pytest.mark.parametrize("side", [-1, 1])
def test_how_far_away_a_function_is_looked_at(side):
    """A thousand beyond the samples: not as far as where this one, a rectifier otherwise, overflows."""
    found = pieces(activation("overflow", lambda z: z.relu() + 0 * torch.exp(side * z / 2), 0.0))
    assert found is not None and found.corners == ((0.0, 1, (0.0, 1.0)),)
    assert pieces(activation("bent far away", lambda z: z.relu() + (side * z - 900).relu(), 0.0)) is None


@pytest.mark.parametrize("n", [1, 2, 4, 7, 12])
@pytest.mark.parametrize("declared", [True, False])
def test_powers(n, declared):
    """For relu(z)^n, polar coordinates leave E = (s1 s2)^n 2^n n! / (2 pi) int cos^n(t) cos^n(t - psi) dt."""
    phi = activation(f"power {n}", lambda z: z.relu() ** n, *(0.0,) * declared)
    found = pieces(phi)
    assert (len(found.centre), len(found.corners)) == (n + 1, 1)
    x, w = np.polynomial.legendre.leggauss(60)
    for rho, q1, q2 in ((1.0, 1.0, 1.0), (0.9, 1e-8, 3.0), (-0.4, 2.0, 50.0), (-1.0, 1.0, 1.0)):
        psi = np.arccos(rho)
        t = (psi - np.pi / 2) + (np.pi - psi) * (x + 1) / 2
        k, v1, v2 = (torch.tensor([v], dtype=torch.float64) for v in (rho * (q1 * q2) ** 0.5, q1, q2))
        got = piecewise_dual(found, Pair(k, v1, v2), tangent=True)
        for m, value in ((n, got[0]), (n - 1, got[1])):
            scale = 2.0**m * math.factorial(m) * (1 if m == n else n * n) * (q1 * q2) ** (m / 2)
            exact = scale / (2 * np.pi) * (w @ (np.cos(t) ** m * np.cos(t - psi) ** m)) * (np.pi - psi) / 2
            assert float(value[0]) == pytest.approx(exact, rel=1e-11, abs=1e-13 * scale)


def test_powers_of_both_signs():
    cube = pieces(activation("leaky cube", lambda z: torch.where(z > 0, 3 * z, z / 2) ** 3))
    assert cube.centre == (0.0, 0.0, 0.0, 0.125) and cube.corners == ((0.0, 1, (0.0, 0.0, 0.0, 26.875)),)
    line = pieces(activation("cube", lambda z: 2 * z**3))
    assert line.centre == (0.0, 0.0, 0.0, 2.0) and line.corners == ()
    q = torch.tensor([1e-10], dtype=torch.float64)
    assert float(piecewise_dual(line, Pair(q, q, q), tangent=False)[0][0]) == pytest.approx(60e-30, rel=1e-13)
