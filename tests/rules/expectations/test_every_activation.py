"""Every class of activations is complete: what it claims of itself, its expectations by brute force, and both engines.

A new class fails here until it is in ``CASES``.
"""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest
import torch
from tests.native.networks import Function, compare, hard, normal
from torch import nn

import ntkit
from ntkit._src import program
from ntkit._src.native.families import ACTIVATIONS
from ntkit._src.rules.expectations import dual, gain_dual, mean
from ntkit.errors import InputError, UnsupportedLayerError

# The module that tracing must turn into an activation of each class, or of a subclass.
CASES: dict[type[program.Activation], list[nn.Module]] = {
    program.Rectified: [nn.ReLU(), nn.LeakyReLU(0.2), Function(torch.abs), Function(lambda z: torch.relu(z) + 2 * z)],
    program.Polynomial: [Function(torch.square), Function(lambda z: z**3), Function(lambda z: (1 - 0.5 * z) + z**2)],
    program.Erf: [Function(torch.erf)],
    program.GELU: [nn.GELU()],
    program.NormalCDF: [Function(torch.special.ndtr)],
    program.Sin: [Function(torch.sin)],
    program.Cos: [Function(torch.cos)],
    program.Exp: [Function(torch.exp)],
    program.Sinh: [Function(torch.sinh)],
    program.Cosh: [Function(torch.cosh)],
    program.Expm1: [Function(torch.expm1)],
    program.Sign: [Function(torch.sign)],
    program.Step: [Function(lambda z: torch.heaviside(z, torch.tensor(0.5, dtype=torch.float64)))],
    program.AnyFunction: [nn.Tanh(), nn.Softplus(), nn.Hardswish(), Function(lambda z: torch.sin(z) * torch.relu(z))],
    program.Discontinuous: [nn.Hardshrink(0.4), nn.Threshold(0.5, -1.0), nn.Threshold(-0.3, 0.2)],
    program.ExponentialUnit: [nn.ELU(0.7), nn.SELU(), nn.CELU(1.5)],
}
MODULES = [
    pytest.param(kind, module, id=f"{kind.__name__}-{i}")
    for kind, some in CASES.items()
    for i, module in enumerate(some)
]
PAIRS = [(1.0, 1.0), (0.3, 1.7)]
RHOS = (-1.0, -0.8, 0.0, 0.5, 0.95, 1.0)
NODES, WEIGHTS = np.polynomial.legendre.leggauss(12)
RADIUS = 11.0


def phi_of(module):
    net = nn.Sequential(nn.Linear(3, 4), module, nn.Linear(4, 1)).double()
    ops = [node.op for node in ntkit.infinite_width(net).program((3,)).nodes]
    return next(op.phi for op in reversed(ops) if isinstance(op, program.Pointwise))


def classes(kind=program.Activation):
    """All classes of the library that can be instantiated."""
    here = {kind} if kind.__name__ in vars(program) and not kind.__abstractmethods__ else set()
    return here.union(*(classes(sub) for sub in kind.__subclasses__()))


def test_no_class_is_missing():
    assert classes() == set(CASES)


def panels(edges):
    """Nodes and Gaussian weights of Gauss-Legendre between ascending edges (..., n): shapes (..., 12 (n - 1))."""
    low, width = edges[..., :-1, None], np.diff(edges)[..., None]
    x = low + width * (NODES + 1) / 2
    w = width * WEIGHTS / 2 * np.exp(-x * x / 2) / math.sqrt(math.tau)
    return x.reshape(*edges.shape[:-1], -1), w.reshape(*edges.shape[:-1], -1)


def expectation(f, kinks, q1, q2, rho):
    """E[f(u) f(v)] by two nested integrals, both split at the kinks; slow, and independent of the library."""
    s1, s2, tau = math.sqrt(q1), math.sqrt(q2), math.sqrt(1 - rho * rho)
    grid, kinks = np.linspace(-RADIUS, RADIUS, 67), np.array([*kinks, 0.0])
    if tau == 0:
        x, w = panels(np.sort(np.concatenate([grid, kinks / s1, rho * kinks / s2])))
        return w @ (f(s1 * x) * f(rho * s2 * x))
    x, w = panels(np.sort(np.concatenate([grid, kinks / s1])))
    inner = (kinks / s2 - rho * x[:, None]) / tau
    edges = np.concatenate([np.broadcast_to(grid[::3], (len(x), 23)), inner.clip(-RADIUS, RADIUS)], axis=1)
    z, v = panels(np.sort(edges, axis=1))
    return w @ (f(s1 * x) * (v * f(s2 * (rho * x[:, None] + tau * z))).sum(1))


