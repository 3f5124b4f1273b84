"""Gaussian expectations of an activation: the one place that chooses between closed forms, tables and panels."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.program import Activation

from ._closed_forms import closed_dual, closed_mean, rectified_difference
from ._kinked import integrable, kinked_dual, kinked_mean
from ._pair import Pair
from ._partition import has_strong_kinks, jumps
from ._piecewise import pieces, piecewise_dual, piecewise_mean
from ._table import mean_tabulated, table_dual, table_mean, tabulated

__all__ = ["dual", "dual_difference", "dual_with_difference", "mean"]


def dual(
    phi: Activation,
    k: Tensor,
    q1: Tensor,
    q2: Tensor,
    tangent: bool,
    h: Tensor | None = None,
    ratio: Tensor | None = None,
) -> tuple[Tensor, Tensor | None]:
    """E[phi(u) phi(v)] and, if ``tangent``, E[phi'(u) phi'(v)] for (u, v) ~ N(0, [[q1, k], [k, q2]]).

    Differentiable once with respect to ``k``, ``q1`` and ``q2``, with finite gradients everywhere: where two inputs coincide
    (k^2 = q1 q2) and where one is zero, derivatives that are infinite there are replaced by zero.

    Functions without a closed form are computed exactly if they are polynomials of degree at most 3 between their kinks;
    from a table if they are smooth except for a kink at zero and vary slowly enough for the variances; and otherwise
    integrated entry by entry (``_kinked`` states the cost).

    Parameters
    ----------
    phi
        The activation.
    k
        Covariances, any shape, float64 or float32, any device.
    q1, q2
        Variances, broadcastable to ``k``.
    tangent
        Whether to compute the expectation of the derivatives too.
    h
        (q1 + q2) / 2 - k, of the shape of ``k``, if it is known to more digits than k; None: it is computed from k. Near
        correlation one, the expectation of a kink's derivative depends on its square root.
    ratio
        r > 0, broadcastable to ``k``, if ``h`` is (r^2 q1 + q2) / 2 - r k; None for one.

    Returns
    -------
    tuple
        Two tensors of the shape of ``k``; the second is None without ``tangent``.

    Raises
    ------
    InputError
        With ``tangent``, for an activation that jumps; and for a function that cannot be integrated.
    QuadratureError
        If the expectations of ``phi.function`` diverge, or cannot be computed to 1e-6.

    Warns
    -----
    QuadratureWarning
        If they cannot be computed to 1e-10.

    Examples
    --------
    >>> import torch
    >>> relu = Activation("rectified", (0.0, 1.0))
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> dual(relu, one, one, one, tangent=True)  # a point with itself: E[relu^2] = 1/2 = P(u > 0)
    (tensor([0.5000], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    value, slope = _dual(phi, Pair(k, q1, q2, h, ratio), tangent)
    return value.expand(k.shape), slope if slope is None else slope.expand(k.shape)


def dual_with_difference(
    phi: Activation, k: Tensor, q1: Tensor, q2: Tensor, tangent: bool, h: Tensor, ratio: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the results of :func:`dual` and :func:`dual_difference`, at less than the cost of both."""
    pair = Pair(k, q1, q2, h, ratio)
    value, slope = _dual(phi, pair, tangent)
    return value.expand(k.shape), slope if slope is None else slope.expand(k.shape), _difference(phi, pair)


def _dual(phi: Activation, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    if phi.name != "quadrature":
        return closed_dual(phi, pair, tangent)
    if (polynomials := pieces(phi)) is not None and (tangent or not pair.graded or not jumps(phi)):
        return piecewise_dual(polynomials, pair, tangent)
    if has_strong_kinks(phi) or jumps(phi):
        return kinked_dual(phi, pair, tangent)
    return _smooth_dual(phi, pair, tangent)


def _smooth_dual(phi: Activation, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    """Look the expectations up where a table is accurate, and integrate the other entries one by one, or warn or refuse."""
    good = tabulated(phi, pair.q1, pair.q2)
    if not bool(good.all()):
        good |= ~(integrable(phi, pair.q1) & integrable(phi, pair.q2))
    if bool(good.all()):
        return _tabulated(phi, pair, tangent)
    if not bool(good.any()):
        return kinked_dual(phi, pair, tangent)
    shape = pair.rho.shape
    good = good.expand(shape).reshape(-1)
    arguments = (pair.k, pair.v1, pair.v2, *(t for t in (pair.h, pair.ratio) if t is not None))
    entries = [t.expand(shape).reshape(-1) for t in arguments]
    at = [torch.nonzero(mask).reshape(-1) for mask in (good, ~good)]
    parts = [
        rule(phi, Pair(*(t[some] for t in entries)), tangent)
        for rule, some in zip((_tabulated, kinked_dual), at, strict=True)
    ]
    back = torch.argsort(torch.cat(at))
    value = torch.cat([part[0] for part in parts])[back].reshape(shape)
    slopes = [part[1] for part in parts if part[1] is not None]
    return value, torch.cat(slopes)[back].reshape(shape) if tangent else None


def _tabulated(phi: Activation, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
    # The angle has an infinite derivative at rho = +-1, so the derivative of the value with respect to rho does not come
    # from the table but from Price's theorem (1958), dE[phi phi]/dk = E[phi' phi'], which is finite there.
    value = table_dual(phi, 0, pair.theta.detach(), pair.q1, pair.q2)
    slope = table_dual(phi, 1, pair.theta, pair.q1, pair.q2) if tangent or pair.graded else None
    if slope is not None and pair.graded:
        value = pair.price(value, slope)
    return value, slope if tangent else None


def dual_difference(phi: Activation, k: Tensor, q1: Tensor, q2: Tensor, h: Tensor) -> Tensor | None:
    """E[(phi(u) - phi(v))^2] / 2 to as many digits as ``h`` = (q1 + q2) / 2 - k has.

    None for activations other than rectifiers: their expectations are smooth at correlation one, so that k suffices as long
    as no kink follows.

    Examples
    --------
    >>> import torch
    >>> one, h = torch.ones(1, dtype=torch.float64), torch.full((1,), 1e-20, dtype=torch.float64)
    >>> dual_difference(Activation("rectified", (0.0, 1.0)), one, one, one, h)
    tensor([5.0000e-21], dtype=torch.float64)
    """
    return _difference(phi, Pair(k, q1, q2, h))


def _difference(phi: Activation, pair: Pair) -> Tensor | None:
    return rectified_difference(pair, phi.parameters) if phi.name == "rectified" else None


def mean(phi: Activation, q: Tensor) -> Tensor:
    """E[phi(u)] for u ~ N(0, q), of the shape of ``q``; differentiable like :func:`dual`.

    Examples
    --------
    >>> import torch
    >>> mean(Activation("polynomial", (1.0, 0.0, 3.0)), torch.tensor([2.0]))
    tensor([7.])
    """
    pair = Pair(q, q, q)
    if phi.name != "quadrature":
        return closed_mean(phi, pair)
    if (polynomials := pieces(phi)) is not None:
        return piecewise_mean(polynomials, pair)
    if has_strong_kinks(phi) or jumps(phi):
        return kinked_mean(phi, pair.q1)
    good = mean_tabulated(phi, pair.q1)
    if not bool(good.all()):
        good |= ~integrable(phi, pair.q1)
    if bool(good.all()):
        return table_mean(phi, pair.q1)
    if not bool(good.any()):
        return kinked_mean(phi, pair.q1)
    parts = [rule(phi, pair.q1[mask]) for rule, mask in ((table_mean, good), (kinked_mean, ~good))]
    at = torch.cat([torch.nonzero(mask.reshape(-1)).reshape(-1) for mask in (good, ~good)])
    return torch.cat(parts)[torch.argsort(at)].reshape(q.shape)
