"""Gaussian expectations of activations: what each class of them must provide, their registry, and the calls the rules make."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch
from torch import Tensor

from ntkit._src.program import Activation
from ntkit.errors import InputError

from ._pair import Pair

A = TypeVar("A", bound=Activation)
R = TypeVar("R", bound="type[Expectations[Any]]")


class Expectations(ABC, Generic[A]):
    """The Gaussian expectations of one class of activations; :func:`register` enters it."""

    @abstractmethod
    def dual(self, phi: A, pair: Pair, tangent: bool) -> tuple[Tensor, Tensor | None]:
        """E[phi(u) phi(v)] and E[phi'(u) phi'(v)], broadcastable to k; the second may be None unless ``tangent``."""

    def mean(self, phi: A, q: Tensor) -> Tensor:
        """E[phi(u)] for u ~ N(0, q), of the shape of ``q``; zero unless a subclass says otherwise."""
        if not phi.odd:
            raise NotImplementedError(f"{type(self).__name__} must define mean: {phi} is not odd.")
        return torch.zeros_like(q)

    def difference(self, phi: A, pair: Pair) -> Tensor | None:
        """E[(phi(u) - phi(v))^2] / 2 to as many digits as pair.h; None where k suffices, unless a kink follows."""
        return None


_REGISTRY: dict[type[Activation], Expectations[Any]] = {}


def register(*kinds: type[Activation]) -> Callable[[R], R]:
    """Enter a class of expectations for classes of activations and their subclasses."""

    def enter(rule: R) -> R:
        _REGISTRY.update(dict.fromkeys(kinds, rule()))
        return rule

    return enter


def expectations_of(phi: Activation) -> Expectations[Any]:
    """Find the expectations of an activation by its class or the nearest registered ancestor."""
    for kind in type(phi).__mro__:
        if kind in _REGISTRY:
            return _REGISTRY[kind]
    known = ", ".join(sorted(kind.__name__ for kind in _REGISTRY))
    raise InputError(
        f"An activation must be one of {known}, or a subclass. Got {type(phi).__name__}; register its expectations in "
        "rules/expectations, or use AnyFunction."
    )


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

    Parameters
    ----------
    phi, tangent
        The activation, and whether to compute the expectation of its derivatives too. If it jumps, there is none (InputError).
    k, q1, q2
        Covariances, any shape, float64 or float32, any device; variances, broadcastable to ``k``.
    h, ratio
        (r^2 q1 + q2) / 2 - r k, of the shape of ``k``, if it is known to more digits than k; r > 0, broadcastable to ``k``, or
        None for one. Near correlation one, the expectation of a kink's derivative depends on the square root of h.

    Returns
    -------
    tuple
        Two tensors of the shape of ``k``; the second is None without ``tangent``. Expectations of an :class:`AnyFunction` that
        cannot be computed to 1e-10 warn (QuadratureWarning); those that diverge or are worse than 1e-6 raise QuadratureError.

    Examples
    --------
    >>> import torch
    >>> from ntkit._src.program import Rectified
    >>> one = torch.ones(1, dtype=torch.float64)
    >>> dual(Rectified(0.0, 1.0), one, one, one, tangent=True)  # a point with itself: E[relu^2] = 1/2 = P(u > 0)
    (tensor([0.5000], dtype=torch.float64), tensor([0.5000], dtype=torch.float64))
    """
    return _dual(phi, Pair(k, q1, q2, h, ratio), k.shape, tangent)


def _dual(phi: Activation, pair: Pair, shape: torch.Size, tangent: bool) -> tuple[Tensor, Tensor | None]:
    if tangent and not phi.differentiable:
        raise jump_error(phi)
    value, slope = expectations_of(phi).dual(phi, pair, tangent)
    return value.expand(shape), slope.expand(shape) if tangent and slope is not None else None


def jump_error(phi: object) -> InputError:
    """Return the error of a tangent kernel through a jump."""
    return InputError(
        f"Activation {phi} jumps, so E[phi' phi'] and the NTK do not exist. Ask only for the NNGP kernel "
        "(tangent=False), or use a continuous activation such as erf in place of sign."
    )


def dual_with_difference(
    phi: Activation, k: Tensor, q1: Tensor, q2: Tensor, tangent: bool, h: Tensor, ratio: Tensor | None = None
) -> tuple[Tensor, Tensor | None, Tensor | None]:
    """Return the results of :func:`dual`, and E[(phi(u) - phi(v))^2] / 2 to as many digits as ``h`` has.

    The difference is None for activations that are not homogeneous: their expectations are smooth at correlation one, so that
    k suffices as long as no kink follows.

    Examples
    --------
    >>> import torch
    >>> from ntkit._src.program import Rectified
    >>> one, h = torch.ones(1, dtype=torch.float64), torch.full((1,), 1e-20, dtype=torch.float64)
    >>> dual_with_difference(Rectified(0.0, 1.0), one, one, one, False, h)[2]
    tensor([5.0000e-21], dtype=torch.float64)
    """
    pair = Pair(k, q1, q2, h, ratio)
    return *_dual(phi, pair, k.shape, tangent), expectations_of(phi).difference(phi, pair)


def mean(phi: Activation, q: Tensor) -> Tensor:
    """E[phi(u)] for u ~ N(0, q), of the shape of ``q``; differentiable like :func:`dual`.

    Examples
    --------
    >>> import torch
    >>> from ntkit._src.program import Polynomial
    >>> mean(Polynomial((1.0, 0.0, 3.0)), torch.tensor([2.0]))
    tensor([7.])
    """
    return expectations_of(phi).mean(phi, q)


def gain_dual(phi: Activation, k: Tensor, q1: Tensor, q2: Tensor) -> Tensor:
    """Return E[u phi'(u) v phi'(v)] for (u, v) ~ N(0, [[q1, k], [k, q2]]).

    It is the covariance of d phi(g z) / dg at g = 1. With D(k, q1, q2) = E[phi(u) phi(v)] it equals
    d/ds d/dt D(s t k, s^2 q1, t^2 q2) at s = t = 1, unless z phi'(z) is itself an activation.
    """
    if (scaled := phi.times_derivative()) is not None:
        return dual(scaled, k, q1, q2, tangent=False)[0]
    one = torch.ones((), dtype=k.dtype, device=k.device)

    def in_t(s: Tensor) -> Tensor:
        return _slope(lambda t: dual(phi, s * t * k, s * s * q1, t * t * q2, tangent=False)[0], one)

    return _slope(in_t, one)


def _slope(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    slope: Tensor = torch.func.jvp(function, (z,), (torch.ones_like(z),))[1]
    return slope
