"""Gaussian integrals of functions with kinks anywhere, for pairs of any correlation, by panels split at the kinks.

Write u = s1 x, v = s2 y with y = rho x + tau z, tau = sqrt(1 - rho^2), x and z independent standard Gaussians. Then

    E[f(u) f(v)] = int f(s1 x) I(x) d(x) dx,   I(x) = int f(s2 (rho x + tau z)) d(z) dz,   d the Gaussian density.

Both integrals are sums of Gauss-Legendre rules on panels between the edges of f's :class:`Partition`. I is f smoothed
over a width tau / |rho| (in x): a kink of f becomes a layer of that width, which gets panels of its own. Where no kink
is near, the inner integral needs no panels but a few Gauss-Hermite nodes. At tau = 0 only the outer integral is left.

Derivatives cost two more sums and no derivative of f. Scaling the density instead of f (and for rho likewise),

    s1 dF/ds1 = E[f f (x^2 - 1 - (rho / tau) x z)],       s2 dF/ds2 = E[f f (z^2 - 1 + (rho / tau) x z)],
    dF/drho   = E[f f (x z - (rho / tau) (z^2 - 1))] / tau,

which holds for functions that jump as well, such as the derivative of f in E[f' f'].
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from ntkit._src.common import constant
from ntkit._src.program import AnyFunction

from ._limits import RADIUS, edge_octave, finite_reach
from ._partition import Partition, partition
from ._quadrature import density, evaluate, legendre

_NODES = 2**17  # of the plane, held at once
_ENTRIES = 64  # entries whose outer panels are built at once
_LAYERS = (-9.0, -4.5, 4.5, 9.0)  # edges of a layer's panels, in units of its width
_NEAREST = 0.15  # edges closer than this, relative to the intervals beside them, are merged
_NUDGE = 1e-5  # the tau at which derivatives are taken that at tau = 0 exist only from either side


class Rule(NamedTuple):
    """How fine the integrals are; a finer rule measures the error of a coarser one."""

    nodes: int  # of Gauss-Legendre per panel
    width: float  # of the widest panel, in standard deviations
    step: float  # of the trapezoidal rule where no kink is near
    halved: bool  # whether every interval of the partition is bisected


COARSE = Rule(16, 3.5, 0.65, False)
FINE = Rule(20, 2.5, 0.45, True)

# For f and for f': E[f f], s1 dE/ds1, s2 dE/ds2, dE/drho, in a tensor of shape (2, 4, entries).
Fields = Tensor


@lru_cache(maxsize=8)
@constant
def _mean_rules(step: float) -> tuple[tuple[float, Tensor, Tensor], ...]:
    """Rules for means over a standard Gaussian of functions that are smooth on a scale: (scale, nodes, weights).

    Gauss-Hermite where the Gaussian is narrow; then trapezoidal rules, whose error for a function that is analytic at a
    distance r from the real line falls like exp(-2 pi r / step).
    """
    rules: list[tuple[float, NDArray[np.float64], NDArray[np.float64]]]
    rules = [(9.0, *np.polynomial.hermite_e.hermegauss(16))]
    for scale, h in ((4.5, step), (3.0, step / 1.5)):
        z = np.arange(-math.floor(8.7 / h), math.floor(8.7 / h) + 1, dtype=np.float64)
        z *= h
        rules.append((scale, z, np.exp(-z * z / 2)))
    return tuple((scale, torch.from_numpy(z), torch.from_numpy(w / w.sum())) for scale, z, w in rules)


def _parts(phi: AnyFunction, reach: float, rule: Rule) -> Partition:
    parts = partition(phi, edge_octave(reach))
    return parts.halved() if rule.halved else parts


def _kept_edges(edges: Tensor, width: Tensor, needed: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Panels of each row: (row, low, high), from edges (rows, n), the widths next to them, and which edges must stay."""
    edges, order = torch.sort(edges, dim=1)
    width, needed = width.gather(1, order), needed.gather(1, order)
    gap = edges.diff(dim=1, prepend=edges.new_full((len(edges), 1), -math.inf))
    stays = needed | (gap > _NEAREST * width)
    # A dropped edge is moved to the one before it: its panel has no width and is left out.
    edges = torch.where(stays, edges, -math.inf).cummax(dim=1).values
    row, at = torch.nonzero(edges.diff(dim=1) > 0, as_tuple=True)
    return row, edges[row, at], edges[row, at + 1]


