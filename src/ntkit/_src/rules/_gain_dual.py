"""The tangent kernel of a trained affine weight followed by an activation."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.program import Activation

from .expectations import dual

__all__ = ["gain_dual"]


def gain_dual(phi: Activation, k: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """Return E[u phi'(u) v phi'(v)] for (u, v) ~ N(0, [[q1, k], [k, q2]]).

    It is the covariance of d phi(g z) / dg at g = 1. With D(k, q1, q2) = E[phi(u) phi(v)] it equals
    d/ds d/dt D(s t k, s^2 q1, t^2 q2) at s = t = 1; functions without a closed form are integrated numerically.
    """
    if phi.name == "rectified":  # homogeneous: z phi'(z) = phi(z)
        return dual(phi, k, q1, q2, tangent=False)[0]
    if phi.name == "polynomial":
        scaled = tuple(power * coefficient for power, coefficient in enumerate(phi.parameters))
        return dual(Activation("polynomial", scaled), k, q1, q2, tangent=False)[0]
    if phi.name == "quadrature":
        return dual(_times_derivative(phi), k, q1, q2, tangent=False)[0]
    one = torch.ones((), dtype=k.dtype, device=k.device)

    def in_t(s: Tensor) -> Tensor:
        def scaled_dual(t: Tensor) -> Tensor:
            return dual(phi, s * t * k, s * s * q1, t * t * q2, tangent=False)[0]

        return _slope(scaled_dual, one)

    return _slope(in_t, one)


@lru_cache(maxsize=64)
def _times_derivative(phi: Activation) -> Activation:
    function = phi.function
    assert function is not None

    def times_derivative(z: Tensor) -> Tensor:
        return z * _slope(function, z)

    return Activation("quadrature", function=times_derivative, kinks=phi.kinks, label=f"z d/dz {phi}")


def _slope(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    slope: Tensor = torch.func.jvp(function, (z,), (torch.ones_like(z),))[1]
    return slope
