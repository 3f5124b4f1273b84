"""What numerical expectations are limited by: the cells of variances, how far integrals must look, how accurate they are.

E[f(u) f(v)] is at most sqrt(E f(u)^2 E f(v)^2), so the mass of f(s x)^2 under a standard Gaussian x tells what matters. For a
bounded function nothing beyond 9.3 deviations does. If f grows like exp(a z^2), that mass falls like exp(-(1 - 4 a s^2) x^2 / 2):
more slowly the larger the variance is, and from s^2 = 1 / (4 a) on it is infinite.
"""

from __future__ import annotations

import math
import sys
import warnings
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.common import all_finite, constant
from ntkit._src.program import AnyFunction
from ntkit.errors import InputError, QuadratureError, QuadratureWarning

from ._partition import Partition, partition
from ._quadrature import evaluate, sample

OCTAVES = 4
"""log2 of the ratio of the largest to the smallest variance in a cell; accuracy is measured once per cell."""

RADIUS = 9.3
"""The Gaussian mass beyond it is 1e-20."""

TOLERANCE = 1e-10
"""The relative error above which expectations are inaccurate."""

REFUSED = 1e-6
"""The relative error above which they are not given at all."""

_MANY = 200  # edges of a partition: a function with more of them oscillates
_PACKAGE = __name__.partition(".")[0]
_SHARE = 1e-13  # of the mass of f^2 and f'^2, which may lie beyond the reach
_FARTHEST = 37.0  # where the Gaussian density nears the smallest float64
_STEP = 0.05
_BUCKETS = 16  # to an octave of deviations: those of a bucket share its reach


def cells(q: Tensor) -> Tensor:
    """Find the cell of each variance."""
    if not all_finite(q):
        raise InputError("Variances must be finite. Got nan or infinity; check the inputs and the gains w_std, b_std.")
    return torch.floor(torch.log2(q.detach()) / OCTAVES).long()


def cell_bounds(first: int, last: int | None = None) -> tuple[float, float]:
    """Return the smallest and the largest variance of a cell, or of all from one cell to another."""
    return 2.0 ** (OCTAVES * first), 2.0 ** (OCTAVES * ((first if last is None else last) + 1))


@lru_cache(maxsize=1)
@constant
def _grid() -> Tensor:
    """Return points from zero to where no float64 has a square that the Gaussian density leaves noticeable."""
    return torch.arange(_STEP / 2, 64.0, _STEP, dtype=torch.float64, device="cpu")


@lru_cache(maxsize=1024)
@constant
def _tails(phi: AnyFunction, s: float) -> Tensor:
    """Return the larger share of the masses of f(s x)^2 and f'(s x)^2 beyond |x| = _grid(), as far as both are finite."""
    x = _grid()
    values = torch.stack(sample(phi, s * torch.stack([x, -x])))
    bad = torch.nonzero(~torch.isfinite(values).all(0).all(0)).reshape(-1)
    end = int(bad[0]) if len(bad) else len(x)
    mass = torch.logsumexp(2 * torch.log(values[:, :, :end].abs()), dim=1) - x[:end] ** 2 / 2
    beyond = torch.logcumsumexp(mass.flip(1), dim=1).flip(1)
    return torch.nan_to_num(torch.exp(beyond - beyond[:, :1])).amax(0)  # nan if a function is zero everywhere


def tail(phi: AnyFunction, s: float, radius: float) -> float:
    """Return the share of the mass beyond ``radius`` deviations; infinity if the function is not finite as far as that."""
    shares = _tails(phi, s)
    at = math.floor(radius / _STEP)
    return float(shares[at]) if at < len(shares) else math.inf


def _radius(phi: AnyFunction, s: float, least: float, share: float) -> float:
    shares = _tails(phi, s)
    end = len(shares) * _STEP
    count = int((shares > share).sum())  # they fall
    inside = count * _STEP
    if count == len(shares) or least > end or inside > _FARTHEST:
        return math.inf
    # Few different radii, so that many entries are integrated at once.
    steps = max(0, math.ceil(4 * math.log2(max(inside, least) / least)))
    return min(least * 2 ** (steps / 4), end, _FARTHEST)


def reach(phi: AnyFunction, s: Tensor, least: float = RADIUS, share: float = _SHARE) -> Tensor:
    """Return how many deviations an integral must span; infinity if it diverges or a value there is beyond float64.

    For deviations s of any shape, float64 on the CPU: at least ``least``, and so far that only ``share`` of the mass of f^2 and
    f'^2 lies beyond. An answer depends on its deviation alone.
    """
    bucket, index = torch.unique(torch.ceil(torch.log2(s) * _BUCKETS), return_inverse=True)
    found = torch.tensor(
        [_radius(phi, 2 ** (b / _BUCKETS), least, share) for b in bucket.tolist()], dtype=torch.float64, device="cpu"
    )[index]
    for value in torch.unique(s[torch.isinf(found)]).tolist():  # the bucket's largest deviation may be too large
        found[s == value] = _radius(phi, value, least, share)
    return found


