"""Gaussian integrals of functions with kinks for pairs of moderate correlation, by Mehler's expansion.

With h_n(s) = E[f(s x) He_n(x)] / sqrt(n!), the coefficients of f(s x) in normalised Hermite polynomials (Mehler 1866),

    E[f(s1 x) f(s2 y)] = sum_n rho^n h_n(s1) h_n(s2),   s h_n'(s) = n h_n + sqrt((n + 1) (n + 2)) h_{n+2}.

What N terms leave out is at most |rho|^N sqrt(E f(s1 x)^2 E f(s2 x)^2). A variance costs one-dimensional integrals, an
entry N multiplications and no call of f.
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from ntkit._src.common import constant
from ntkit._src.program import AnyFunction

from ._limits import edge_octave, reach
from ._panels import Fields
from ._partition import partition
from ._quadrature import evaluate, hermite_functions, legendre

# Largest |rho| of each band; entries of a band share a number of terms, so that no value depends on its batch.
BANDS = (0.3, 0.6, 0.8, 0.9, 0.95, 0.98, 0.99)
_OMITTED = 1e-13  # |rho|^N
_RADIUS = 12.3  # He_n(x) exp(-x^2 / 2) / sqrt(n!) is below 1e-16 beyond it, for every n
_SHARE = 1e-27  # of the mass of f^2 beyond the radius: its root bounds the error of a coefficient
_FARTHEST = 30.0  # where the Gaussian density squared nears the smallest float64
_NODES = 24  # of Gauss-Legendre on a panel
_PANELS = 100  # on either side of zero; more would not pay off for functions that vary quickly
_KEPT = 2**24  # coefficients of f held at once
_SPLIT = 2**22  # numbers that integrate across kinks, held at once
_PRODUCTS = 2**18  # terms of all entries summed at once


def _terms(band: int) -> int:
    return math.ceil(math.log(_OMITTED) / math.log(BANDS[band]))


def _tops(phi: AnyFunction, s: Tensor) -> tuple[Tensor, Tensor]:
    """Return the largest deviation that shares a grid with each one, and how many deviations the grid spans for f's sake.

    It is the largest of an octave or, where f grows too quickly for that, of a sixteenth of it. The smallest
    deviations share an octave, where f is resolved on a single interval.
    """
    octave = torch.log2(s).clamp_min(-8.5)
    top = torch.exp2(torch.ceil(octave))
    radius = reach(phi, top, _RADIUS, _SHARE)
    if bool((radius > _FARTHEST).any()):
        top = torch.where(radius > _FARTHEST, torch.exp2(torch.ceil(16 * octave) / 16), top)
        radius = reach(phi, top, _RADIUS, _SHARE)
    return top, radius


@lru_cache(maxsize=64)
@constant
def _edges(phi: AnyFunction, top: float, radius: float, terms: int) -> Tensor:
    """Edges of panels that resolve f(s x), top / 2 < s <= top, and the Hermite functions of these orders."""
    parts = partition(phi, edge_octave((radius + 1) * top))
    ends, sizes = parts.edges, parts.size
    # Hermite functions oscillate with wave numbers up to sqrt(n).
    widest = min(1.0, 26 / math.sqrt(terms))
    edges = [0.0]
    while edges[-1] < radius and len(edges) <= _PANELS:
        x = edges[-1]
        # x and -x, in f's own variable, for every s up to the top and every panel that may begin here
        far, near = (x + widest) * top, x * top / 2
        right = slice(int(torch.searchsorted(ends, near, right=True)) - 1, int(torch.searchsorted(ends, far)))
        left = slice(int(torch.searchsorted(ends, -far, right=True)) - 1, int(torch.searchsorted(ends, -near)))
        finest = min(float(sizes[right].min()), float(sizes[left].min()))
        edges.append(min(x + min(widest, finest / top), radius))
    half = torch.tensor(edges, dtype=torch.float64, device="cpu")
    return torch.cat([-half.flip(0), half[1:]])


def mehler_reaches(phi: AnyFunction, s: Tensor) -> Tensor:
    """Return for which deviations to use the expansion."""
    top, radius = _tops(phi, s)
    terms = _terms(len(BANDS) - 1)
    different, index = torch.unique(torch.stack([top, radius]), dim=1, return_inverse=True)
    good = [r <= _FARTHEST and float(_edges(phi, t, r, terms)[-1]) == r for t, r in different.T.tolist()]
    return torch.tensor(good)[index]


@lru_cache(maxsize=4)
@constant
def _grid(phi: AnyFunction, top: float, radius: float, terms: int) -> tuple[Tensor, Tensor, Tensor]:
    """Edges (panels + 1,), nodes (panels, _NODES) and, at the nodes, weighted Hermite functions (nodes, terms)."""
    t, w = legendre(_NODES)
    edges = _edges(phi, top, radius, terms)
    width = edges.diff()[:, None]
    x = edges[:-1, None] + width * t
    return edges, x, _weighted(x, width * w, terms).reshape(terms, -1).T.contiguous()


def _weighted(x: Tensor, weight: Tensor, terms: int) -> Tensor:
    scale = weight * torch.exp(-x * x / 4) / math.sqrt(2 * math.pi)
    return hermite_functions(x, terms).mul_(scale)


def _coefficients(phi: AnyFunction, s: Tensor, top: float, radius: float, terms: int) -> Tensor:
    """h_n(s) of f and of f': shape (2, n, terms)."""
    edges, x, basis = _grid(phi, top, radius, terms)
    values = torch.stack(evaluate(phi, s[:, None, None] * x))
    kinks = torch.tensor(sorted(set(phi.kinks)), dtype=torch.float64, device="cpu") / s[:, None]
    kinks = kinks.clamp(-radius, radius)
    panel = (torch.searchsorted(edges, kinks) - 1).clamp(0, x.shape[0] - 1)
    # Panels with kinks are integrated separately, in parts: before each kink, and after the last one of a panel.
    whole = torch.ones(len(s), x.shape[0], dtype=torch.float64).scatter_(1, panel, 0.0)
    out = (values * whole[:, :, None]).flatten(2) @ basis
    first = torch.ones_like(panel, dtype=torch.bool)
    first[:, 1:] = panel[:, 1:] != panel[:, :-1]
    last = torch.cat([first[:, 1:], first[:, :1] | True], dim=1)
    low, high = edges[panel], edges[panel + 1]
    before = torch.cat([kinks[:, :1], kinks[:, :-1]], dim=1)
    starts = torch.cat([torch.where(first, low, before), kinks], dim=1)
    widths = torch.cat([kinks, torch.where(last, high, kinks)], dim=1) - starts
    t, w = legendre(_NODES)
    x = starts[:, :, None] + widths[:, :, None] * t
    values = torch.stack(evaluate(phi, s[:, None, None] * x)).flatten(2)
    split = _weighted(x, widths[:, :, None] * w, terms).flatten(2)  # (terms, n, nodes)
    return out + torch.einsum("bnk,tnk->bnt", values, split)


