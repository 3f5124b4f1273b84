"""How far from zero a Gaussian integral must look, in standard deviations: farther for functions that grow quickly.

E[f(u) f(v)] is at most sqrt(E f(u)^2 E f(v)^2), so the mass of f(s x)^2 under a standard Gaussian x tells what matters. For a
bounded function nothing beyond 9.3 deviations does. If f grows like exp(a z^2), that mass falls like exp(-(1 - 4 a s^2) x^2 / 2):
more slowly the larger the variance is, and from s^2 = 1 / (4 a) on it is infinite.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.common import constant
from ntkit._src.program import AnyFunction
from ntkit.errors import QuadratureError

from ._quadrature import evaluate, sample

__all__ = ["RADIUS", "edge_octave", "finite_reach", "reach", "tail"]

RADIUS = 9.3
"""The Gaussian mass beyond it is 1e-20."""

_SHARE = 1e-13  # of the mass of f^2 and f'^2, which may lie beyond the reach
_FARTHEST = 37.0  # where the Gaussian density nears the smallest float64
_STEP = 0.05
_BUCKETS = 16  # to an octave of deviations: those of a bucket share its reach


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

    Parameters
    ----------
    phi
        Holds the function f.
    s
        Standard deviations, any shape, float64 on the CPU.
    least
        The smallest answer.
    share
        Share of the mass of f^2 and f'^2 that may lie beyond.

    Returns
    -------
    Tensor
        Shape of ``s``; an answer depends on its deviation alone.
    """
    bucket, index = torch.unique(torch.ceil(torch.log2(s) * _BUCKETS), return_inverse=True)
    found = torch.tensor(
        [_radius(phi, 2 ** (b / _BUCKETS), least, share) for b in bucket.tolist()], dtype=torch.float64, device="cpu"
    )[index]
    for value in torch.unique(s[torch.isinf(found)]).tolist():  # the bucket's largest deviation may be too large
        found[s == value] = _radius(phi, value, least, share)
    return found


def finite_reach(phi: AnyFunction, s: Tensor) -> Tensor:
    """Return the reach of each deviation.

    Raises
    ------
    QuadratureError
        If an integral diverges.
    InputError
        If the function is not finite within nine deviations.
    """
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
