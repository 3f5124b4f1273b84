r"""Sums over many Hermite orders by a few of them.

E[phi phi] and E[phi' phi'] are sums over n of smooth functions of n: products alpha_n(s) alpha_n(s') that fall slowly, times
rho^n. Like an integral, such a sum is had from a few nodes with weights w_n >= 0,

    sum_n n alpha_n alpha_n' rho^(n - 1)  ~  sum over nodes of w_n n alpha_n alpha_n' rho^(n - 1),

which non-negative least squares finds (Lawson and Hanson 1974): it ends with at most as many nodes as the functions have
numerically independent combinations. Of the 128 odd orders that tanh needs for deviations up to 1.5, about 20 are left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
import scipy  # which imports scipy.optimize when it is first used
import torch
from numpy.typing import NDArray
from torch import Tensor

Array = NDArray[np.float64]

_TOLERANCE = 1e-12  # of E[phi phi] and E[phi' phi'], relative to the geometric mean of both inputs' own
# Singular values below this part of the largest are rounding: tried one after the other.
_INDEPENDENT = (1e-14, 1e-15, 1e-16)
_FITTED, _CHECKED = 24, 23  # deviations whose pairs are fitted, and others whose pairs are checked


def fewer_orders(orders: Tensor, alpha: Tensor, others: Tensor, most_gaps: int) -> tuple[Tensor, Tensor]:
    """Find the indices of nodes, ascending, and their weights; all orders with weight one where fewer do not suffice.

    ``orders`` are ascending; ``alpha`` and ``others`` are alpha_n(s) at deviations s to fit, and at others to check, shape
    (deviations, orders). Neighbouring nodes have at most ``most_gaps`` different distances.
    """
    n = orders.to(torch.float64)
    angles = torch.cat([torch.zeros(1), torch.logspace(-1.7, math.log10(1.54), 16)]).to(torch.float64)
    if len(torch.unique(orders % 2)) > 1:  # of one parity, rho and -rho give the same sums but for the sign
        angles = torch.cat([angles, math.pi - angles])
    functions = _functions(n, _some(alpha, _FITTED), torch.cos(angles))
    _, sizes, directions = torch.linalg.svd(functions, full_matrices=False)
    checked = torch.cos(torch.linspace(0, 1, 29, dtype=torch.float64) ** 2 * math.pi)
    exact = [_functions(n, _some(others, _CHECKED), checked, power) for power in (0, 1)]  # E[phi phi] / K, E[phi' phi']
    matrix = sizes[:, None] * directions
    for found in non_negative(matrix.numpy(), matrix.sum(1).numpy(), sizes.numpy(), _INDEPENDENT):
        weights = torch.from_numpy(found)
        nodes = torch.nonzero(weights > 0).reshape(-1)
        gaps = torch.diff(orders[nodes], prepend=torch.ones(1, dtype=orders.dtype))
        error = max(float((functions @ (weights - 1)).abs().max()) for functions in exact)
        if error <= _TOLERANCE and len(torch.unique(gaps)) <= most_gaps:
            return nodes, weights[nodes]
    return torch.arange(len(orders)), torch.ones(len(orders), dtype=torch.float64)


def non_negative(matrix: Array, wanted: Array, sizes: Array, least: Sequence[float]) -> Iterator[Array]:
    """Yield w >= 0 with matrix @ w ~ wanted, for the rows whose singular values ``sizes`` are not below each least part."""
    for part in least:
        kept = sizes > part * sizes[0]
        try:
            yield scipy.optimize.nnls(matrix[kept], wanted[kept], maxiter=30 * matrix.shape[1])[0]
        except RuntimeError:  # too many iterations
            continue


def _some(alpha: Tensor, count: int) -> Tensor:
    """Give rows spread over all of them."""
    return alpha[torch.linspace(0, len(alpha) - 1, min(count, len(alpha)), dtype=torch.float64).round().long()]


def _functions(n: Tensor, alpha: Tensor, rho: Tensor, power: int = 1) -> Tensor:
    """Give n^power alpha_n alpha_n' rho^(n - 1) for all pairs of deviations and all rho, relative to both inputs' own sums.

    Shape (pairs * rho, orders).
    """
    half = alpha * n ** (power / 2)
    half = half / half.norm(dim=1, keepdim=True)
    first, second = torch.triu_indices(len(half), len(half))
    products = half[first] * half[second]
    functions: Tensor = products[:, None] * rho[:, None] ** (n - 1)
    return functions.reshape(-1, len(n))
