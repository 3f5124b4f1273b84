"""Gaussian expectations of any function: exact for piecewise polynomials, from a table where one serves, or entry by entry.

Where both inputs meet the same kink, E[phi' phi'] itself has a corner, along q1 = q2 at rho = 1 (and, between two kinks
b and c, at s1 / s2 = b / c), which no table resolves. Each entry is integrated instead: by Mehler's expansion up to
|rho| = 0.99, by panels beyond, both to about 1e-13 of sqrt(E phi(u)^2 E phi(v)^2). On one core, for functions of one to
three kinks and deviations between 1 and 2, value and slope of an entry cost about 6 to 9 us for |rho| < 0.9, 0.1 ms up
to 0.99 (with 100 entries for each variance, whose coefficients cost 0.2 to 3 ms), and 1 to 4 ms beyond.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.common import as_constant, constant, differentiated, without_derivatives
from ntkit._src.program import AnyFunction
from ntkit.errors import InputError, QuadratureError

from ._expectations import Expectations, jump_error, register
from ._limits import RADIUS, TOLERANCE, cell_bounds, cells, edge_octave, finite_reach, report_error
from ._mehler import BANDS, mehler_fields, mehler_reaches
from ._pair import Pair
from ._panels import COARSE, FINE, Fields, panel_fields, panel_moments
from ._partition import Partition, has_strong_kinks, jumps, partition
from ._piecewise import pieces, piecewise_dual, piecewise_mean
from ._table import mean_tabulated, table_dual, table_mean, tabulated

Range = tuple[float, float]
"""The smallest and the largest of some variances."""

_MOST_EDGES = 800  # edges of the partition within reach: an entry costs up to their number squared
# Where the rules are compared with a finer one: positions of both variances in their ranges, and the correlation.
_CHECKS = (
    (1.0, 1.0, 1.0),
    (0.3, 0.3, 1.0),
    (0.3, 0.3, 1 - 1e-5),
    (0.31, 0.3, 0.997),
    (0.9, 0.6, -0.99),
    (0.9, 0.1, 0.95),
    (0.5, 0.8, -0.5),
)


@register(AnyFunction)
class _AnyFunction(Expectations[AnyFunction]):
    """Polynomials of degree at most 3 between kinks exactly; smooth functions, but for a kink at zero, from a table.

    The others, and those that vary too quickly for a table at these variances, are integrated entry by entry (the module states
    the cost).
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


def integrable(phi: AnyFunction, q: Tensor) -> Tensor:
    """Return for which variances an entry can be integrated within seconds: not if the function has too many features."""
    cell = cells(q)
    bad = [c for c in torch.unique(cell).tolist() if len(_reached(phi, cell_bounds(c)[1]).edges) > _MOST_EDGES]
    return ~torch.isin(cell, torch.tensor(bad, dtype=cell.dtype, device=cell.device))


def _reached(phi: AnyFunction, largest: float) -> Partition:
    """Return the partition of the range that Gaussians with variances up to the largest reach."""
    return partition(phi, edge_octave(RADIUS * math.sqrt(largest)))


