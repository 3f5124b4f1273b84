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
from ntkit._src.program import Activation
from ntkit.errors import InputError

from ._closed_forms import jump_message
from ._mehler import BANDS, mehler_fields, mehler_reaches
from ._pair import Pair
from ._panels import COARSE, FINE, RADIUS, Fields, panel_fields, panel_moments
from ._partition import Partition, jumps, partition
from ._warning import warn_inaccurate

__all__ = ["integrable", "kinked_dual", "kinked_mean"]

# log2 of the ratio of the largest to the smallest variance in a cell; the error is measured once per cell
_OCTAVES = 4
_MOST_EDGES = 800  # edges of the partition within reach: an entry costs up to their number squared
# Where a cell is compared with a finer rule: positions of both variances in their cells, and the correlation.
_CHECKS = (
    (0.3, 0.3, 1.0),
    (0.3, 0.3, 1 - 1e-5),
    (0.31, 0.3, 0.997),
    (0.9, 0.6, -0.99),
    (0.9, 0.1, 0.95),
    (0.5, 0.8, -0.5),
)


def integrable(phi: Activation, q: Tensor) -> Tensor:
    """Return for which variances an entry can be integrated within seconds: not if the function has too many features."""
    cells = _cells(q.detach())
    bad = [c for c in torch.unique(cells).tolist() if len(_reached(phi, _bounds(c, c)[1]).edges) > _MOST_EDGES]
    return ~torch.isin(cells, torch.tensor(bad, dtype=cells.dtype, device=cells.device))


def _reached(phi: Activation, largest: float) -> Partition:
    """Return the partition of the range that Gaussians with variances up to the largest reach."""
    return partition(phi, math.ceil(math.log2(RADIUS * math.sqrt(largest))))


def kinked_dual(phi: Activation, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """E[phi phi] and, if ``tangent``, E[phi' phi'].

    ``phi.function`` is evaluated in float64 on the CPU, whatever the dtype and device of the pair.
    """
    jump = jumps(phi)
    if tangent and jump:
        raise InputError(jump_message(str(phi)))
    shape = pair.rho.shape
    if not pair.rho.numel():
        empty = torch.zeros_like(pair.rho)
        return empty, empty if tangent else None
    differentiable = differentiated(pair.rho, pair.q1, pair.q2)
    arguments = [as_constant(t) for t in (pair.rho, pair.q1, pair.q2)]
    with without_derivatives():
        rho, q1, q2 = (t.expand(shape).reshape(-1).to("cpu", torch.float64) for t in arguments)
        _check_cells(phi, q1, q2)
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


def kinked_mean(phi: Activation, q: Tensor) -> Tensor:
    """E phi(u) for u ~ N(0, q), q positive of any shape."""
    fixed = as_constant(q)
    with without_derivatives():
        s, index = torch.unique(fixed.reshape(-1).to("cpu", torch.float64).sqrt(), return_inverse=True)
        for cell in torch.unique(_cells(s * s)).tolist():
            warn_inaccurate(phi, _bounds(cell, cell), _mean_error(phi, cell))
        value, along = panel_moments(phi, s)[0][:, index].reshape(2, *q.shape).to(fixed).unbind()
    return value + along / (2 * q.detach()) * (q - q.detach())


def _fields(phi: Activation, s1: Tensor, s2: Tensor, rho: Tensor, differentiable: bool) -> Fields:
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


def _check_cells(phi: Activation, q1: Tensor, q2: Tensor) -> None:
    """Issue a :class:`QuadratureWarning` for every pair of cells whose expectations are too inaccurate."""
    cells = torch.stack([_cells(q1), _cells(q2)]).sort(dim=0).values
    for low, high in torch.unique(cells, dim=1).T.tolist():
        warn_inaccurate(phi, _bounds(low, high), _error(phi, low, high))


@lru_cache(maxsize=256)
@constant
def _error(phi: Activation, cell1: int, cell2: int) -> float:
    """Compare the rules with a finer one at a few points of a pair of cells: the largest relative error."""
    first, second, rho = torch.tensor(_CHECKS, dtype=torch.float64, device="cpu").T
    s1, s2 = (_deviations(cell, t) for cell, t in ((cell1, first), (cell2, second)))
    found = _fields(phi, s1, s2, rho, False)[:, 0]
    exact = panel_fields(phi, s1, s2, rho, FINE, graded=False)[:, 0]
    one = torch.ones_like(rho)
    scale = torch.sqrt(
        panel_fields(phi, s1, s1, one, graded=False)[:, 0] * panel_fields(phi, s2, s2, one, graded=False)[:, 0]
    )
    return float(((found - exact).abs() / scale.clamp_min(1e-300)).max())


@lru_cache(maxsize=256)
@constant
def _mean_error(phi: Activation, cell: int) -> float:
    """Return the same of E phi(u) on one cell."""
    s = _deviations(cell, torch.tensor([0.1, 0.3, 0.6, 0.9], dtype=torch.float64, device="cpu"))
    found, exact = (panel_moments(phi, s, rule)[0, 0] for rule in (COARSE, FINE))
    scale = panel_fields(phi, s, s, torch.ones_like(s), graded=False)[0, 0].sqrt()
    return float(((found - exact).abs() / scale.clamp_min(1e-300)).max())


def _bounds(cell1: int, cell2: int) -> tuple[float, float]:
    """Return the smallest and the largest variance of two cells, the first not above the second."""
    return 2.0 ** (_OCTAVES * cell1), 2.0 ** (_OCTAVES * (cell2 + 1))


def _deviations(cell: int, position: Tensor) -> Tensor:
    """Return the standard deviations at positions from 0 to 1 of a cell, in the logarithm."""
    return torch.exp2((cell + position) * (_OCTAVES / 2))
