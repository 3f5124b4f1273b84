"""Gaussian integrals without a closed form: a rule for pairs of correlated Gaussians.

Write u = s1 x, v = s2 y with x, y standard Gaussians of correlation rho = cos(psi). The lines x = 0 and y = 0 cut the
plane into four sectors, two of opening pi - psi (x and y agree in sign) and two of opening psi. In polar coordinates
around their common corner, in a sector of opening omega,

    x = r sin(a),  y = +-r sin(omega - a),  density r exp(-r^2 / 2) / (2 pi),  0 < a < omega,  r > 0,

which has no singularity for any rho, +-1 included. Both r and a are integrated by double-exponential rules (Takahasi
and Mori 1974), whose nodes accumulate at r = 0 and at the sector's edges. That does three things at once: a kink of
the function at zero costs nothing, a function as narrow as tanh(200 z) is seen at its own scale, and the nodes do
not depend on s1, s2, so all pairs of variances share the function's values and the sum is a matrix product.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from ntkit._src.common import all_finite, as_constant, constant, without_derivatives
from ntkit._src.program import Activation
from ntkit.errors import InputError

# Steps of the two trapezoidal sums (radius, angle); errors fall like exp(-const / step), see tests/rules.
STEP = (0.09, 0.07)
_OMITTED = 1e-19  # nodes of a smaller weight, relative to the largest, are left out


def density(x: Tensor) -> Tensor:
    """Return the standard Gaussian density."""
    return torch.exp(-x * x / 2) / math.sqrt(2 * math.pi)


@lru_cache(maxsize=8)
@constant
def legendre(nodes: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of Gauss-Legendre on [0, 1]."""
    x, w = np.polynomial.legendre.leggauss(nodes)
    return torch.from_numpy((x + 1) / 2), torch.from_numpy(w / 2)


def hermite_functions(x: Tensor, terms: int) -> Tensor:
    """He_n(x) exp(-x^2 / 4) / sqrt(n!) in a new first axis."""
    out = x.new_empty(terms, *x.shape)
    out[0] = torch.exp(-x * x / 4)
    if terms > 1:
        out[1] = x * out[0]
    for n in range(1, terms - 1):
        torch.mul(x, out[n], out=out[n + 1])
        out[n + 1].sub_(out[n - 1], alpha=math.sqrt(n)).div_(math.sqrt(n + 1))
    return out


def _radii(step: float, power: int) -> tuple[Tensor, Tensor]:
    """Nodes and weights of int_0^inf g(r) r^power exp(-r^2 / 2) dr by the substitution r = exp(t - exp(-t))."""
    # The first node leaves out a mass of r^(power + 1) < 1e-16.
    t = torch.arange(-2.95 if power else -3.55, 2.4, step, dtype=torch.float64, device="cpu")
    r = torch.exp(t - torch.exp(-t))
    return r, step * (1 + torch.exp(-t)) * r ** (power + 1) * torch.exp(-r * r / 2)


def _fractions(step: float) -> tuple[Tensor, Tensor]:
    """Nodes and weights of int_0^1 g(a) da by the substitution a = 1 / (1 + exp(-pi sinh t)); symmetric about 1/2."""
    half = int(3.1 / step)
    t = torch.arange(-half, half + 1, dtype=torch.float64, device="cpu") * step
    a = torch.sigmoid(math.pi * torch.sinh(t))
    return a, step * math.pi * torch.cosh(t) * a * a.flip(0)