def kinked_dual(phi: AnyFunction, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """E[phi phi] and, if ``tangent``, E[phi' phi'].

    ``phi.function`` is evaluated in float64 on the CPU, whatever the dtype and device of the pair.
    """
    jump = jumps(phi)
    if tangent and jump:
        raise jump_error(phi)
    shape = pair.rho.shape
    if not pair.rho.numel():
        empty = torch.zeros_like(pair.rho)
        return empty, empty if tangent else None
    differentiable = differentiated(pair.rho, pair.q1, pair.q2)
    arguments = [as_constant(t) for t in (pair.rho, pair.q1, pair.q2)]
    with without_derivatives():
        rho, q1, q2 = (t.expand(shape).reshape(-1).to("cpu", torch.float64) for t in arguments)
        _check(phi, q1, q2, slopes=tangent or (pair.graded and not jump))
        fields = _fields(phi, torch.sqrt(q1), torch.sqrt(q2), rho, differentiable)
    fields = fields.reshape(2, 4, *shape).to(pair.rho)

    def linear(which: int, in_rho: bool) -> Tensor:
        """Value with its derivatives as a linear function of the arguments."""
        value, d1, d2, along = fields[which].unbind()
        if differentiable:
            for q, d in ((pair.q1, d1), (pair.q2, d2)):
                value = value + d / (2 * q.detach()) * (q - q.detach())
            if in_rho:
                value = value + along * (pair.rho - pair.rho.detach())
        return value

    # Price's theorem gives the derivative with respect to k even at rho = +-1, but not for a function that jumps.
    value = linear(0, in_rho=jump)
    if pair.graded and not jump:
        value = pair.price(value, fields[1, 0])
    return value, linear(1, in_rho=True) if tangent else None


def kinked_mean(phi: AnyFunction, q: Tensor) -> Tensor:
    """E phi(u) for u ~ N(0, q), q positive of any shape."""
    fixed = as_constant(q)
    with without_derivatives():
        s, index = torch.unique(fixed.reshape(-1).to("cpu", torch.float64).sqrt(), return_inverse=True)
        finite_reach(phi, s[-1:])  # the largest
        cell = cells(s * s)
        for c in torch.unique(cell).tolist():
            if not _mean_error(phi, cell_bounds(c)) <= TOLERANCE:
                variances = _extremes((s * s)[cell == c])
                report_error(phi, variances, _mean_error(phi, variances))
        value, along = panel_moments(phi, s)[0][:, index].reshape(2, *q.shape).to(fixed).unbind()
    return value + along / (2 * q.detach()) * (q - q.detach())


def _fields(phi: AnyFunction, s1: Tensor, s2: Tensor, rho: Tensor, differentiable: bool) -> Fields:
    out = torch.empty(2, 4, len(rho), dtype=torch.float64)
    expand = (rho.abs() <= BANDS[-1]) & mehler_reaches(phi, s1) & mehler_reaches(phi, s2)
    at = torch.nonzero(expand).reshape(-1)
    if len(at):
        out[:, :, at] = mehler_fields(phi, s1[at], s2[at], rho[at], differentiable)
    at = torch.nonzero(~expand).reshape(-1)
    if len(at):
        different, index = torch.unique(torch.stack([s1[at], s2[at], rho[at]]), dim=1, return_inverse=True)
        a, b, r = different.unbind()
        out[:, :, at] = panel_fields(phi, a, b, r, graded=differentiable)[:, :, index]
    return out


def _check(phi: AnyFunction, q1: Tensor, q2: Tensor, slopes: bool) -> None:
    """Warn or refuse if the expectations are too inaccurate, those of derivatives only if ``slopes``.

    The error is measured once for a pair of cells; where it is too large, once more for the variances at hand alone.
    """
    finite_reach(phi, torch.stack([q1.max(), q2.max()]).sqrt())
    pairs = torch.stack([cells(q1), cells(q2)])
    for low, high in torch.unique(pairs.sort(dim=0).values, dim=1).T.tolist():
        if not _error(phi, cell_bounds(low), cell_bounds(high), slopes) <= TOLERANCE:
            here = [(pairs[0] == a) & (pairs[1] == b) for a, b in ((low, high), (high, low))]
            first, second = (
                _extremes(torch.cat([first[here[0]], second[here[1]]])) for first, second in ((q1, q2), (q2, q1))
            )
            error = _error(phi, first, second, slopes)
            report_error(phi, (min(first[0], second[0]), max(first[1], second[1])), error)


@lru_cache(maxsize=256)
@constant
def _error(phi: AnyFunction, first: Range, second: Range, slopes: bool) -> float:
    """Compare the rules with a finer one for a few pairs of variances from two ranges: the largest relative error."""
    at1, at2, rho = torch.tensor(_CHECKS, dtype=torch.float64, device="cpu").T
    s1, s2 = _deviations(first, at1), _deviations(second, at2)
    try:
        found = _fields(phi, s1, s2, rho, False)[:, 0]
        exact = panel_fields(phi, s1, s2, rho, FINE, graded=False)[:, 0]
        one = torch.ones_like(rho)
        squares1, squares2 = (panel_fields(phi, s, s, one, graded=False)[:, 0] for s in (s1, s2))
    except (InputError, QuadratureError):  # somewhere in these ranges, which may be wider than the variances at hand
        return math.inf
    error = (found - exact).abs() / (squares1.sqrt() * squares2.sqrt()).clamp_min(1e-300)
    return _largest(error if slopes else error[0])


@lru_cache(maxsize=256)
@constant
def _mean_error(phi: AnyFunction, variances: Range) -> float:
    """Return the same of E phi(u) for one range of variances."""
    s = _deviations(variances, torch.tensor([0.1, 0.3, 0.6, 0.9, 1.0], dtype=torch.float64, device="cpu"))
    try:
        found, exact = (panel_moments(phi, s, rule)[0, 0] for rule in (COARSE, FINE))
        scale = panel_fields(phi, s, s, torch.ones_like(s), graded=False)[0, 0].sqrt()
    except (InputError, QuadratureError):
        return math.inf
    return _largest((found - exact).abs() / scale.clamp_min(1e-300))


def _largest(error: Tensor) -> float:
    return float(torch.nan_to_num(error, nan=math.inf, posinf=math.inf).max())


def _extremes(q: Tensor) -> Range:
    return float(q.min()), float(q.max())


def _deviations(variances: Range, position: Tensor) -> Tensor:
    """Return the standard deviations at positions from 0 to 1 of a range of variances, in the logarithm."""
    low, high = (math.log2(q) / 2 for q in variances)
    return torch.exp2(low + position * (high - low))