def _outer_edges(
    parts: Partition, s1: Tensor, s2: Tensor, rho: Tensor, tau: Tensor, radius: float, rule: Rule
) -> tuple[Tensor, ...]:
    """Panels of the integral over |x| < radius: between kinks and edges of f(s1 x) and f(s2 rho x), and across its layers."""
    first, second = 1 / s1[:, None], 1 / (s2 * rho)[:, None]  # infinite without correlation, where I is constant
    kinks = parts.edges[parts.kink]
    spread = (tau / rho.abs().clamp_min(1e-300))[:, None]
    count = 2 * math.ceil(radius / rule.width) + 1
    grid = torch.linspace(-radius, radius, count, dtype=torch.float64, device="cpu").expand(len(s1), -1)

    def scaled(z: Tensor, by: Tensor) -> Tensor:
        return torch.nan_to_num(z * by, nan=0.0, posinf=1e9, neginf=-1e9)

    groups = [(grid, torch.full_like(grid, rule.width), grid.abs() == radius)]
    for by in (first, second):
        z = scaled(parts.edges, by)
        groups.append((z, scaled(parts.width, by.abs()), parts.kink.expand_as(z)))
    for layer in _LAYERS:
        z = scaled(kinks, second) + layer * spread
        groups.append((z, (4.5 * spread).expand_as(z), torch.zeros_like(z, dtype=torch.bool)))
    edges, widths, needed = (torch.cat(group, dim=1) for group in zip(*groups, strict=True))
    return _kept_edges(edges.clamp(-radius, radius), widths, needed)


