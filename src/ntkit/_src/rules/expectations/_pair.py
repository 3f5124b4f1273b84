"""Two correlated Gaussians in the coordinates that the rules need, safe where they coincide or vanish."""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor

from ntkit._src.common import differentiated

# Variances below this (standard deviation 1e-15) are taken as zero by rules that divide by a deviation.
_SMALLEST = 2.0**-100
# Below this, derivatives with respect to the variance are rounding noise (an error of eps in the value, divided by q), and
# their contribution to a derivative with respect to the network's input, of order sqrt(q), is below 1e-9: they are set to zero.
_SMALLEST_WITH_GRADIENT = 2.0**-64
_CLOSE = 0.9  # the correlation above which 1 - rho is computed from h


def safe_sqrt(x: Tensor) -> Tensor:
    """Square root of x >= 0 whose derivative at 0 is 0 instead of infinity."""
    if not differentiated(x):
        return x.clamp_min(0.0).sqrt_()
    positive = x > 0
    return torch.where(positive, torch.sqrt(torch.where(positive, x, 1.0)), 0.0)


def half_apart(h: Tensor, s1: Tensor, s2: Tensor) -> tuple[Tensor, Tensor]:
    """Return s1 s2 - k = h - (s1 - s2)^2 / 2, and where it is known; elsewhere it and its derivative are zero.

    For inputs that differ only by a factor, it is zero up to the rounding of s1 and s2.
    """
    between = s1 - s2
    apart = torch.addcmul(h, between, between, value=-0.5)
    eps = 4 * torch.finfo(h.dtype).eps
    known = apart.detach() > (eps * s1.detach() ** 2 - eps * s2.detach() ** 2).abs()
    return _through(torch.where(known, apart, 0.0), apart), known


def _through(value: Tensor, source: Tensor) -> Tensor:
    """Return ``value`` with the derivatives of ``source``."""
    return value.detach() + (source - source.detach()) if differentiated(source) else value


class Pair:
    """Two centred Gaussians, u = s1 x and v = s2 y with corr(x, y) = rho, in the coordinates that the rules need.

    ``v1``, ``v2`` are the variances as given, with as many axes as ``k``; ``q1``, ``q2``, ``s1``, ``s2`` variances and deviations
    bounded away from zero, for rules that divide by them; ``product`` is sqrt(v1 v2), with derivative 0 where it vanishes.
    ``rho`` is clipped to [-1, 1], and 0 where a variance vanishes; derivatives pass through the clipping. ``gap`` is 1 - |rho|,
    from ``h`` where rho is near one: 1 - rho = (h - (r s1 - s2)^2 / 2) / (r s1 s2). ``h`` and ``ratio`` are those of ``dual``.
    """

    def __init__(self, k: Tensor, q1: Tensor, q2: Tensor, h: Tensor | None = None, ratio: Tensor | None = None) -> None:
        self.h, self.ratio = h, ratio
        self.v1, self.v2 = (q.reshape((1,) * (k.ndim - q.ndim) + tuple(q.shape)) for q in (q1, q2))
        deviations = safe_sqrt(self.v1), safe_sqrt(self.v2)
        self.product = deviations[0] * deviations[1]
        self._nonzero = self.v1 > _SMALLEST, self.v2 > _SMALLEST
        raw = self._correlation(k)
        # Two copies of one input have rho = 1 up to rounding, and an error of eps in rho is an error of sqrt(eps) in the
        # angle, hence in E[phi' phi'] of a ReLU: correlations this close to +-1 are set to +-1.
        eps = torch.finfo(k.dtype).eps
        size = raw.abs()
        near = size.detach() >= 1 - 8 * eps
        rho, gap = raw, 1 - size
        if h is not None:
            close = raw.detach() > _CLOSE  # false where a variance vanishes
            if ratio is None:
                apart, known = half_apart(h, *deviations)
            else:
                apart, known = half_apart(h, ratio * deviations[0], deviations[1])
                apart = apart / ratio
            near = torch.where(close, ~known, near)
            gap = torch.where(close, self._correlation(apart), gap)
            rho = torch.where(close, 1 - gap, raw)
        self._near = near if differentiated(k, raw) or bool(near.any()) else None
        self._k = k
        self.gap = gap if self._near is None else _through(torch.where(near, 0.0, gap), gap)
        self.rho = rho if self._near is None else _through(torch.where(near, torch.sign(raw), rho), rho)
        self.q1, self.q2 = (
            torch.where(v > _SMALLEST_WITH_GRADIENT, v, v.detach()).clamp_min(_SMALLEST) for v in (self.v1, self.v2)
        )
        self.s1, self.s2 = torch.sqrt(self.q1), torch.sqrt(self.q2)

    def _correlation(self, k: Tensor) -> Tensor:
        """Return k / (s1 s2), and zero where a variance vanishes."""
        first, second = self._nonzero
        if not differentiated(k, self.product) and bool(first.all()) and bool(second.all()):
            return k / self.product
        nonzero = first & second
        return torch.where(nonzero, k / torch.where(nonzero, self.product, 1.0), 0.0)

    @cached_property
    def k(self) -> Tensor:
        """The covariance, clipped to |k| <= sqrt(v1 v2)."""
        if self._near is None:
            return self._k
        return _through(torch.where(self._near, self.product * self.rho, self._k), self._k)

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
        nonzero = self._nonzero[0] & self._nonzero[1]
        return value + slope.detach() * torch.where(nonzero, along, self.k - self.k.detach())
