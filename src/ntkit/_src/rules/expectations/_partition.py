"""Where a function is smooth: a partition of the line on whose intervals it is a polynomial to rounding error.

The partition depends on the function, not on a variance: Gaussian integrals of any deviation take their panels from it.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.common import constant
from ntkit._src.program import AnyFunction

from ._quadrature import evaluate, sample

_DEGREE = 20  # of the polynomial that must represent f and f' on an interval
_TOLERANCE = 1e-13
_SAMPLES = 32
_DEPTH = 12  # bisections of an interval before giving up on it
_MOST = 2048  # unresolved intervals at a time before giving up on them
_FINEST = -2  # log2 of the innermost interval


@dataclass(frozen=True)
class Partition:
    """Intervals on which f and f' are resolved."""

    edges: Tensor  # ends of the intervals, ascending, shape (n,)
    kink: Tensor  # which edges are kinks, shape (n,)
    width: Tensor  # of the shorter interval next to each edge, shape (n,)
    # of each interval, shape (n - 1,): its width or, if only kinks cut it short, that of the dyadic interval around it
    size: Tensor
    rough: tuple[float, ...]  # points near which f or f' is not smooth although no kink is declared there

    def smallest(self, low: Tensor, high: Tensor) -> Tensor:
        """Smallest size of the intervals that meet [low, high]."""
        first = (torch.searchsorted(self.edges, low, right=True) - 1).clamp(0, len(self.size) - 1)
        last = torch.maximum((torch.searchsorted(self.edges, high) - 1).clamp(0, len(self.size) - 1), first)
        # Minima over runs of 2^k intervals; two of them, overlapping, cover any range.
        runs = [self.size]
        while len(runs[-1]) > 2 ** (len(runs) - 1):
            run = 2 ** (len(runs) - 1)
            runs.append(torch.minimum(runs[-1], torch.cat([runs[-1][run:], runs[-1][-1:].expand(run)])))
        level = torch.floor(torch.log2((last - first + 1).to(self.size))).long()
        table = torch.stack(runs)
        return torch.minimum(table[level, first], table[level, last + 1 - 2**level])

    def halved(self) -> Partition:
        """Bisect every interval: the partition of a finer rule."""
        middle = (self.edges[1:] + self.edges[:-1]) / 2
        edges, order = torch.sort(torch.cat([self.edges, middle]))
        kink = torch.cat([self.kink, torch.zeros_like(middle, dtype=torch.bool)])[order]
        return Partition(edges, kink, _widths(edges), self.size.repeat_interleave(2) / 2, self.rough)


def _widths(edges: Tensor) -> Tensor:
    gaps = edges.diff()
    return torch.minimum(torch.cat([gaps[:1], gaps]), torch.cat([gaps, gaps[-1:]]))


@lru_cache(maxsize=256)
@constant
def partition(phi: AnyFunction, octave: int) -> Partition:
    """Partition [-2^octave, 2^octave] by bisection of dyadic intervals, split at the kinks.

    An interval's error counts relative to f there or, if larger, to the root mean square of f nearer to zero, which
    every centred Gaussian weighs more. Edges within a smaller range do not depend on ``octave``. Where f is not finite, which
    may be farther away than any integral looks, nothing is resolved.
    """
    dyadic = [2.0**j for j in range(_FINEST, max(octave, _FINEST + 1) + 1)]
    kinks = sorted({k for k in phi.kinks if abs(k) < dyadic[-1]})
    edges = torch.tensor(sorted({0.0, *dyadic, *(-d for d in dyadic), *kinks}), dtype=torch.float64, device="cpu")
    low, high = edges[:-1], edges[1:]
    floor = _inner_scale(phi, low, high)
    done, rough = [edges], []
    for depth in range(_DEPTH + 1):
        good = _resolved(phi, low, high, floor)
        low, high, floor = low[~good], high[~good], floor[:, ~good]
        if not len(low):
            break
        middle = (low + high) / 2
        if depth == _DEPTH or len(low) > _MOST:
            rough = middle[torch.isfinite(_samples(phi, low, high)).all(0).all(-1)].tolist()
            break
        done.append(middle)
        low, high, floor = torch.cat([low, middle]), torch.cat([middle, high]), torch.cat([floor, floor], dim=1)
    whole, edges = edges, torch.unique(torch.cat(done))
    middle = (edges[1:] + edges[:-1]).abs() / 2
    dyadic_width = torch.exp2(torch.floor(torch.log2(middle)).clamp_min(_FINEST))
    uncut = torch.isin(edges[1:], whole) & torch.isin(edges[:-1], whole)
    size = torch.where(uncut, dyadic_width, edges.diff())
    kink = torch.isin(edges, torch.tensor(kinks, dtype=torch.float64, device="cpu"))
    return Partition(edges, kink, _widths(edges), size, tuple(rough))