def _all_coefficients(phi: AnyFunction, s: Tensor, terms: int) -> Tensor:
    out = torch.empty(2, len(s), terms, dtype=torch.float64)
    tops, radii = _tops(phi, s)
    for top in torch.unique(tops).tolist():
        at = torch.nonzero(tops == top).reshape(-1)
        each = max(1, _SPLIT // (terms * 2 * _NODES * max(len(phi.kinks), 1)))
        for some in at.split(each):
            out[:, some] = _coefficients(phi, s[some], top, float(radii[at[0]]), terms)
    return out


def mehler_fields(phi: AnyFunction, s1: Tensor, s2: Tensor, rho: Tensor, graded: bool) -> Fields:
    """Like :func:`panel_fields` for |rho| <= BANDS[-1]; derivatives, if not ``graded``, are zero."""
    out = torch.zeros(2, 4, len(rho), dtype=torch.float64)
    band = torch.bucketize(rho.abs(), torch.tensor(BANDS, dtype=torch.float64, device="cpu"))
    for b in torch.unique(band).tolist():
        blocks = [torch.nonzero(band == b).reshape(-1)]
        while blocks:
            at = blocks.pop()
            s, index = torch.unique(torch.stack([s1[at], s2[at]]), return_inverse=True)
            if len(s) * _terms(b) > _KEPT and len(at) > 1:
                blocks += at.tensor_split(2)
            else:
                out[:, :, at] = _block(phi, s, index, rho[at], _terms(b), graded)
    return out


def _block(phi: AnyFunction, s: Tensor, index: Tensor, rho: Tensor, terms: int, graded: bool) -> Fields:
    """Sum the expansion for entries of one band, whose deviations are s[index], index of shape (2, n)."""
    h = _all_coefficients(phi, s, terms + 2)
    n = torch.arange(terms, dtype=torch.float64)
    slope = n * h[..., :terms] + torch.sqrt((n + 1) * (n + 2)) * h[..., 2:] if graded else None
    h = h[..., :terms].contiguous()
    each = max(1, _PRODUCTS // terms)
    parts = [
        torch.stack([_sum(h[f], None if slope is None else slope[f], r, i, j) for f in range(2)])
        for r, i, j in zip(rho.split(each), *(k.split(each) for k in index), strict=True)
    ]
    return torch.cat(parts, dim=2)


def _sum(h: Tensor, slope: Tensor | None, rho: Tensor, i: Tensor, j: Tensor) -> Tensor:
    """Sum value and derivatives over the terms, shape (4, entries)."""
    a, b = h[i], h[j]
    powers = _powers(rho, h.shape[1])
    products = a * b
    value = torch.linalg.vecdot(products, powers)
    if slope is None:
        zero = torch.zeros_like(value)
        return torch.stack([value, zero, zero, zero])
    n = torch.arange(1, h.shape[1], dtype=torch.float64)
    d1, d2 = (torch.linalg.vecdot(p * q, powers) for p, q in ((slope[i], b), (a, slope[j])))
    return torch.stack([value, d1, d2, (products[:, 1:] * powers[:, :-1]) @ n])


def _powers(rho: Tensor, terms: int) -> Tensor:
    """rho^0, ..., rho^(terms - 1) in a new last axis, by halves: few passes, and no logarithm of a negative number."""
    powers = rho.new_ones(len(rho), terms)
    powers[:, 1:2] = rho[:, None]
    known = 2
    while known < terms:
        more = min(known, terms - known)
        torch.mul(powers[:, :more], (powers[:, known - 1] * rho)[:, None], out=powers[:, known : known + more])
        known += more
    return powers
