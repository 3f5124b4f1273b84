"""Two correlated Gaussians in the coordinates that the rules need, safe where they coincide or vanish."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ntkit.common import differentiated

__all__ = ["Pair", "half_apart", "safe_sqrt"]

# Variances below this (standard deviation 1e-15) are taken as zero by rules that divide by a deviation.
_SMALLEST = 2.0**-100
# Below this, derivatives with respect to the variance are rounding noise (an error of eps in the value, divided by q), and
# # their contribution to a derivative with respect to the network's input, of order sqrt(q), is below 1e-9: they are set to zero.
_SMALLEST_WITH_GRADIENT = 2.0**-64
_CLOSE = 0.9  # the correlation above which 1 - rho is computed from h


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root of x >= 0 whose derivative at 0 is 0 instead of infinity."""
    positive = x > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, x, 1.0)), 0.0)


def half_apart(h: Tensor, s1: Tensor, s2: Tensor) -> tuple[Tensor, Tensor]:
    """Return s1 s2 - k = h - (s1 - s2)^2 / 2, and where it is known; elsewhere it and its derivative are zero.

    For inputs that differ only by a factor, it is zero up to the rounding of s1 and s2.
    """
    apart = h - (s1 - s2) ** 2 / 2
    known = apart.detach() > 4 * torch.finfo(h.dtype).eps * ((s1 - s2).abs() * (s1 + s2)).detach()
    return torch.where(known, apart, 0.0).detach() + (apart - apart.detach()), known


class Pair:
    """Two centred Gaussians, u = s1 x and v = s2 y with corr(x, y) = rho, in the coordinates that the rules need.

    Attributes
    ----------
    k
        Covariance, any shape, clipped to |k| <= sqrt(v1 v2).
    v1, v2
        Variances as given, with as many axes as ``k``.
    product
        sqrt(v1 v2), with derivative 0 where it vanishes.
    h
        (v1 + v2) / 2 - k if it is known to more digits than k, or None.
    rho
        Correlation, clipped to [-1, 1]; 0 where a variance vanishes. Derivatives pass through the clipping.
    gap
        1 - |rho|, from ``h`` where rho is near one: 1 - rho = (h - (s1 - s2)^2 / 2) / (s1 s2).
    q1, q2, s1, s2
        Variances and deviations bounded away from zero, for rules that divide by them.
    """

    def __init__(self, k: Tensor, q1: Tensor, q2: Tensor, h: Tensor | None = None) -> None:
        self.h = h
        self.v1, self.v2 = (q.reshape((1,) * (k.ndim - q.ndim) + tuple(q.shape)) for q in (q1, q2))
        self.product = safe_sqrt(self.v1) * safe_sqrt(self.v2)
        self._nonzero = (self.v1 > _SMALLEST) & (self.v2 > _SMALLEST)
        raw = torch.where(self._nonzero, k / torch.where(self._nonzero, self.product, 1.0), 0.0)
        # Two copies of one input have rho = 1 up to rounding, and an error of eps in rho is an error of sqrt(eps) in the
        # # angle, hence in E[phi' phi'] of a ReLU: correlations this close to +-1 are set to +-1.
        eps = torch.finfo(k.dtype).eps
        near = raw.detach().abs() >= 1 - 8 * eps
        rho, gap = raw, 1 - raw.abs()
        if h is not None:
            close = self._nonzero & (raw.detach() > _CLOSE)
            apart, known = half_apart(h, safe_sqrt(self.v1), safe_sqrt(self.v2))
            near = torch.where(close, ~known, near)
            gap = torch.where(close, apart / torch.where(self._nonzero, self.product, 1.0), gap)
            rho = torch.where(close, 1 - gap, raw)
        self.gap = torch.where(near, 0.0, gap).detach() + (gap - gap.detach())
        self.rho = torch.where(near, torch.sign(raw), rho).detach() + (rho - rho.detach())
        self.k = torch.where(near, self.product * self.rho, k).detach() + (k - k.detach())
        self.q1, self.q2 = (
            torch.where(v > _SMALLEST_WITH_GRADIENT, v, v.detach()).clamp_min(_SMALLEST) for v in (self.v1, self.v2)
        )
        self.s1, self.s2 = torch.sqrt(self.q1), torch.sqrt(self.q2)

    @cached_property
    def c_squared(self) -> Tensor:
        """1 - rho^2."""
        return self.gap * (1 + self.rho.abs())

    @cached_property
    def c(self) -> Tensor:
        """sqrt(1 - rho^2), with derivative 0 where it vanishes."""
        return safe_sqrt(self.c_squared)

    @cached_property
    def theta(self) -> Tensor:
        """asin(rho), with derivative 0 at rho = +-1."""
        return torch.atan2(self.rho, self.c)

    @property
    def graded(self) -> bool:
        """Whether torch may ask for a derivative with respect to k."""
        return differentiated(self.rho)

    def price(self, value: Tensor, slope: Tensor) -> Tensor:
        """Return ``value``, computed at fixed rho, with the derivative E[phi' phi'] = ``slope`` in k (Price 1958)."""
        along = self.product.detach() * (self.rho - self.rho.detach())
        return value + slope.detach() * torch.where(self._nonzero, along, self.k - self.k.detach())
