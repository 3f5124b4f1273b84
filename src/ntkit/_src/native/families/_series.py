r"""Activations without a closed form: tanh, sigmoid, SiLU, softplus, Mish, user-defined functions without kinks, and ELU.

With He_n the Hermite polynomials and x a standard Gaussian, phi(s x) = a_0(s) + s sum_n alpha_n(s) He_n(x) / sqrt(n!), and for
two Gaussians of deviations s, s' and correlation rho (Mehler 1866)

    E[phi phi] = a_0 a_0' + s s' sum_n alpha_n alpha_n' rho^n,    E[phi' phi'] = sum_n n alpha_n alpha_n' rho^(n - 1).

The coefficients belong to one input alone and are cached: the core computes them from a table of Chebyshev series in s, and a
pair costs four multiplications per term. What N orders leave out of a pair is at most what they leave out of E[phi^2] and
E[phi'^2], which is known; larger deviations need more orders. A few of the N with weights give the same sums, see
``_fewer_orders``. ELU, SELU and CELU, whose coefficients fall too slowly, have weights of their own, see ``_exponential_unit``.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import TYPE_CHECKING, NamedTuple

import torch
from torch import Tensor

from ntkit._src.program import Activation, Normalize, Pointwise
from ntkit._src.rules.expectations import evaluate, hermite_functions

from .. import _core
from .._plane import Part, Plane
from ._family import Family
from ._fewer_orders import fewer_orders

if TYPE_CHECKING:
    from .._emitter import Emitter
    from .._network import PlannedNetwork

ORDERS = (64, 96, 128, 192, 256)
"""How many Hermite orders a table may be made of."""

_MOST_GAPS = 32  # different distances between the orders of a table
PIECE = 0.25  # length of a piece of the deviations
_PIECES = 32  # at most
DEGREE = 14  # Chebyshev coefficients on a piece
_TOLERANCE = 2e-12  # what may be left out of E[phi^2] and E[phi'^2], relative to them
LEAST = 1.0  # the largest deviation that a table must reach for the engine to take the activation
_REMOTE = 7.5  # deviations beyond which a kink changes nothing: they have a probability of 6e-14
_RADIUS = 13.0  # Gaussian weights times Hermite functions are below 1e-18 beyond it
_SPACING = 0.02  # of the trapezoidal rule


class SeriesFamily(Family[Pointwise]):
    """Activations by their Hermite coefficients."""

    reads_h = True
    single_precision = False
    rounds_h = True

    def table(self, op: Pointwise, tier: int) -> _core.SeriesTable | None:
        """Build the table of a tier; None if none is accurate."""
        return series_table(op.phi, ORDERS[tier])

    def reach(self, op: Pointwise) -> float:
        """Return the largest deviation that some table covers."""
        return PIECE * len(_pieces(op.phi, ORDERS[-1]))

    def missing(self, network: PlannedNetwork, index: int, op: Pointwise) -> str | None:
        nodes = network.program.nodes
        before = nodes[nodes[index].inputs[0]].op
        if isinstance(before, Normalize) and before.weight_trained:
            return f"a trained gain before {op.phi}, which this engine computes by a series"
        return self.too_short(op)

    def too_short(self, op: Pointwise) -> str | None:
        """Return why no table reaches far enough; None if one does."""
        if self.reach(op) >= LEAST:
            return None
        why = "its kinks" if op.phi.kinks else f"deviations up to {LEAST:g}"
        return f"{op.phi} ({why} would need more than {ORDERS[-1]} Hermite orders)"

    def local(self, network: PlannedNetwork, index: int, op: Pointwise) -> bool:
        return True

    def homogeneous(self, op: Pointwise) -> bool:
        return False

    def tiers(self, op: Pointwise) -> int:
        return len(ORDERS)

    def covered(self, op: Pointwise) -> str:
        return f"standard deviations up to {self.reach(op):g}"

    def cache_entries(self, network: PlannedNetwork, index: int, op: Pointwise) -> Iterator[tuple[_core.Cached, int]]:
        yield _core.Cached.DEVIATION, index
        yield _core.Cached.SERIES, index
        if not network.linear_after[index]:
            yield _core.Cached.HALF, index

    def cache_numbers(self, network: PlannedNetwork, what: _core.Cached, op: Pointwise) -> int:
        return 1 + len(self._best(network, op).orders) if what == _core.Cached.SERIES else 1

    def made_before(self, what: _core.Cached) -> bool:
        return what in (_core.Cached.DEVIATION, _core.Cached.SERIES)

    def store(self, network: PlannedNetwork, index: int, op: Pointwise, what: _core.Cached, target: int) -> _core.Store:
        table = self._best(network, op) if what == _core.Cached.SERIES else None
        return _core.Store(size=network.size(index), what=what, target_at=target, table=table)

    def emit(self, emitter: Emitter, plane: Plane, parts: list[Part], op: Pointwise) -> None:
        network, index = emitter.network, plane.node
        operation = emitter.operation(
            "series",
            index,
            lambda: _core.Series(
                size=network.size(index),
                table=self._best(network, op),
                series_at=network.cache_at(_core.Cached.SERIES, index),
                deviation_at=network.cache_at(_core.Cached.DEVIATION, index),
                half_at=network.cache_at(_core.Cached.HALF, index),
                rounded=network.nonlinear_before[index],
            ),
        )
        emitter.unary(_core.Kind.SERIES, operation, plane, parts)

    def _best(self, network: PlannedNetwork, op: Pointwise) -> _core.SeriesTable:
        """Return the table of the network's tier; if it has none, that of the next tier that has one, or of the last before."""
        tiers = (*range(network.tier, len(ORDERS)), *reversed(range(network.tier)))
        return next(table for tier in tiers if (table := self.table(op, tier)) is not None)