def numpy_functions(phi):
    """phi and its derivative on numpy arrays."""

    def value(z):
        return phi(torch.from_numpy(np.ascontiguousarray(z))).detach().numpy()

    def slope(z):
        z = torch.from_numpy(np.ascontiguousarray(z)).requires_grad_()
        return torch.autograd.grad(phi(z).sum(), z)[0].numpy()

    return value, slope


@pytest.mark.parametrize(("kind", "module"), MODULES)
def test_claims(kind, module):
    """What a class says of its function is so."""
    phi = phi_of(module)
    assert type(phi) is kind and str(phi)
    z = normal(50)
    torch.testing.assert_close(phi(z), module(z), rtol=1e-14, atol=1e-15)
    if phi.odd:
        torch.testing.assert_close(phi(-z), -phi(z), rtol=1e-14, atol=1e-15)
    if phi.homogeneous:
        torch.testing.assert_close(phi(3 * z), 3 * phi(z), rtol=1e-14, atol=0)
    if (coefficients := phi.polynomial()) is not None:
        torch.testing.assert_close(phi(z), sum(c * z**power for power, c in enumerate(coefficients)))
    if (slopes := phi.slopes()) is not None:
        torch.testing.assert_close(phi(z), torch.where(z > 0, slopes[1], slopes[0]) * z)
    if (scaled := phi.times_derivative()) is not None:
        torch.testing.assert_close(scaled(z).numpy(), z.numpy() * numpy_functions(phi)[1](z.numpy()))


@pytest.mark.parametrize(("kind", "module"), MODULES)
def test_expectations_by_brute_force(kind, module):
    phi = phi_of(module)
    value, slope = numpy_functions(phi)

    def close(found, f, q1, q2, rho):
        scale = math.sqrt(expectation(f, phi.kinks, q1, q1, 1.0) * expectation(f, phi.kinks, q2, q2, 1.0))
        assert abs(float(found) - expectation(f, phi.kinks, q1, q2, rho)) < 1e-10 * max(scale, 1e-3), (q1, q2, rho)

    for (q1, q2), rho in itertools.product(PAIRS, RHOS):
        one, two = (torch.tensor(q, dtype=torch.float64) for q in (q1, q2))
        k = rho * torch.sqrt(one * two)
        if not phi.differentiable:
            close(dual(phi, k, one, two, tangent=False)[0], value, q1, q2, rho)
            continue
        found = dual(phi, k, one, two, tangent=True)
        close(found[0], value, q1, q2, rho)
        close(found[1], slope, q1, q2, rho)
        close(gain_dual(phi, k, one, two), lambda z: z * slope(z), q1, q2, rho)
    for q in (0.3, 1.7):
        x, w = panels(np.sort(np.concatenate([np.linspace(-RADIUS, RADIUS, 67), np.array([*phi.kinks, 0.0]) / q**0.5])))
        exact = w @ value(math.sqrt(q) * x)
        assert float(mean(phi, torch.tensor(q, dtype=torch.float64))) == pytest.approx(exact, rel=1e-11, abs=1e-12)


@pytest.mark.parametrize(("kind", "module"), MODULES)
def test_a_tangent_kernel_or_a_refusal(kind, module):
    phi, one = phi_of(module), torch.ones(1, dtype=torch.float64)
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 4), module, nn.Linear(4, 1)).double())
    if phi.differentiable:
        assert bool((limit.ntk(normal(2, 3)).diagonal() > 0).all())
        return
    with pytest.raises(InputError, match=r"jumps.*NNGP"):
        dual(phi, one, one, one, tangent=True)
    with pytest.raises(UnsupportedLayerError, match=r"limit\.nngp"):
        limit.ntk(normal(2, 3))


@pytest.mark.parametrize(("kind", "module"), [case for case in MODULES if case.values[0] in ACTIVATIONS])
def test_both_engines(kind, module):
    limit = ntkit.infinite_width(
        nn.Sequential(nn.Linear(3, 4), module, nn.Linear(4, 4), module, nn.Linear(4, 1)).double(), w_std=0.7, b_std=0.1
    )
    if limit.explain((3,)).reason is not None:  # kinks that no series of the native engine reaches
        assert kind is program.AnyFunction and phi_of(module).kinks
        return
    compare(limit, hard(nn.functional.normalize(normal(8, 3))))
