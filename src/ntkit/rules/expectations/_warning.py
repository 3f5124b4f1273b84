"""The warning that Gaussian expectations are less accurate than they should be, and why."""

from __future__ import annotations

import math
import sys
import warnings

import torch

from ntkit.errors import QuadratureWarning
from ntkit.program import Activation

from ._panels import RADIUS
from ._partition import partition
from ._quadrature import evaluate

__all__ = ["TOLERANCE", "warn_inaccurate"]

TOLERANCE = 1e-10
"""The relative error above which expectations are inaccurate."""

_PACKAGE = __name__.partition(".")[0]


def warn_inaccurate(phi: Activation, variances: tuple[float, float], error: float) -> None:
    """:class:`QuadratureWarning` at the user's own line, if the error is too large for variances between the two given."""
    if error <= TOLERANCE:
        return
    rough = partition(phi, math.ceil(math.log2(RADIUS * math.sqrt(variances[1])))).rough
    nearest = min(rough, key=abs, default=0.0)
    hint = (
        f"Near z = {nearest:.4g} it is not smooth: declare its kinks in Activation(kinks=...), to all digits."
        if rough and _is_kink(phi, nearest)
        else "It varies too quickly for these variances: scale the inputs or the gains down."
    )
    warnings.warn(
        f"Gaussian expectations of activation {phi} have an estimated relative error of {error:.1e} for variances "
        f"between {variances[0]:.3g} and {variances[1]:.3g}, more than {TOLERANCE:.0e}. {hint}",
        QuadratureWarning,
        stacklevel=_outside(),
    )


def _outside() -> int:
    """Give the stack level, seen from the caller, of the first frame outside the package: the line that asked for a kernel."""
    level, frame = 1, sys._getframe(1)
    while frame.f_back is not None and frame.f_globals.get("__name__", "").partition(".")[0] == _PACKAGE:
        level, frame = level + 1, frame.f_back
    return level


def _is_kink(phi: Activation, z: float) -> bool:
    """Tell a kink or a jump near z from a smooth function that varies quickly."""
    steps = torch.linspace(-1, 1, 65, dtype=torch.float64, device="cpu")
    bends = []
    for width in (1e-3, 1e-5):
        slope = evaluate(phi, z + width * max(1.0, abs(z)) * steps)[1]
        bends.append(float(slope.diff().abs().max() / slope.abs().max().clamp_min(1e-300)))
    # Where the function is smooth, the largest change of the slope between neighbours shrinks with their distance.
    return bends[1] > 0.1 * bends[0]