def _angles() -> Tensor:
    return (torch.arange(_SAMPLES, dtype=torch.float64, device="cpu") + 0.5) * (torch.pi / _SAMPLES)


def _samples(phi: AnyFunction, low: Tensor, high: Tensor) -> Tensor:
    """f and f' at the Chebyshev nodes of each interval, shape (2, intervals, _SAMPLES)."""
    nodes = (1 - torch.cos(_angles())) / 2
    return torch.stack(sample(phi, low[:, None] + (high - low)[:, None] * nodes))


def _inner_scale(phi: AnyFunction, low: Tensor, high: Tensor) -> Tensor:
    """Root mean squares of f and f' over the part of the line nearer to zero than each interval, shape (2, n)."""
    values = torch.nan_to_num(_samples(phi, low, high), nan=0.0, posinf=0.0, neginf=0.0)
    largest = values.abs().amax((1, 2), keepdim=True).clamp_min(1e-300)  # its square may be beyond float64
    squares = (values / largest).square().mean(-1) * (high - low)
    near = torch.minimum(low.abs(), high.abs())
    far = torch.maximum(low.abs(), high.abs())
    inside = (far[None, :] <= near[:, None]).to(squares)
    return largest[:, 0] * torch.sqrt(squares @ inside.T / torch.where(near > 0, 2 * near, 1.0))


def _resolved(phi: AnyFunction, low: Tensor, high: Tensor, floor: Tensor) -> Tensor:
    values = _samples(phi, low, high)
    finite = torch.isfinite(values).all(0)
    orders = torch.arange(_DEGREE + 1, _SAMPLES, dtype=torch.float64, device="cpu")
    tail = (values @ torch.cos(torch.outer(_angles(), orders))).abs().amax(-1) * (2 / _SAMPLES)
    resolved = (tail <= _TOLERANCE * torch.maximum(values.abs().amax(-1), floor)).all(0) & finite.all(-1)
    return resolved | ~finite.any(-1)  # where f is finite nowhere, no bisection helps


def _sides(phi: AnyFunction, kinks: tuple[float, ...]) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return the places of kinks, how far apart two points next to each are, and f and f' at these points, shapes (2, kinks)."""
    at = torch.tensor(sorted(set(kinks)), dtype=torch.float64, device="cpu")
    step = 1e-9 * at.abs().clamp_min(1e-3)
    return at, 2 * step, *evaluate(phi, torch.stack([at - step, at + step]))


@lru_cache(maxsize=64)
@constant
def jumps(phi: AnyFunction) -> bool:
    """Whether f itself jumps at a kink by more than 1e-5 of its size there (torch's softplus does by less)."""
    if not phi.kinks:
        return False
    _, apart, f, slope = _sides(phi, phi.kinks)
    return bool(((f[1] - f[0]).abs() > 1e-5 * f.abs().sum(0) + 10 * apart * slope.abs().sum(0)).any())


@lru_cache(maxsize=64)
@constant
def has_strong_kinks(phi: AnyFunction) -> bool:
    """Whether f, f' or f'' jumps at a declared kink other than zero by more than 1e-8 of its size there.

    Weaker ones, such as that of torch's softplus at 20, do not matter to the tables, which measure their own error.
    """
    if not any(phi.kinks):
        return False
    at, apart, f, slope = _sides(phi, tuple(kink for kink in phi.kinks if kink))
    # One-sided second derivatives, from the slopes at one and two steps of a size that balances rounding and curvature.
    steps = 1e-5 * torch.tensor([[-3.0], [-2.0], [-1.0], [1.0], [2.0], [3.0]], dtype=torch.float64, device="cpu")
    g = evaluate(phi, at + steps * at.abs().clamp_min(1e-3))[1]
    left, right = 2.5 * g[2] - 4 * g[1] + 1.5 * g[0], -(2.5 * g[3] - 4 * g[4] + 1.5 * g[5])
    size = f.abs().sum(0) + slope.abs().sum(0)
    bend = (right - left).abs() > 1e-11 * size
    jump = (f[1] - f[0]).abs() > 1e-8 * size + 10 * apart * slope.abs().sum(0)
    corner = (slope[1] - slope[0]).abs() > 1e-8 * size + 10 * apart * size
    return bool((bend | jump | corner).any())