def _smoothed(
    phi: AnyFunction,
    parts: Partition,
    m: Tensor,
    sigma: Tensor,
    reach: Tensor,
    rule: Rule,
    powers: int,
    tame: bool = True,
) -> Tensor:
    """E[z^i f(m + sigma z)] for i < powers and |z| < reach, for f and f': shape (2, powers, n).

    Not ``tame``: what lies farther than nine deviations matters, so that the rules without panels do not serve.
    """
    out = torch.empty(2, powers, len(m), dtype=torch.float64)
    kinks = parts.edges[parts.kink]
    kinks = torch.cat([kinks.new_tensor([-math.inf]), kinks, kinks.new_tensor([math.inf])])
    above = torch.searchsorted(kinks, m)
    distance = torch.minimum(kinks[above] - m, m - kinks[above - 1])
    # in deviations: the scale on which f is smooth, zero where a kink is near
    scale = torch.where(distance > 8.7 * sigma, parts.smallest(m - 6 * sigma, m + 6 * sigma) / sigma, 0.0)
    scale = scale * (2 if rule.halved else 1)
    todo = torch.ones_like(m, dtype=torch.bool)
    for smallest, z, w in _mean_rules(rule.step) if tame else ():
        at = torch.nonzero(todo & (scale >= smallest)).reshape(-1)
        todo[at] = False
        weights = torch.stack([w * z**i for i in range(powers)], dim=1)
        for some in at.split(_NODES // len(z)):
            values = torch.stack(evaluate(phi, m[some, None] + sigma[some, None] * z))
            out[:, :, some] = (values @ weights).transpose(1, 2)
    for some in torch.nonzero(todo).reshape(-1).split(_NODES // (6 * rule.nodes)):
        out[:, :, some] = _split(phi, parts, m[some], sigma[some], reach[some], rule, powers)
    return out


def _split(
    phi: AnyFunction, parts: Partition, m: Tensor, sigma: Tensor, reach: Tensor, rule: Rule, powers: int
) -> Tensor:
    """Integrate the same with panels between the edges of the partition."""
    low, high = m - sigma * reach, m + sigma * reach
    first = torch.searchsorted(parts.edges, low, right=True)
    count = (torch.searchsorted(parts.edges, high) - first).clamp_min(0) + 1
    node = torch.repeat_interleave(torch.arange(len(m)), count)
    rank = torch.arange(len(node)) - (count.cumsum(0) - count)[node]
    last = len(parts.edges) - 1
    before = parts.edges[(first[node] + rank - 1).clamp(0, last)]
    after = parts.edges[(first[node] + rank).clamp(0, last)]
    left = torch.where(rank == 0, -reach[node], (before - m[node]) / sigma[node])
    right = torch.where(rank == count[node] - 1, reach[node], (after - m[node]) / sigma[node])
    # no panel wider than the rule's
    pieces = torch.ceil((right - left) / rule.width).clamp_min(1).long()
    panel = torch.repeat_interleave(torch.arange(len(node)), pieces)
    rank = torch.arange(len(panel)) - (pieces.cumsum(0) - pieces)[panel]
    width = ((right - left) / pieces)[panel]
    start, node = left[panel] + rank * width, node[panel]
    x, w = legendre(rule.nodes)
    z = start[:, None] + width[:, None] * x
    values = torch.stack(evaluate(phi, m[node, None] + sigma[node, None] * z)) * (density(z) * w * width[:, None])
    sums = [values.sum(-1)]
    for _ in range(1, powers):
        values = values * z
        sums.append(values.sum(-1))
    return torch.zeros(2, powers, len(m), dtype=torch.float64).index_add_(2, node, torch.stack(sums, dim=1))


def _sums(
    phi: AnyFunction, s1: Tensor, s2: Tensor, rho: Tensor, tau: Tensor, radius: float, rule: Rule, graded: bool = True
) -> Tensor:
    """E[f f p] for p = 1, x^2, z^2, x z and both functions, shape (2, 4, entries); only the first unless ``graded``."""
    out = torch.zeros(2, 4, len(s1), dtype=torch.float64)
    parts = _parts(phi, radius * max(s1.max().item(), s2.max().item()), rule)
    entry, low, high = _outer_edges(parts, s1, s2, rho, tau, radius, rule)
    t, w = legendre(rule.nodes)
    x = low[:, None] + (high - low)[:, None] * t
    weight = (high - low)[:, None] * w * density(x)
    left = torch.stack(evaluate(phi, s1[entry, None] * x)) * weight
    m = (rho * s2)[entry, None] * x
    sigma = (tau * s2)[entry, None].expand_as(x)
    reach = torch.sqrt((radius - x) * (radius + x)).clamp_min(1e-3)
    m, sigma, reach = m.reshape(-1), sigma.reshape(-1), reach.reshape(-1)
    inner = _smoothed(phi, parts, m, sigma, reach, rule, 3 if graded else 1, tame=radius <= RADIUS)
    i0, *higher = inner.unflatten(2, x.shape).unbind(1)
    products = [left * i0]
    if graded:
        products += [left * x * x * i0, left * higher[1], left * x * higher[0]]
    for i, product in enumerate(products):
        out[:, i] = out[:, i].index_add(1, entry, product.sum(-1))
    return out


def panel_fields(
    phi: AnyFunction, s1: Tensor, s2: Tensor, rho: Tensor, rule: Rule = COARSE, graded: bool = True
) -> Fields:
    """E[f(s1 x) f(s2 y)], its derivatives, and the same of f', for correlations rho in [-1, 1].

    Deviations and correlations have shape (n,), float64 on the CPU. At rho = +-1 the derivative in rho, which may be
    infinite, is zero, and those in s1 and s2, which may jump, are the means of both sides; all are zero unless ``graded``.
    """
    out = torch.empty(2, 4, len(rho), dtype=torch.float64)
    for radius, at in _by_radius(phi, torch.maximum(s1, s2)):
        out[:, :, at] = _fields(phi, s1[at], s2[at], rho[at], radius, rule, graded)
    return out


def _by_radius(phi: AnyFunction, s: Tensor) -> Iterator[tuple[float, Tensor]]:
    """Yield how far to integrate, and which entries, a few at a time, for the largest deviation of each."""
    radii = finite_reach(phi, s)
    for radius in torch.unique(radii).tolist():
        for at in torch.nonzero(radii == radius).reshape(-1).split(_ENTRIES):
            yield radius, at


def _fields(phi: AnyFunction, s1: Tensor, s2: Tensor, rho: Tensor, radius: float, rule: Rule, graded: bool) -> Fields:
    tau = torch.sqrt((1 - rho) * (1 + rho))
    # The inner integral over the smaller deviation is the cheaper; and F(s1, s2) = F(s2, s1) to the last bit.
    swap = s2 > s1
    large, small = torch.where(swap, s2, s1), torch.where(swap, s1, s2)
    sums = _sums(phi, large, small, rho, tau, radius, rule, graded)
    if not graded:
        return sums
    e, xx, zz, xz = sums.unbind(1)
    inside = tau > 0
    ratio = rho / torch.where(inside, tau, 1.0)
    along_large, along_small = xx - e - ratio * xz, zz - e + ratio * xz
    along_rho = torch.where(inside, (xz - ratio * (zz - e)) / torch.where(inside, tau, 1.0), 0.0)
    if not bool(inside.all()):
        difference = torch.zeros_like(e)
        at = torch.nonzero(~inside & (large > small)).reshape(-1)
        if len(at):
            tilted = rho[at] * math.sqrt((1 - _NUDGE) * (1 + _NUDGE))
            nudge = torch.full_like(tilted, _NUDGE)
            _, xx_, zz_, xz_ = _sums(phi, large[at], small[at], tilted, nudge, radius, rule).unbind(1)
            difference[:, at] = xx_ - zz_ - 2 * (tilted / _NUDGE) * xz_
        both = xx + zz - 2 * e
        along_large = torch.where(inside, along_large, (both + difference) / 2)
        along_small = torch.where(inside, along_small, (both - difference) / 2)
    d1, d2 = torch.where(swap, along_small, along_large), torch.where(swap, along_large, along_small)
    return torch.stack([e, d1, d2, along_rho], dim=1)


def panel_moments(phi: AnyFunction, s: Tensor, rule: Rule = COARSE) -> Tensor:
    """Integrate E p f(s x) and E p f'(s x) for p = 1 and p = x^2 - 1: shape (2, 2, n)."""
    out = torch.zeros(2, 2, len(s), dtype=torch.float64)
    for radius, at in _by_radius(phi, s):
        some = s[at]
        parts = _parts(phi, radius * some.max().item(), rule)
        row, low, high = _outer_edges(parts, some, some, torch.ones_like(some), torch.zeros_like(some), radius, rule)
        t, w = legendre(rule.nodes)
        x = low[:, None] + (high - low)[:, None] * t
        values = torch.stack(evaluate(phi, some[row, None] * x)) * ((high - low)[:, None] * w * density(x))
        sums = torch.stack([values.sum(-1), (values * (x * x - 1)).sum(-1)], dim=1)
        out.index_add_(2, at[row], sums)
    return out
