"""Slow oracles of the two-layer hierarchy: eqs (13)-(15) term by term, and exact expectations of ReLUs, smoothed or not."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

import numpy as np
import torch
from torch import Tensor

# Eq. (15), symmetric in alpha and beta: factor, power of the outer weight, the inner products, the derivatives of sigma.
# Inputs: 0 alpha, 1 beta, 2 gamma (training, later time), 3 xi (training, earlier time).
TERMS: list[tuple[int, int, list[tuple[int, int]], tuple[int, int, int, int]]] = [
    (1, 4, [(0, 1), (0, 2), (0, 3)], (3, 1, 1, 1)),
    (1, 4, [(0, 1), (1, 2), (1, 3)], (1, 3, 1, 1)),
    (1, 4, [(0, 1), (0, 2), (1, 3)], (2, 2, 1, 1)),
    (1, 4, [(0, 1), (0, 3), (1, 2)], (2, 2, 1, 1)),
    (1, 4, [(0, 2), (0, 1), (2, 3)], (2, 1, 2, 1)),
    (1, 4, [(1, 2), (0, 1), (2, 3)], (1, 2, 2, 1)),
    (3, 2, [(0, 1), (0, 2)], (2, 1, 1, 0)),
    (3, 2, [(0, 1), (1, 2)], (1, 2, 1, 0)),
    (2, 2, [(0, 1), (0, 3)], (2, 1, 0, 1)),
    (2, 2, [(0, 1), (1, 3)], (1, 2, 0, 1)),
    (2, 2, [(0, 1), (2, 3)], (1, 1, 1, 1)),
    (1, 2, [(0, 2), (0, 3)], (2, 0, 1, 1)),
    (1, 2, [(0, 2), (2, 3)], (1, 0, 2, 1)),
    (1, 2, [(1, 2), (1, 3)], (0, 2, 1, 1)),
    (1, 2, [(1, 2), (2, 3)], (0, 1, 2, 1)),
    (1, 2, [(0, 2), (1, 3)], (1, 1, 1, 1)),
    (1, 2, [(0, 3), (1, 2)], (1, 1, 1, 1)),
    (2, 0, [(0, 1)], (1, 1, 0, 0)),
    (1, 0, [(0, 2)], (1, 0, 1, 0)),
    (1, 0, [(1, 2)], (0, 1, 1, 0)),
]
MOMENTS = {0: 1.0, 2: 1.0, 4: 3.0}


def second(sigma: Sequence[Callable[[Tensor], Tensor]], a: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """Eq. (13) for two inputs x (2, d) of a network with outer weights a (m,) and inner weights w (m, d)."""
    z = w @ x.T
    return (
        x[0] @ x[1] * (a**2 * sigma[1](z[:, 0]) * sigma[1](z[:, 1])).sum() + sigma[0](z[:, 0]) @ sigma[0](z[:, 1])
    ) / len(a)


def third(sigma: Sequence[Callable[[Tensor], Tensor]], a: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """Eq. (14) for three inputs x (3, d)."""
    gram, z = x @ x.T, w @ x.T
    total = torch.zeros((), dtype=x.dtype)
    for factor, power, inner, orders in [
        (1, 3, [(0, 2), (0, 1)], (2, 1, 1)),
        (1, 3, [(1, 2), (0, 1)], (1, 2, 1)),
        (2, 1, [(0, 1)], (1, 1, 0)),
        (1, 1, [(0, 2)], (1, 0, 1)),
        (1, 1, [(1, 2)], (0, 1, 1)),
    ]:
        product = a**power
        for k, order in enumerate(orders):
            product = product * sigma[order](z[:, k])
        total = total + factor * math.prod(float(gram[p]) for p in inner) * product.sum()
    return total / len(a) ** 1.5


def fourth(sigma: Sequence[Callable[[Tensor], Tensor]], a: Tensor, w: Tensor, x: Tensor) -> Tensor:
    """Eq. (15) for four inputs x (4, d)."""
    gram, z = x @ x.T, w @ x.T
    total = torch.zeros((), dtype=x.dtype)
    for factor, power, inner, orders in TERMS:
        product = a**power
        for k, order in enumerate(orders):
            product = product * sigma[order](z[:, k])
        total = total + factor * math.prod(float(gram[p]) for p in inner) * product.sum()
    return total / len(a) ** 2


def relu_fourth(x: Tensor, h: float) -> float:
    """Give width E K4 of four inputs x (4, d), exactly, for ReLUs smoothed by a Gaussian of width h |x|.

    Smoothing is noise: sigma_h(w . x) = E relu(w . x + h |x| xi) with a variable xi for each of the four places, so that the
    expectations are those of ReLUs, steps, delta functions and their derivatives of a Gaussian vector with the diagonal of its
    covariance raised.
    """
    gram = (x @ x.T).numpy()
    covariance = gram + h**2 * np.diag(np.diag(gram))
    return sum(
        factor * MOMENTS[power] * math.prod(gram[p] for p in inner) * expectation(covariance, orders)
        for factor, power, inner, orders in TERMS
        if math.prod(gram[p] for p in inner) != 0
    )


def expectation(covariance: np.ndarray, orders: tuple[int, ...]) -> float:
    """E prod_k f_k(z_k), f_k the derivative of relu of an order 0 to 3 (ReLU, step, delta, delta'), z Gaussian."""
    for kind in (3, 2, 0):
        if kind not in orders:
            continue
        k = orders.index(kind)
        if kind == 0:  # relu(z) = z step(z), and E z_k F = sum_l C_kl E dF/dz_l
            start = _with(orders, k, 1)
            return sum(
                covariance[k, m] * expectation(covariance, _with(start, m, start[m] + 1)) for m in range(len(orders))
            )
        rest = [m for m in range(len(orders)) if m != k]
        slope = covariance[rest, k] / covariance[k, k]
        left = covariance[np.ix_(rest, rest)] - np.outer(slope, covariance[k, rest])
        others = tuple(orders[m] for m in rest)
        density = 1 / math.sqrt(2 * math.pi * covariance[k, k])
        if kind == 2:
            return density * expectation(left, others)
        return -density * sum(s * expectation(left, _with(others, m, others[m] + 1)) for m, s in enumerate(slope))
    return orthant(covariance)


def _with(orders: tuple[int, ...], k: int, value: int) -> tuple[int, ...]:
    return (*orders[:k], value, *orders[k + 1 :])


def orthant(covariance: np.ndarray) -> float:
    """P(z > 0) for up to four dimensions; the fourth by Plackett's integral over the correlations."""
    scale = np.sqrt(np.diag(covariance))
    r = np.clip(covariance / np.outer(scale, scale), -1, 1)
    if len(r) <= 3:
        return 2.0 ** -len(r) * (1 + 2 / math.pi * sum(math.asin(r[k, m]) for k in range(len(r)) for m in range(k)))
    return _orthant4(r.tobytes())


@lru_cache
def _orthant4(correlations: bytes) -> float:
    r = np.frombuffer(correlations).reshape(4, 4)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    edges = np.array(
        [0.0, *(1 - 2.0**-e for e in range(1, 40)), 1.0]
    )  # finer towards t = 1, where correlations may be near 1
    t = (edges[:-1, None] + np.diff(edges)[:, None] * (nodes + 1) / 2).ravel()
    dt = (np.diff(edges)[:, None] * weights / 2).ravel()
    at = np.eye(4) + t[:, None, None] * (r - np.eye(4))
    total = 2.0**-4
    for k in range(4):
        for m in range(k):
            one, two = (j for j in range(4) if j not in (k, m))
            c = at[:, k, m]

            def left(p: int, q: int, k: int = k, m: int = m, c: np.ndarray = c) -> np.ndarray:
                """Covariance of z_p and z_q given z_k = z_m = 0."""
                pk, pm, qk, qm = at[:, p, k], at[:, p, m], at[:, q, k], at[:, q, m]
                return at[:, p, q] - (pk * qk + pm * qm - c * (pk * qm + pm * qk)) / (1 - c**2)

            correlation = np.clip(left(one, two) / np.sqrt(left(one, one) * left(two, two)), -1, 1)
            density = 1 / (2 * math.pi * np.sqrt(1 - c**2))
            total += float((dt * r[k, m] * density * (0.25 + np.arcsin(correlation) / (2 * math.pi))).sum())
    return total
