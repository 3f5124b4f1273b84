"""Slow oracles of the label-aware kernels: every pair by itself, in NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from tests.cases import mlp
from torch import Tensor

import ntkit

Array = NDArray[Any]


def base(features: int = 6) -> ntkit.Kernel:
    return ntkit.infinite_width(mlp(features, 8, 1), b_std=0.3).ntk


def data(n: int, classes: int, features: int = 6, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Points whose classes are half visible in them, and classes that are not numbered 0, 1, ..."""
    generator = torch.Generator().manual_seed(seed)
    y = torch.randint(classes, (n,), generator=generator)
    x = torch.randn(n, features, generator=generator, dtype=torch.float64) + 0.4
    x[:, 0] += y
    return x, 3 * y - 2


def targets(y: Tensor) -> Array:
    """y_i y_j with labels -1 and 1, or 1{y_i = y_j}."""
    same = (y[:, None] == y).double().numpy()
    return 2 * same - 1 if len(y.unique()) == 2 else same


def double_sum(phi: Array, gram: Array, weights: Array) -> Array:
    """Z of KR by the formula of the paper, pair by pair, in extended precision; phi is moved into the range of gram."""
    wide, w = gram.astype(np.longdouble), weights.astype(np.longdouble)
    span, n = (wide.max() - wide.min()) ** 2, len(gram)
    out = np.empty(phi.shape, dtype=np.longdouble)
    for place in np.ndindex(phi.shape):
        distance = (np.clip(phi[place].astype(np.longdouble), wide.min(), wide.max()) - wide) ** 2
        out[place] = (w * (span - distance)).sum() / (n**2 * span - distance.sum())
    return out.astype(float)


def vector_features(a: Array, b: Array, mean_square: float) -> list[float]:
    """The nine features of two vectors, one pair at a time."""
    difference = a - b
    inner, norms = a @ b, np.linalg.norm(a) * np.linalg.norm(b)
    # Kahan's angle, which loses no digits to nearly parallel vectors.
    u, v = a * np.linalg.norm(b), b * np.linalg.norm(a)
    angle = 2 * np.arctan2(np.linalg.norm(u - v), np.linalg.norm(u + v)) if norms > 0 else np.pi / 2
    constant = np.ptp(a) == 0 or np.ptp(b) == 0
    correlation = 0.0 if constant else np.corrcoef(a, b)[0, 1]
    square = difference @ difference
    rbf = np.exp(-square / mean_square)
    cosine = inner / norms if norms > 0 else 0.0
    return [cosine, inner, norms, square, np.abs(difference).sum(), angle, np.sin(angle), rbf, correlation]


def design(x1: Array, x2: Array, k: Array, train: Array, components: bool) -> Array:
    """The features of all pairs, shape (n1, n2, p); with a constant first."""

    def mean_square(points: Array) -> float:
        return float(np.mean([[np.sum((a - b) ** 2) for b in points] for a in points]))

    spaces = [(x1, x2, mean_square(train))]
    if components:
        center = train.mean(0)
        axes = np.linalg.svd(train - center, full_matrices=False)[2][:5]
        axes *= np.sign(axes[np.arange(len(axes)), np.abs(axes).argmax(1)])[:, None]
        p1, p2, p = ((points - center) @ axes.T for points in (x1, x2, train))
        spaces.append((p1, p2, mean_square(p)))
    grams = [k]
    if components:  # the kernel of the components is that of a two-layer network of them
        net = torch.nn.Sequential(*mlp(axes.shape[0], 8, 1, bias=False).children())
        grams.append(ntkit.infinite_width(net).ntk(torch.from_numpy(p1), torch.from_numpy(p2)).numpy())

    def row(i: int, j: int) -> list[float]:
        both = zip(grams, spaces, strict=True)
        return [1.0, *(f for g, (s1, s2, m) in both for f in (g[i, j], *vector_features(s1[i], s2[j], m)))]

    return np.array([[row(i, j) for j in range(len(x2))] for i in range(len(x1))])
