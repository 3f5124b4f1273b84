"""Kernels in NumPy and data that the tests of the estimators share."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.datasets import make_regression
from torch import Tensor

import ntkit

Array = NDArray[Any]


def relu_kernels(x1: Array, x2: Array, depth: int, w_std: float = 2**0.5, b_std: float = 0.0) -> tuple[Array, Array]:
    """NTK and NNGP kernel of a fully-connected ReLU network by the arc-cosine recursion of Jacot et al."""
    w, b = w_std**2, b_std**2
    k = w * x1 @ x2.T / x1.shape[1] + b
    d1, d2 = (w * (x * x).mean(1) + b for x in (x1, x2))
    theta = k
    for _ in range(depth):
        norm = np.sqrt(np.outer(d1, d2))
        angle = np.arccos(np.clip(k / norm, -1, 1))
        k = w * norm * (np.sin(angle) + (np.pi - angle) * np.cos(angle)) / (2 * np.pi) + b
        theta = k + w * theta * (np.pi - angle) / (2 * np.pi)
        d1, d2 = w * d1 / 2 + b, w * d2 / 2 + b
    return theta, k


def regression(gram: Array, cross: Array, targets: Array, ridge: float) -> Array:
    n = len(gram)
    return cross @ np.linalg.solve(gram + ridge * np.trace(gram) / n * np.eye(n), targets)


class Laplace(ntkit.Kernel):
    """exp(-|x - x'|) on inputs of any shape, and a record of the shapes seen."""

    def __init__(self) -> None:
        self.shapes: list[tuple[int, ...]] = []

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        self.shapes.append(tuple(x1.shape))
        difference = x1.flatten(1)[:, None] - (x1 if x2 is None else x2).flatten(1)[None]
        return torch.exp(-difference.norm(dim=2))

    def diag(self, x: Tensor) -> Tensor:
        return x.new_ones(len(x))


def regression_data() -> tuple[Array, Array]:
    """Give 60 points of 7 features and 3 targets."""
    X, y = make_regression(60, 7, n_targets=3, random_state=0)
    return X, y / 100
