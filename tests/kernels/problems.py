"""A kernel in closed form, data, and the posterior mean, which the tests of the adapters share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from tests.cases import mlp, normal
from torch import Tensor

import ntkit


class ArcCosine(ntkit.Kernel):
    """The first-order arc-cosine kernel with a bias, on inputs of any shape."""

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        a, b = x1.flatten(1), (x1 if x2 is None else x2).flatten(1)
        dots = a @ b.T + 1
        norms = torch.outer(self.diag(x1), self.diag(x1 if x2 is None else x2)).sqrt()
        # The margin keeps the derivative of acos finite where two inputs coincide.
        angle = torch.acos((dots / norms).clamp(-1 + 1e-12, 1 - 1e-12))
        return norms * (angle.sin() + (torch.pi - angle) * angle.cos()) / torch.pi

    def diag(self, x: Tensor) -> Tensor:
        return (x.flatten(1) ** 2).sum(1) + 1


def rows(n: int, features: int = 6, seed: int = 0, dtype: torch.dtype = torch.float64) -> Tensor:
    return normal(n, features, seed=seed).to(dtype)


X, X_NEW = rows(25), rows(9, seed=1)
Y = torch.sin(X[:, 0]) + X[:, 1]
GRAM, CROSS = ArcCosine()(X), ArcCosine()(X_NEW, X)


def mean_at_new(noise: float) -> np.ndarray[Any, Any]:
    gram = GRAM.numpy() + noise * np.eye(25)
    return np.asarray(CROSS.numpy() @ np.linalg.solve(gram, Y.numpy()))


LEARNT_X = rows(30, 2, seed=3)
LEARNT_Y = torch.sin(1.5 * LEARNT_X[:, 0]) + 0.5 * LEARNT_X[:, 1] ** 2 - 0.5 + 0.2 * rows(30, 1, seed=4)[:, 0]


def learnt_limit(w_std: float = 1.2, b_std: float = 0.4) -> ntkit.results.InfiniteWidth:
    """Give a network whose gains have a clear best value for the data above."""
    net = mlp(2, 8, 8, 1)
    return ntkit.infinite_width(net, w_std=w_std, b_std=b_std)


def best_gains() -> ntkit.results.Evidence:
    """Give the gains that ntkit's own search finds."""
    net = learnt_limit().module
    return ntkit.evidence(net, LEARNT_X, LEARNT_Y, w_std=1.2, b_std=0.4, ridge=0.05, max_steps=500)
