r"""Activations without a closed form and without kinks: tanh, sigmoid, SiLU, softplus, Mish, user-defined functions.

With He_n the Hermite polynomials and x a standard Gaussian, phi(s x) = a_0(s) + s sum_n alpha_n(s) He_n(x) / sqrt(n!), and for
two Gaussians of deviations s, s' and correlation rho (Mehler 1866)

    E[phi phi] = a_0 a_0' + s s' sum_n alpha_n alpha_n' rho^n,    E[phi' phi'] = sum_n n alpha_n alpha_n' rho^(n - 1).

The coefficients depend on one input alone, so they are own data: the core computes them from a table of Chebyshev series in s,
and a pair costs three multiplications per term. The truncation error of a pair is at most that of E[phi^2] and
E[phi'^2], which is known; larger deviations need more terms.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ntkit.program import Activation, Elementwise
from ntkit.rules.expectations import evaluate

from .. import _core
from .._plane import Part, Plane
from ._family import Family

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import Network

__all__ = ["TERMS", "SeriesFamily", "series_table"]

TERMS = (16, 32, 48, 64, 96, 128, 192, 256)
"""How many terms a table may have."""

_PIECE = 0.25  # length of a piece of the deviations
_PIECES = 32  # at most
_ORDER = 14  # Chebyshev coefficients on a piece
_TOLERANCE = 2e-12  # the truncation error allowed in E[phi^2] and E[phi'^2], relative to them
_LEAST = 1.0  # a table must reach at least this deviation for the engine to support the activation
_REMOTE = 7.5  # beyond this many deviations, with a probability of 6e-14, a kink changes nothing
_RADIUS = 13.0  # Gaussian weights times Hermite functions are below 1e-18 beyond it
_SPACING = 0.02  # of the trapezoidal rule


class SeriesFamily(Family[Elementwise]):
    """Activations by their Hermite coefficients."""

    reads_h = True
    single_precision = False
    rounds_h = True

    def missing(self, network: Network, index: int, op: Elementwise) -> str | None:
        table = series_table(op.phi, TERMS[-1])
        return str(op.phi) if table is None or _reach(table) < _LEAST else None

    def tiers(self, op: Elementwise) -> int:
        return len(TERMS)

    def own_data(self, network: Network, index: int, op: Elementwise) -> Iterator[tuple[_core.Own, int]]:
        yield _core.Own.DEVIATION, index
        yield _core.Own.SERIES, index
        if not network.linear_after[index]:
            yield _core.Own.HALF, index

    def own_numbers(self, network: Network, own: _core.Own, op: Elementwise) -> int:
        return 1 + _table(network, op.phi).terms if own == _core.Own.SERIES else 1

    def made_before(self, own: _core.Own) -> bool:
        return own in (_core.Own.DEVIATION, _core.Own.SERIES)

    def store(self, network: Network, index: int, op: Elementwise, own: _core.Own, target: int) -> _core.Store:
        table = _table(network, op.phi) if own == _core.Own.SERIES else None
        return _core.Store(size=network.size(index), what=own, target_at=target, table=table)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Elementwise) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "series",
            index,
            lambda: _core.Series(
                size=network.size(index),
                table=_table(network, op.phi),
                series_at=network.own_at(_core.Own.SERIES, index),
                deviation_at=network.own_at(_core.Own.DEVIATION, index),
                half_at=network.own_at(_core.Own.HALF, index),
            ),
        )
        emitter.unary(_core.Kind.SERIES, operation, plane, parts)


def _table(network: Network, phi: Activation) -> _core.SeriesTable:
    """Return the table of a version, or of the next one if its terms are too few for any deviation."""
    return next(table for terms in TERMS[network.tier :] if (table := series_table(phi, terms)) is not None)


def _reach(table: _core.SeriesTable) -> float:
    """Return the largest deviation of a table."""
    return table.piece * len(table.coefficients) / (table.order * (1 + table.terms))


@lru_cache(maxsize=64)
def series_table(phi: Activation, terms: int) -> _core.SeriesTable | None:
    """Build the table of an activation for deviations from zero to where its terms no longer suffice; None if they never do."""
    expansion = _expansion(phi)
    if expansion is None:
        return None
    first, step = expansion.first, expansion.step
    orders = torch.arange(first, first + step * terms, step)
    n = orders.to(torch.float64)
    pieces = []
    for values, nodes, checks, exact, squares in expansion.pieces:
        alpha = values[:, orders] / nodes[:, None]
        numbers = torch.cat([values[:, :1], alpha], 1)
        coefficients = _transform() @ numbers
        found = _chebyshev(checks) @ coefficients
        wanted = torch.cat([exact[:, :1], exact[:, orders] / squares.s[:, None]], 1)
        # The error of E[phi phi] and of E[phi' phi'] for equal inputs, from truncation and interpolation together.
        variance = found[:, 0] ** 2 + squares.s**2 * (found[:, 1:] ** 2).sum(1)
        slope = (n * found[:, 1:] ** 2).sum(1)
        apart = (found - wanted).abs()
        errors = torch.stack(
            [
                (variance - squares.phi).abs() / squares.phi.max(),
                (slope - squares.slope).abs() / squares.slope.max(),
                apart[:, 0] / squares.phi.max().sqrt(),
                (n * apart[:, 1:] ** 2).sum(1).sqrt() / squares.slope.max().sqrt(),
            ]
        )
        if not bool((errors <= _TOLERANCE).all()):
            break
        pieces.append(coefficients)
    if not pieces:
        return None
    return _core.SeriesTable(
        first=first,
        step=step,
        terms=terms,
        order=_ORDER,
        piece=_PIECE,
        coefficients=torch.stack(pieces).reshape(-1).tolist(),
    )


@dataclass(frozen=True)
class _Squares:
    """At deviations s, shape (n,): E[phi(s x)^2] and E[phi'(s x)^2], shape (n,)."""

    s: Tensor
    phi: Tensor
    slope: Tensor


@dataclass(frozen=True)
class _Expansion:
    """Hermite coefficients E[phi(s x) He_n(x)] / sqrt(n!) of an activation, piece by piece of the deviations.

    Attributes
    ----------
    first, step
        The orders n > 0 that it has: all, the odd ones or the even ones.
    pieces
        For each piece: coefficients at its Chebyshev nodes, shape (order, n); these nodes; some points between them, scaled to
        [-1, 1]; the coefficients and the moments there.
    """

    first: int
    step: int
    pieces: tuple[tuple[Tensor, Tensor, Tensor, Tensor, _Squares], ...]


@lru_cache(maxsize=16)
def _expansion(phi: Activation) -> _Expansion | None:
    """Compute the coefficients as far as the function can be evaluated and its kinks do not matter; None if nowhere."""
    nearest = min((abs(kink) for kink in phi.kinks), default=math.inf)
    places = torch.tensor([-0.93, -0.41, 0.17, 0.71, 0.97], dtype=torch.float64)
    pieces = []
    with torch.inference_mode(False), torch.no_grad():
        for piece in range(_PIECES):
            if _PIECE * (piece + 1) * _REMOTE > nearest:
                break
            nodes, between = (_PIECE * (piece + (1 + x) / 2) for x in (_nodes(), places))
            try:
                values, _ = _coefficients(phi, nodes, 0.0)
                exact, squares = _coefficients(phi, between, 0.0)
                shifted, again = _coefficients(phi, between, 0.5)
            except ValueError:  # not finite this far out, or not elementwise, which the reference engine reports
                break
            # Two rules that differ by half a step agree where both are exact.
            apart = (exact - shifted).abs().max() / squares.phi.max().sqrt()
            slopes_apart = (squares.slope - again.slope).abs().max() / squares.slope.max()
            if not max(float(apart), float(slopes_apart)) <= _TOLERANCE:
                break
            pieces.append((values, nodes, places, exact, squares))
    if not pieces:
        return None
    size = torch.stack([(values / values.norm(dim=1, keepdim=True)).abs().amax(0) for values, *_ in pieces]).amax(0)
    odd, even = bool((size[2::2] < 1e-14).all()), bool((size[1::2] < 1e-14).all())
    return _Expansion(2 if even and not odd else 1, 2 if odd or even else 1, tuple(pieces))


def _coefficients(phi: Activation, s: Tensor, shift: float) -> tuple[Tensor, _Squares]:
    """Return the Hermite coefficients at deviations s, shape (len(s), orders), and the moments."""
    x = torch.arange(-_RADIUS, _RADIUS, _SPACING, dtype=torch.float64) + shift * _SPACING
    root = torch.exp(-x * x / 4) * math.sqrt(_SPACING / math.sqrt(2 * math.pi))
    f, g = evaluate(phi, s[:, None] * x)
    weighted = f * root
    return weighted @ _hermite(shift).T, _Squares(s, (weighted**2).sum(1), ((g * root) ** 2).sum(1))


@lru_cache(maxsize=2)
def _hermite(shift: float) -> Tensor:
    """He_n(x) / sqrt(n!) times the root of the Gaussian weight, on the nodes of the rule: shape (orders, nodes)."""
    orders = 2 * TERMS[-1] + 1
    x = torch.arange(-_RADIUS, _RADIUS, _SPACING, dtype=torch.float64) + shift * _SPACING
    rows = [torch.exp(-x * x / 4) * math.sqrt(_SPACING / math.sqrt(2 * math.pi))]
    rows.append(x * rows[0])
    for n in range(1, orders - 1):
        rows.append((x * rows[n] - math.sqrt(n) * rows[n - 1]) / math.sqrt(n + 1))
    return torch.stack(rows)


def _nodes() -> Tensor:
    return torch.cos((torch.arange(_ORDER, dtype=torch.float64) + 0.5) * (math.pi / _ORDER))


def _chebyshev(x: Tensor) -> Tensor:
    """T_0(x), ..., T_{order - 1}(x) in a new last axis."""
    return torch.cos(torch.arange(_ORDER, dtype=torch.float64) * torch.acos(x)[..., None])


def _transform() -> Tensor:
    """Return the matrix that maps values at the Chebyshev nodes to coefficients."""
    matrix: Tensor = _chebyshev(_nodes()).T * (2 / _ORDER)
    matrix[0] /= 2
    return matrix