def sample(phi: Activation, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return phi and its derivative at ``z`` (float64, CPU), infinite or nan perhaps; refuse what is not elementwise."""
    z = as_constant(z)
    with without_derivatives(), torch.enable_grad():
        z = z.clone().requires_grad_()
        y: Any = phi(z)  # a user's function may return anything
        if not isinstance(y, Tensor) or y.shape != z.shape or y.dtype != z.dtype:
            got = f"{tuple(y.shape)}, {y.dtype}" if isinstance(y, Tensor) else type(y).__name__
            raise InputError(
                f"The function of activation {phi} must map a tensor to one of the same shape and dtype, here "
                f"{tuple(z.shape)}, {z.dtype}. Got {got}. Write it with elementwise torch operations on its argument."
            )
        if not y.requires_grad:
            raise InputError(
                f"The function of activation {phi} must be differentiable by torch autograd. Got a result that does "
                "not depend on its argument for autograd; write it with torch operations, without detach or numpy."
            )
        (slope,) = torch.autograd.grad(y.sum(), z)
        few = z.detach().reshape(-1)[:3]
        # Library functions may round differently on vectors and remainders, hence the tolerance.
        alone, beside = phi(few), y.detach().reshape(-1)[:3]
        elementwise = torch.allclose(alone, beside, rtol=1e-9, atol=1e-300, equal_nan=True)
    if not elementwise:
        raise InputError(
            f"The function of activation {phi} must act on each element alone. Got values that depend on the other "
            "elements; write normalisations and softmax as layers of the module, not as an activation."
        )
    return y.detach(), slope


def evaluate(phi: Activation, z: Tensor) -> tuple[Tensor, Tensor]:
    """Return what :func:`sample` does; refuse a function that is not finite there."""
    y, slope = sample(phi, z)
    if not (all_finite(y) and all_finite(slope)):
        bad = z.detach()[~(torch.isfinite(y) & torch.isfinite(slope))]
        nearest = bad[bad.abs().argmin()].item()
        raise InputError(
            f"The function of activation {phi} and its derivative must be finite for |z| <= {z.abs().max():.3g}, which "
            f"Gaussians of this variance reach. Got a value that is not finite at z = {nearest:.6g}. Rewrite it to be "
            "finite there, or rescale the inputs."
        )
    return y, slope


def moments(phi: Activation, s: Tensor, step: tuple[float, float] = STEP) -> Tensor:
    """E f(s x), E f'(s x), E f(s x)^2 and E f'(s x)^2 for a standard Gaussian x: shape (4, *s.shape)."""
    r, w = _radii(step[0], power=0)
    w = w / math.sqrt(2 * math.pi)
    f, g = evaluate(phi, s[..., None] * torch.cat([r, -r]))
    return torch.stack([f, g, f * f, g * g]) @ torch.cat([w, w])


@lru_cache(maxsize=4)
@constant
def _plane(step: tuple[float, float]) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes of a sector of any opening: radius, fraction of the angle, and weight for an opening of 1, shape (2, n) each.

    The fractions of the second row are one minus those of the first: f at y is f at x with the rows exchanged.
    """
    r, wr = _radii(step[0], power=1)
    a, wa = _fractions(step[1])
    half = (len(a) + 1) // 2
    a, wa = torch.stack([a[:half], a.flip(0)[:half]]), wa[:half].clone()
    wa[-1] /= 2  # the node in the middle is in both rows
    weight = torch.outer(wr, wa) / (2 * math.pi)
    kept = weight > _OMITTED * weight.max()
    radius = r[:, None].expand_as(weight)[kept].expand(2, -1)
    fraction = a[:, None].expand(2, *weight.shape)[:, kept]
    return radius, fraction, weight[kept]


def sector_expectations(
    phi: Activation, s1: Tensor, s2: Tensor, psi: Tensor, step: tuple[float, float] = STEP
) -> tuple[Tensor, Tensor]:
    """E[f(s1 x) f(s2 y)] and E[f'(s1 x) f'(s2 y)], shape (m, n1, n2) each.

    For all pairs of deviations s1 (n1,) and s2 (n2,) and all correlations cos(psi), psi in [0, pi] of shape (m,).
    """
    r, a, weight = _plane(step)
    same = s1 is s2 or torch.equal(s1, s2)
    s = s1 if same else torch.cat([s1, s2])
    out = torch.zeros(2, len(psi), len(s1), len(s2), dtype=torch.float64)
    for omega, uses in _sectors(psi).items():
        x = r * torch.sin(omega * a)
        for i, f in enumerate(evaluate(phi, s[:, None, None, None] * torch.stack([x, -x]))):
            left, right = f[: len(s1)] * (weight * omega), f[-len(s2) :]
            for m, agree in uses:
                for sign in (0, 1):
                    other = sign if agree else 1 - sign
                    for row in (0, 1):
                        out[i, m].addmm_(left[:, sign, row], right[:, other, 1 - row].T)
    return out[0], out[1]


def _sectors(psi: Tensor) -> dict[float, list[tuple[int, bool]]]:
    """Return the openings, and for each the angles that have such sectors, and whether x and y agree in sign there.

    An opening often belongs to two angles: to psi with different signs, and to pi - psi with equal ones.
    """
    uses: dict[float, list[tuple[int, bool]]] = {}
    for m, angle in enumerate(psi.tolist()):
        for omega, agree in ((math.pi - angle, True), (angle, False)):
            near = next((known for known in uses if abs(known - omega) < 1e-14), omega)
            uses.setdefault(near, []).append((m, agree))
    return uses
