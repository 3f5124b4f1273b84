"""Kernels in a metric: gradients of the user's own and of a network's, exact distances."""

from __future__ import annotations

import pytest
import torch
from tests.cases import mlp, normal
from torch import Tensor

import ntkit
from ntkit._src.features.rfm import DifferentiableKernel, DistanceKernel, RFMSettings, recursion
from ntkit._src.features.rfm._metric_kernels import squared_distances
from ntkit.errors import InputError


def _data(n: int = 12, d: int = 4, c: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return (
        x,
        torch.randn(n, c, generator=generator, dtype=torch.float64),
        torch.randn(5, d, generator=generator).double(),
    )


class Gauss(ntkit.Kernel):
    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        other = x1 if x2 is None else x2
        return torch.exp(-(x1[:, None] - other[None]).square().sum(2) / (2 * 2.5**2))

    def diag(self, x: Tensor) -> Tensor:
        return torch.ones(len(x)).to(x)


def test_kernel_of_ones_own_is_differentiated() -> None:
    x, y, z = _data()
    own = list(recursion(x, y, RFMSettings(DifferentiableKernel(Gauss()), 3, 1e-2, 0.5, False, False, "max")))
    named = list(recursion(x, y, RFMSettings(DistanceKernel("gaussian", 2.5), 3, 1e-2, 0.5, False, False, "max")))
    for a, b in zip(own, named, strict=True):
        torch.testing.assert_close(a.predict(z), b.predict(z), rtol=1e-8, atol=1e-8)


def test_tangent_kernel_of_a_module() -> None:
    """Against the gradient of the kernel by finite differences; repeated points give nothing, and nothing infinite."""
    x, y, _ = _data(8, 3, 1)
    x[5] = x[2]
    limit = ntkit.infinite_width(mlp(3, 8, 1), b_std=0.1).ntk
    kernel = DifferentiableKernel(limit)
    gram = kernel.gram(x)
    gradients = kernel.gradients(x, gram, y)[:, 0]
    assert bool(torch.isfinite(gradients).all())
    step = 1e-6
    for i in range(8):
        others = [j for j in range(8) if not torch.equal(x[i], x[j])]
        for axis in range(3):
            shift = torch.zeros(3, dtype=torch.float64)
            shift[axis] = step
            both = limit(torch.stack([x[i] + shift, x[i] - shift]), x[others]) @ y[others, 0]
            assert float(gradients[i, axis]) == pytest.approx(float(both[0] - both[1]) / (2 * step), rel=1e-5, abs=1e-7)


def test_kernels_without_finite_derivatives_are_refused() -> None:
    class Detached(Gauss):
        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            return super().__call__(x1.detach(), x2)

    class Infinite(Gauss):
        def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
            other = x1 if x2 is None else x2
            return super().__call__(x1, x2) + 0 * (x1[:, :1] - x1[:, :1].detach()).abs().sqrt() * other[:, 0]

    x, y, _ = _data(6)
    for kernel, message in ((Detached(), "differentiable in its first argument"), (Infinite(), "must be finite")):
        with pytest.raises(InputError, match=message):
            list(recursion(x, y, RFMSettings(DifferentiableKernel(kernel), 1, 1e-2, 1.0, False, False, "max")))


def test_distances_are_exact_zeros_and_precise() -> None:
    x = 1e6 + normal(20, 5)
    x[4] = x[9]
    squares = squared_distances(x)
    exact = (x[:, None] - x[None]).square().sum(2)
    torch.testing.assert_close(squares, exact, rtol=1e-12, atol=0)
    assert float(squares[4, 9]) == 0 and not squares.diagonal().any()
    torch.testing.assert_close(squared_distances(x, x[:7]), exact[:, :7], rtol=1e-12, atol=0)