@lru_cache(maxsize=64)
def series_table(phi: Activation, count: int) -> _core.SeriesTable | None:
    """Build the table of an activation, for deviations from zero to where so many orders are too few; None if nowhere."""
    expansion, pieces = _expansion(phi), _pieces(phi, count)
    if expansion is None or not pieces:
        return None
    orders = expansion.orders(count)
    known = expansion.pieces[: len(pieces)]
    alpha = torch.cat([values[:, orders] / s[:, None] for values, s, *_ in known])
    others = torch.cat([exact[:, orders] / squares.s[:, None] for *_, exact, squares in known])
    kept, weights = fewer_orders(orders, alpha, others, _MOST_GAPS)
    scaled = torch.stack(pieces)[:, :, torch.cat([torch.zeros(1, dtype=torch.long), 1 + kept])]
    scaled[:, :, 1:] *= weights.sqrt()
    return _core.SeriesTable(
        orders=orders[kept].tolist(), degree=DEGREE, piece=PIECE, coefficients=scaled.reshape(-1).tolist()
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
        coefficients = transform() @ numbers
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


class _Squares(NamedTuple):
    """At deviations s, shape (n,): E[phi(s x)^2] and E[phi'(s x)^2], shape (n,)."""

    s: Tensor
    phi: Tensor
    slope: Tensor


class _Expansion(NamedTuple):
    """Hermite coefficients E[phi(s x) He_n(x)] / sqrt(n!) of an activation, piece by piece of the deviations.

    The orders n > 0 that it has are all, the odd or the even ones: ``first``, ``first + step``, and so on. A piece has the
    coefficients at its Chebyshev nodes, shape (degree, n); these nodes; the places of some points between, from -1 to 1; the
    coefficients and the moments there.
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
            if PIECE * (piece + 1) * _REMOTE > nearest:
                break
            here, between = (PIECE * (piece + (1 + x) / 2) for x in (nodes(), places))
            try:
                values, _ = _coefficients(phi, here, 0.0)
                exact, squares = _coefficients(phi, between, 0.0)
                shifted, again = _coefficients(phi, between, 0.5)
            except ValueError:  # not finite this far out, or not elementwise, which the reference engine reports
                break
            # Two rules that differ by half a step agree where both are exact.
            apart = (exact - shifted).abs().max() / squares.phi.max().sqrt()
            slopes_apart = (squares.slope - again.slope).abs().max() / squares.slope.max()
            if not max(float(apart), float(slopes_apart)) <= _TOLERANCE:
                break
            pieces.append((values, here, places, exact, squares))
    if not pieces:
        return None
    size = torch.stack([(values / values.norm(dim=1, keepdim=True)).abs().amax(0) for values, *_ in pieces]).amax(0)
    odd, even = bool((size[2::2] < 1e-14).all()), bool((size[1::2] < 1e-14).all())
    return _Expansion(2 if even and not odd else 1, 2 if odd or even else 1, tuple(pieces))


def _coefficients(phi: Activation, s: Tensor, shift: float) -> tuple[Tensor, _Squares]:
    """Return the Hermite coefficients at deviations s, shape (len(s), orders), and the moments."""
    x, hermite = _grid(shift)
    values, slopes = evaluate(phi, s[:, None] * x)
    # Orders above zero do not see phi(0). Left in, its rounding errors would be divided by small deviations.
    constant = evaluate(phi, torch.zeros(1, dtype=torch.float64))[0]
    coefficients = ((values - constant) * hermite[0]) @ hermite.T
    coefficients[:, 0] += constant
    return coefficients, _Squares(s, ((values * hermite[0]) ** 2).sum(1), ((slopes * hermite[0]) ** 2).sum(1))


@lru_cache(maxsize=2)
def _grid(shift: float) -> tuple[Tensor, Tensor]:
    """Nodes of the rule, and there He_n / sqrt(n!) times the root of the Gaussian weight, shape (orders, nodes)."""
    x = torch.arange(-_RADIUS, _RADIUS, _SPACING, dtype=torch.float64) + shift * _SPACING
    return x, hermite_functions(x, 2 * ORDERS[-1] + 1) * math.sqrt(_SPACING / math.sqrt(2 * math.pi))


def nodes() -> Tensor:
    """Return the Chebyshev nodes of a piece."""
    return torch.cos((torch.arange(DEGREE, dtype=torch.float64) + 0.5) * (math.pi / DEGREE))


def _chebyshev(x: Tensor) -> Tensor:
    """T_0(x), ..., T_{degree - 1}(x) in a new last axis."""
    return torch.cos(torch.arange(DEGREE, dtype=torch.float64) * torch.acos(x)[..., None])


def transform() -> Tensor:
    """Return the matrix that takes values at the Chebyshev nodes to coefficients."""
    matrix: Tensor = _chebyshev(nodes()).T * (2 / DEGREE)
    matrix[0] /= 2
    return matrix
