"""Gaussian expectations of functions with kinks away from zero, or jumps, or that vary too quickly for a table.

Where both inputs meet the same kink, E[phi' phi'] itself has a corner, along q1 = q2 at rho = 1 (and, between two kinks
b and c, at s1 / s2 = b / c), which no table resolves. Each entry is integrated instead: by Mehler's expansion up to
|rho| = 0.99, by panels beyond, both to about 1e-13 of sqrt(E phi(u)^2 E phi(v)^2). On one core, for functions of one to
three kinks and deviations between 1 and 2, value and slope of an entry cost about 6 to 9 us for |rho| < 0.9, 0.1 ms up
to 0.99 (with 100 entries for each variance, whose coefficients cost 0.2 to 3 ms), and 1 to 4 ms beyond.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.common import as_constant, constant, differentiated, without_derivatives
from ntkit._src.program import AnyFunction
from ntkit.errors import InputError, QuadratureError

from ._expectations import jump_error
from ._mehler import BANDS, mehler_fields, mehler_reaches
from ._pair import Pair
from ._panels import COARSE, FINE, Fields, panel_fields, panel_moments
from ._partition import Partition, jumps, partition
from ._reach import RADIUS, edge_octave, finite_reach
from ._report import TOLERANCE, report_error

Range = tuple[float, float]
"""The smallest and the largest of some variances."""

__all__ = ["integrable", "kinked_dual", "kinked_mean"]

# log2 of the ratio of the largest to the smallest variance in a cell; the error is measured once per cell
_OCTAVES = 4
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


def integrable(phi: AnyFunction, q: Tensor) -> Tensor:
    """Return for which variances an entry can be integrated within seconds: not if the function has too many features."""
    cells = _cells(q.detach())
    bad = [c for c in torch.unique(cells).tolist() if len(_reached(phi, _bounds(c)[1]).edges) > _MOST_EDGES]
    return ~torch.isin(cells, torch.tensor(bad, dtype=cells.dtype, device=cells.device))


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
        cells = _cells(s * s)
        for cell in torch.unique(cells).tolist():
            if not _mean_error(phi, _bounds(cell)) <= TOLERANCE:
                variances = _extremes((s * s)[cells == cell])
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


def _cells(q: Tensor) -> Tensor:
    """Find the cell of each variance."""
    if not bool(torch.isfinite(q).all()):
        raise InputError("Variances must be finite. Got nan or infinity; check the inputs and the gains w_std, b_std.")
    return torch.floor(torch.log2(q) / _OCTAVES).long()


def _check(phi: AnyFunction, q1: Tensor, q2: Tensor, slopes: bool) -> None:
    """Warn or refuse if the expectations are too inaccurate, those of derivatives only if ``slopes``.

    The error is measured once for a pair of cells; where it is too large, once more for the variances at hand alone.
    """
    finite_reach(phi, torch.stack([q1.max(), q2.max()]).sqrt())
    cells = torch.stack([_cells(q1), _cells(q2)])
    for low, high in torch.unique(cells.sort(dim=0).values, dim=1).T.tolist():
        if not _error(phi, _bounds(low), _bounds(high), slopes) <= TOLERANCE:
            here = [(cells[0] == a) & (cells[1] == b) for a, b in ((low, high), (high, low))]
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


def _bounds(cell: int) -> Range:
    """Return the smallest and the largest variance of a cell."""
    return 2.0 ** (_OCTAVES * cell), 2.0 ** (_OCTAVES * (cell + 1))


def _extremes(q: Tensor) -> Range:
    return float(q.min()), float(q.max())


def _deviations(variances: Range, position: Tensor) -> Tensor:
    """Return the standard deviations at positions from 0 to 1 of a range of variances, in the logarithm."""
    low, high = (math.log2(q) / 2 for q in variances)
    return torch.exp2(low + position * (high - low))
