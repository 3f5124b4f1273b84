r"""Activations without a closed form: tanh, sigmoid, SiLU, softplus, Mish, user-defined functions without kinks, and ELU.

With He_n the Hermite polynomials and x a standard Gaussian, phi(s x) = a_0(s) + s sum_n alpha_n(s) He_n(x) / sqrt(n!), and for
two Gaussians of deviations s, s' and correlation rho (Mehler 1866)

    E[phi phi] = a_0 a_0' + s s' sum_n alpha_n alpha_n' rho^n,    E[phi' phi'] = sum_n n alpha_n alpha_n' rho^(n - 1).

The coefficients belong to one input alone, so they are cached data: the core computes them from a table of Chebyshev series in s,
and a pair costs four multiplications per term. What N orders leave out of a pair is at most what they leave out of E[phi^2] and
E[phi'^2], which is known; larger deviations need more orders. A few of the N with weights give the same sums, see
``_fewer_orders``. ELU, SELU and CELU, whose coefficients fall too slowly, have weights of their own, see ``_exponential_unit``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import Tensor

from ntkit._src.program import Activation, Pointwise
from ntkit._src.rules.expectations import evaluate

from .. import _core
from .._plane import Part, Plane
from ._exponential_unit import Unit, unit_coefficients, unit_mean, unit_of, unit_series
from ._family import Family
from ._fewer_orders import fewer_orders

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork

__all__ = ["ORDERS", "SeriesFamily", "series_table"]

ORDERS = (64, 96, 128, 192, 256)
"""How many Hermite orders a table may be made of."""

_UNIT_REACHES = (
    1.0,
    1.5,
    2.25,
    3.25,
    4.0,
)  # the same tiers of ELU: the largest deviation, times the rate of its exponential
_MOST_GAPS = 32  # different distances between the orders of a table
_PIECE = 0.25  # length of a piece of the deviations
_PIECES = 32  # at most
_DEGREE = 14  # Chebyshev coefficients on a piece
_TOLERANCE = 2e-12  # what may be left out of E[phi^2] and E[phi'^2], relative to them
_LEAST = 1.0  # the largest deviation that a table must reach for the engine to take the activation
_REMOTE = 7.5  # deviations beyond which a kink changes nothing: they have a probability of 6e-14
_RADIUS = 13.0  # Gaussian weights times Hermite functions are below 1e-18 beyond it
_SPACING = 0.02  # of the trapezoidal rule


class SeriesFamily(Family[Pointwise]):
    """Activations by their Hermite coefficients."""

    reads_h = True
    single_precision = False
    rounds_h = True

    def missing(self, network: PlannedNetwork, index: int, op: Pointwise) -> str | None:
        if (unit := unit_of(op.phi)) is not None:
            far = (reach for reach in _UNIT_REACHES if reach / unit.rate >= _LEAST)
            accurate = any(unit_series(unit.a, reach) is not None for reach in far)
            return None if accurate else f"{op.phi} (its exponential is too steep)"
        if _PIECE * len(_pieces(op.phi, ORDERS[-1])) >= _LEAST:
            return None
        why = "its kinks" if op.phi.kinks else f"deviations up to {_LEAST:g}"
        return f"{op.phi} ({why} would need more than {ORDERS[-1]} Hermite orders)"

    def homogeneous(self, op: Pointwise) -> bool:
        return False

    def tiers(self, op: Pointwise) -> int:
        return len(ORDERS)

    def covered(self, op: Pointwise) -> str:
        return f"standard deviations up to {_reach(op.phi):g}"

    def cache_entries(self, network: PlannedNetwork, index: int, op: Pointwise) -> Iterator[tuple[_core.Cached, int]]:
        yield _core.Cached.DEVIATION, index
        yield _core.Cached.SERIES, index
        if not network.linear_after[index]:
            yield _core.Cached.HALF, index

    def cache_numbers(self, network: PlannedNetwork, what: _core.Cached, op: Pointwise) -> int:
        return 1 + len(_table(network, op.phi).orders) if what == _core.Cached.SERIES else 1

    def made_before(self, what: _core.Cached) -> bool:
        return what in (_core.Cached.DEVIATION, _core.Cached.SERIES)

    def store(self, network: PlannedNetwork, index: int, op: Pointwise, what: _core.Cached, target: int) -> _core.Store:
        table = _table(network, op.phi) if what == _core.Cached.SERIES else None
        return _core.Store(size=network.size(index), what=what, target_at=target, table=table)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Pointwise) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "series",
            index,
            lambda: _core.Series(
                size=network.size(index),
                table=_table(network, op.phi),
                series_at=network.cache_at(_core.Cached.SERIES, index),
                deviation_at=network.cache_at(_core.Cached.DEVIATION, index),
                half_at=network.cache_at(_core.Cached.HALF, index),
                rounded=network.nonlinear_before[index],
            ),
        )
        emitter.unary(_core.Kind.SERIES, operation, plane, parts)


def _reach(phi: Activation) -> float:
    """Return the largest deviation that some table covers."""
    if (unit := unit_of(phi)) is not None:
        return next(reach for reach in reversed(_UNIT_REACHES) if unit_series(unit.a, reach) is not None) / unit.rate
    return _PIECE * len(_pieces(phi, ORDERS[-1]))


def _table(network: PlannedNetwork, phi: Activation) -> _core.SeriesTable:
    """Give the table of a version; where it has none, that of the next one that has, or else of the last one before."""
    counts = (*ORDERS[network.tier :], *reversed(ORDERS[: network.tier]))
    return next(table for count in counts if (table := series_table(phi, count)) is not None)


@lru_cache(maxsize=64)
def series_table(phi: Activation, count: int) -> _core.SeriesTable | None:
    """Build the table of an activation, for deviations from zero to where so many orders are too few; None if nowhere."""
    if (unit := unit_of(phi)) is not None:
        return _unit_table(unit, _UNIT_REACHES[ORDERS.index(count)])
    expansion, pieces = _expansion(phi), _pieces(phi, count)
    if expansion is None or not pieces:
        return None
    orders = expansion.orders(count)
    known = expansion.pieces[: len(pieces)]
    alpha, others = (
        torch.cat([values[:, orders] / s[:, None] for values, s in rows])
        for rows in (
            [(values, nodes) for values, nodes, *_ in known],
            [(exact, squares.s) for *_, exact, squares in known],
        )
    )
    nodes, weights = fewer_orders(orders, alpha, others, _MOST_GAPS)
    scaled = torch.stack(pieces)[:, :, torch.cat([torch.zeros(1, dtype=torch.long), 1 + nodes])]
    scaled[:, :, 1:] *= weights.sqrt()
    return _core.SeriesTable(
        orders=orders[nodes].tolist(), degree=_DEGREE, piece=_PIECE, coefficients=scaled.reshape(-1).tolist()
    )


def _unit_table(unit: Unit, reach: float) -> _core.SeriesTable | None:
    """Build the table of ELU and its kin, for deviations times rate from zero to ``reach``; None if no weights are accurate."""
    series = unit_series(unit.a, reach)
    if series is None:
        return None
    places = torch.arange(round(reach / _PIECE), dtype=torch.float64)[:, None]
    z = (_PIECE * (places + (1 + _nodes()) / 2)).numpy()
    numbers = np.concatenate(
        [
            unit.scale / unit.rate * unit_mean(unit.a, z)[:, :, None],
            [unit.scale * np.sqrt(series.weights) * unit_coefficients(unit.a, row, series.orders) for row in z],
        ],
        axis=2,
    )
    first, second, third = (
        unit.scale * (unit.a - 1),
        unit.scale * unit.a * unit.rate,
        unit.scale * unit.a * unit.rate**2,
    )
    closed = series.weights[:, None] * series.products * [first * first, second * second, first * third]
    return _core.SeriesTable(
        orders=series.orders.tolist(),
        degree=_DEGREE,
        piece=_PIECE / unit.rate,
        coefficients=(_transform() @ torch.from_numpy(numbers)).reshape(-1).tolist(),
        jumps=[first, second, third],
        closed=closed.reshape(-1).tolist(),
    )


@lru_cache(maxsize=64)
def _pieces(phi: Activation, count: int) -> list[Tensor]:
    """Give the Chebyshev coefficients of a_0 and all alpha, shape (degree, 1 + count), of each piece that these orders cover."""
    expansion = _expansion(phi)
    if expansion is None:
        return []
    orders = expansion.orders(count)
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
    return pieces


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
        For each piece: coefficients at its Chebyshev nodes, shape (degree, n); these nodes; the places of some points between,
        from -1 to 1; the coefficients and the moments there.
    """

    first: int
    step: int
    pieces: tuple[tuple[Tensor, Tensor, Tensor, Tensor, _Squares], ...]

    def orders(self, count: int) -> Tensor:
        """Give the first orders that it has."""
        return torch.arange(self.first, self.first + self.step * count, self.step)


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
    orders = 2 * ORDERS[-1] + 1
    x = torch.arange(-_RADIUS, _RADIUS, _SPACING, dtype=torch.float64) + shift * _SPACING
    rows = [torch.exp(-x * x / 4) * math.sqrt(_SPACING / math.sqrt(2 * math.pi))]
    rows.append(x * rows[0])
    for n in range(1, orders - 1):
        rows.append((x * rows[n] - math.sqrt(n) * rows[n - 1]) / math.sqrt(n + 1))
    return torch.stack(rows)


def _nodes() -> Tensor:
    return torch.cos((torch.arange(_DEGREE, dtype=torch.float64) + 0.5) * (math.pi / _DEGREE))


def _chebyshev(x: Tensor) -> Tensor:
    """T_0(x), ..., T_{degree - 1}(x) in a new last axis."""
    return torch.cos(torch.arange(_DEGREE, dtype=torch.float64) * torch.acos(x)[..., None])


def _transform() -> Tensor:
    """Return the matrix that takes values at the Chebyshev nodes to coefficients."""
    matrix: Tensor = _chebyshev(_nodes()).T * (2 / _DEGREE)
    matrix[0] /= 2
    return matrix
