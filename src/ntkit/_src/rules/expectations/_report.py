"""What happens to Gaussian expectations that are less accurate than they should be: a warning or a refusal that says why."""

from __future__ import annotations

import math
import sys
import warnings

import torch

from ntkit._src.common import all_finite
from ntkit._src.program import AnyFunction
from ntkit.errors import QuadratureError, QuadratureWarning

from ._partition import Partition, partition
from ._quadrature import sample
from ._reach import RADIUS, edge_octave

__all__ = ["REFUSED", "TOLERANCE", "report_error"]

TOLERANCE = 1e-10
"""The relative error above which expectations are inaccurate."""

REFUSED = 1e-6
"""The relative error above which they are not given at all."""

_MANY = 200  # edges of a partition: a function with more of them oscillates
_PACKAGE = __name__.partition(".")[0]


def report_error(phi: AnyFunction, variances: tuple[float, float], error: float) -> None:
    """Issue a :class:`QuadratureWarning` at the user's own line if the error is too large for variances in this range.

    Raises
    ------
    QuadratureError
        If it is so large that the expectations are no use.
    """
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
