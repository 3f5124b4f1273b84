"""Sums of kernels in metrics of their own against NumPy."""

from __future__ import annotations

import numpy as np
import torch
from scipy.spatial.distance import cdist
from tests.cases import mlp, normal

import ntkit
from ntkit._src.features.rfm import DifferentiableKernel, DistanceKernel, MetricPart, MetricSum


def test_it_is_the_weighted_sum_in_every_metric() -> None:
    x, z, center = normal(7, 3), normal(4, 3) + 0.5, normal(1, 3)[0]
    root, diagonal = normal(3, 3), normal(1, 3)[0].abs()
    tangent = ntkit.infinite_width(mlp(3, 8, 1), b_std=0.3).ntk
    kernel = MetricSum(
        (
            MetricPart("laplace", 0.3, root, DistanceKernel("laplace", 2.0)),
            MetricPart("tangent", 0.7, diagonal, DifferentiableKernel(tangent)),
        ),
        center,
    )
    u, v = ((one - center).numpy() @ root.numpy() for one in (x, z))
    expected = (
        0.3 * np.exp(-cdist(u, v) / 2.0) + 0.7 * tangent((x - center) * diagonal, (z - center) * diagonal).numpy()
    )
    np.testing.assert_allclose(kernel(x, z), expected, rtol=1e-12)
    np.testing.assert_allclose(kernel(x), kernel(x, x), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(kernel.diag(x), kernel(x).diagonal(), rtol=1e-12)
    np.testing.assert_allclose(kernel(x.reshape(7, 1, 3), z.reshape(4, 1, 3)), expected, rtol=1e-12)  # such as images


def test_a_kernel_that_keeps_its_matrix_is_left_alone() -> None:
    kept = torch.eye(3, dtype=torch.float64)

    class Stored(DistanceKernel):
        def gram(self, u1: torch.Tensor, u2: torch.Tensor | None = None) -> torch.Tensor:
            return kept

    part = MetricPart("kept", 1.0, torch.ones(2, dtype=torch.float64), Stored("laplace", 1.0))
    assert torch.equal(MetricSum((part, part))(normal(3, 2)), 2 * kept)
    assert torch.equal(kept, torch.eye(3, dtype=torch.float64))
