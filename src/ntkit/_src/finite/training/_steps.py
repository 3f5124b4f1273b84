"""One step of each method, on the parameters as a single vector."""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from ntkit.errors import InputError

from ._schedule import Method

Memory = dict[str, Tensor]

_BETAS, _EPSILON = (0.9, 0.999), 1e-8  # Kingma and Ba 2015

# Dormand and Prince 1980, fifth order with an embedded fourth: rows of the Butcher tableau, and the difference of weights.
_STAGES = (
    (1 / 5,),
    (3 / 40, 9 / 40),
    (44 / 45, -56 / 15, 32 / 9),
    (19372 / 6561, -25360 / 2187, 64448 / 6561, -212 / 729),
    (9017 / 3168, -355 / 33, 46732 / 5247, 49 / 176, -5103 / 18656),
    (35 / 384, 0.0, 500 / 1113, 125 / 192, -2187 / 6784, 11 / 84),
)
_ERROR = (71 / 57600, 0.0, -71 / 16695, 71 / 1920, -17253 / 339200, 22 / 525, -1 / 40)
_SAFETY, _SHRINK, _GROW = 0.9, 0.2, 5.0


def discrete_step(
    method: Method, theta: Tensor, gradient: Tensor, lr: float, momentum: float, memory: Memory
) -> tuple[Tensor, Memory]:
    """Take one step of gradient descent, heavy-ball momentum (v <- m v + g, theta <- theta - lr v), or Adam."""
    if method == "momentum":
        velocity = momentum * memory.get("velocity", torch.zeros_like(theta)) + gradient
        return theta - lr * velocity, {**memory, "velocity": velocity}
    if method == "adam":
        count = memory.get("count", torch.zeros((), dtype=torch.int64)) + 1
        first = _BETAS[0] * memory.get("first", torch.zeros_like(theta)) + (1 - _BETAS[0]) * gradient
        second = _BETAS[1] * memory.get("second", torch.zeros_like(theta)) + (1 - _BETAS[1]) * gradient.square()
        mean = first / (1 - _BETAS[0] ** int(count))
        spread = (second / (1 - _BETAS[1] ** int(count))).sqrt()
        new = theta - lr * mean / (spread + _EPSILON)
        return new, {**memory, "count": count, "first": first, "second": second}
    return theta - lr * gradient, memory


def runge_kutta_step(
    slope: Callable[[Tensor], Tensor],
    theta: Tensor,
    start: Tensor,
    theta0: Tensor,
    h: float,
    limit: float,
    rtol: float,
    atol: float,
) -> tuple[Tensor, float, float]:
    """Take one accepted step of gradient flow, theta' = slope(theta), from theta, where the slope is ``start``.

    The first step size tried is h, and none is longer than ``limit``, the time to the next record. The norm of a step's error is
    at most rtol times the distance from theta0 (or the length of the step, if longer), plus atol. Returns the new parameters,
    the time taken, and the step size to try next.
    """
    wanted = h
    while True:
        taken = min(wanted, limit)
        slopes = [start]
        for row in _STAGES:
            point = theta + taken * sum(c * k for c, k in zip(row, slopes, strict=True) if c)
            slopes.append(slope(point))
        new = point
        error = taken * float(torch.linalg.vector_norm(sum(c * k for c, k in zip(_ERROR, slopes, strict=True) if c)))
        distance = max(float(torch.linalg.vector_norm(new - theta0)), float(torch.linalg.vector_norm(new - theta)))
        allowed = rtol * distance + atol
        overflowed = not math.isfinite(error + distance)
        ratio = math.inf if overflowed else error / allowed if allowed > 0 else 0.0
        if ratio <= 1:
            grown = taken * min(_GROW, _SAFETY * ratio**-0.2 if ratio > 0 else _GROW)
            # A step shortened by a record says little about longer ones.
            return new, taken, max(grown, wanted) if taken < wanted else grown
        wanted = taken * (max(_SHRINK, _SAFETY * ratio**-0.2) if ratio < float("inf") else _SHRINK)
        if not wanted > torch.finfo(theta.dtype).tiny or bool((theta + wanted * start == theta).all()):
            raise InputError(
                f"the gradient flow cannot reach rtol={rtol}, atol={atol} in {theta.dtype}: its steps became too small to "
                "change the parameters. Allow larger errors, or use float64 or a smoother activation."
            )