def finite_reach(phi: AnyFunction, s: Tensor) -> Tensor:
    """Return the reach of each deviation; refuse one whose integral diverges, or where the function is not finite."""
    found = reach(phi, s)
    if bool(torch.isinf(found).any()):
        bad = s[torch.isinf(found)].min()
        near = _grid()[_grid() < RADIUS]
        evaluate(phi, bad * torch.cat([near, -near]))  # raises if it is not finite there
        raise QuadratureError(
            f"Gaussian expectations of the square of activation {phi}, or of its derivative, must exist and be computable in "
            f"float64. Got a variance of {float(bad) ** 2:.6g}, for which the activation grows too quickly: they are computed "
            f"up to a variance of about {_largest(phi, float(bad)) ** 2:.3g}. Scale the inputs or the gains w_std, b_std "
            "down, or use an activation that grows more slowly."
        )
    return found


def _largest(phi: AnyFunction, too_large: float) -> float:
    """Find the largest deviation that has a reach, up to a percent."""
    low = too_large
    while low > 1e-15 * too_large and math.isinf(_radius(phi, low, RADIUS, _SHARE)):
        low, too_large = low / 2, low
    while too_large > 1.005 * low:
        middle = math.sqrt(low * too_large)
        if math.isinf(_radius(phi, middle, RADIUS, _SHARE)):
            too_large = middle
        else:
            low = middle
    return low


def edge_octave(reached: float) -> int:
    """Return the octave of the partition that spans what is reached."""
    return math.ceil(math.log2(reached))


def report_error(phi: AnyFunction, variances: tuple[float, float], error: float) -> None:
    """Issue a :class:`QuadratureWarning` at the user's own line if the error is too large; refuse what is of no use."""
    if error <= TOLERANCE:
        return
    parts = partition(phi, edge_octave(RADIUS * math.sqrt(variances[1])))
    kink = _find_kink(phi, parts)
    if kink is not None:
        hint = f"Near z = {kink:.4g} it is not smooth: declare its kinks, ntkit.Elementwise(function, kinks=...), to all digits."
    elif len(parts.edges) > _MANY or not parts.rough:
        hint = "It varies too quickly for these variances: scale the inputs or the gains down."
    else:
        hint = f"Near z = {min(parts.rough, key=abs):.4g} it is not a polynomial on any small interval."
    low, high = (f"{q:.3g}" for q in variances)
    where = f"for variances between {low} and {high}" if low != high else f"for variances of {low}"
    refused = not error <= REFUSED
    text = (
        f"Gaussian expectations of activation {phi} have an estimated relative error of {error:.1e} {where}, more than "
        f"{REFUSED if refused else TOLERANCE:.0e}{', and are refused' if refused else ''}. {hint}"
    )
    if refused:
        raise QuadratureError(text)
    warnings.warn(text, QuadratureWarning, stacklevel=_outside())


def _outside() -> int:
    """Return the stack level, seen from the caller, of the first frame outside the package: the line that requested a kernel."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


def _find_kink(phi: AnyFunction, parts: Partition) -> float | None:
    """Find the kink or jump nearest to zero that is not declared, at or near an edge or a rough point of the partition."""
    known = set(phi.kinks)
    places = {*parts.rough, *parts.edges.tolist()}
    for z in sorted(places, key=abs)[:_MANY]:
        found = _zoom(phi, z)
        if found is not None and all(abs(found - kink) > 1e-6 * max(1.0, abs(kink)) for kink in known):
            return found
    return None


def _zoom(phi: AnyFunction, z: float) -> float | None:
    """Follow the largest change of f and f' between neighbouring points to smaller scales: at a kink it does not shrink."""
    width, sizes = 1e-3 * max(1.0, abs(z)), []
    for _ in range(4):
        points = z + width * torch.linspace(-1, 1, 65, dtype=torch.float64, device="cpu")
        f, slope = sample(phi, points)
        if not (all_finite(f) and all_finite(slope)):
            return None
        change = (f.diff().abs() / (1 + f.abs().max())).maximum(slope.diff().abs() / (1 + slope.abs().max()))
        at = int(change.argmax())
        sizes.append(float(change[at]))
        z, width = float(points[at] + points[at + 1]) / 2, width / 16
    return z if sizes[-1] > 0.3 * sizes[0] and sizes[-1] > 1e-8 else None
