"""Predictions of a solved system, in blocks of rows."""

from __future__ import annotations

import torch
from torch import Tensor

from ntkit._src.kernels import Kernel

from ._method import Solution

__all__ = ["predict"]

_BLOCK_BYTES = 1 << 27


def predict(kernel: Kernel, x: Tensor, x_train: Tensor, solution: Solution) -> Tensor:
    """Return f(x) = K(x, Z) a, shape (m,) or (m, k), Z being the training points or their centres.

    Parameters
    ----------
    kernel : Kernel
        The kernel of the system.
    x : Tensor of shape (m, ...)
        Where to predict.
    x_train : Tensor of shape (n, ...)
        The points that the system was solved for.
    solution : Solution
        The result of :func:`ntkit.solve`.

    Examples
    --------
    >>> import torch, ntkit
    >>> from torch import nn
    >>> kernel = ntkit.infinite_width(nn.Sequential(nn.Linear(2, 8), nn.ReLU(), nn.Linear(8, 1))).ntk
    >>> x = torch.randn(30, 2, dtype=torch.float64)
    >>> y = x.sum(1)
    >>> solution = ntkit.solve(kernel, y, x=x, ridge=1e-8)
    >>> bool((ntkit.solvers.predict(kernel, x, x, solution) - y).abs().max() < 1e-4)
    True
    """
    points = x_train if solution.centres is None else x_train[solution.centres.to(x_train.device)]
    size = max(64, _BLOCK_BYTES // (8 * len(points)))
    with torch.no_grad():
        parts = [kernel(part, points).to(solution.value.dtype) @ solution.value for part in torch.split(x, size)]
    return torch.cat(parts)
