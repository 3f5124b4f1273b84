"""Gaussian expectations of any function: exact for piecewise polynomials, from a table where one serves, or entry by entry."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from ntkit._src.program import AnyFunction

from ._expectations import Expectations, register
from ._kinked import integrable, kinked_dual, kinked_mean
from ._pair import Pair
from ._partition import has_strong_kinks, jumps
from ._piecewise import pieces, piecewise_dual, piecewise_mean
from ._table import mean_tabulated, table_dual, table_mean, tabulated

__all__: list[str] = []


@register(AnyFunction)
class _AnyFunction(Expectations[AnyFunction]):
    """Polynomials of degree at most 3 between kinks exactly; smooth functions, but for a kink at zero, from a table.

    The others, and those that vary too quickly for a table at these variances, are integrated entry by entry (``_kinked``
    states the cost).
    """

    def dual(self, phi: AnyFunction, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
        if (polynomials := pieces(phi)) is not None and (tangent or not pair.graded or not jumps(phi)):
            return piecewise_dual(polynomials, pair, tangent)
        if has_strong_kinks(phi) or jumps(phi):
            return kinked_dual(phi, pair, tangent)
        good = tabulated(phi, pair.q1, pair.q2)
        if not bool(good.all()):
            good |= ~(integrable(phi, pair.q1) & integrable(phi, pair.q2))
        if bool(good.all()):
            return _tabulated(phi, pair, tangent)
        if not bool(good.any()):
            return kinked_dual(phi, pair, tangent)
        shape = pair.rho.shape
        entries = (pair.k, pair.v1, pair.v2, *(t for t in (pair.h, pair.ratio) if t is not None))

        def by(rule: Callable[..., tuple[Tensor, Tensor | None]]) -> Callable[..., list[Tensor]]:
            return lambda *some: [t for t in rule(phi, Pair(*some), tangent) if t is not None]

        value, *slope = _mixed(good.expand(shape), [t.expand(shape) for t in entries], by(_tabulated), by(kinked_dual))
        return value, slope[0] if tangent else None

    def mean(self, phi: AnyFunction, q: Tensor) -> Tensor:
        pair = Pair(q, q, q)
        if (polynomials := pieces(phi)) is not None:
            return piecewise_mean(polynomials, pair)
        if has_strong_kinks(phi) or jumps(phi):
            return kinked_mean(phi, pair.q1)
        good = mean_tabulated(phi, pair.q1)
        if not bool(good.all()):
            good |= ~integrable(phi, pair.q1)
        if bool(good.all()):
            return table_mean(phi, pair.q1)
        return _mixed(good, [pair.q1], lambda q: [table_mean(phi, q)], lambda q: [kinked_mean(phi, q)])[0]


def _mixed(
    good: Tensor, entries: Sequence[Tensor], first: Callable[..., list[Tensor]], second: Callable[..., list[Tensor]]
) -> list[Tensor]:
    """Apply the first rule to the entries where ``good``, the second to the others, and put the results back in order."""
    at = [torch.nonzero(mask.reshape(-1)).reshape(-1) for mask in (good, ~good)]
    flat = [t.reshape(-1) for t in entries]
    parts = [rule(*(t[some] for t in flat)) for rule, some in zip((first, second), at, strict=True) if len(some)]
    back = torch.argsort(torch.cat(at))
    return [torch.cat(results)[back].reshape(good.shape) for results in zip(*parts, strict=True)]


def _tabulated(phi: AnyFunction, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    # The angle has an infinite derivative at rho = +-1, so the derivative of the value with respect to rho does not come
    # from the table but from Price's theorem (1958), dE[phi phi]/dk = E[phi' phi'], which is finite there.
    value = table_dual(phi, 0, pair.theta.detach(), pair.q1, pair.q2)
    slope = table_dual(phi, 1, pair.theta, pair.q1, pair.q2) if tangent or pair.graded else None
    if slope is not None and pair.graded:
        value = pair.price(value, slope)
    return value, slope if tangent else None
