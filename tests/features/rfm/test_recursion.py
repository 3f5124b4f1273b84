"""The recursion of the feature machine, written out point by point."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal
from torch import Tensor

from ntkit._src.features.rfm import DistanceKernel, RFMSettings, recursion
from ntkit._src.features.rfm._recursion import metric_from


def _data(n: int = 12, d: int = 4, c: int = 2) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(n, d, generator=generator, dtype=torch.float64)
    return (
        x,
        torch.randn(n, c, generator=generator, dtype=torch.float64),
        torch.randn(5, d, generator=generator).double(),
    )


def _power(matrix: Tensor, power: float) -> Tensor:
    values, vectors = torch.linalg.eigh(matrix)
    return vectors @ torch.diag(values.clamp_min(0) ** power) @ vectors.T


def _written(
    shape: str, x: Tensor, y: Tensor, z: Tensor, L: float, ridge: float, power: float, diagonal: bool, center: bool,
    scale: str | None, updates: int,
) -> tuple[list[Tensor], Tensor]:  # fmt: skip
    """The definition, one pair of points and one output at a time."""
    n, d = x.shape
    M = torch.eye(d, dtype=x.dtype)

    def k(a: Tensor, b: Tensor) -> Tensor:
        square = (a - b) @ M @ (a - b)
        return torch.exp(-square.sqrt() / L) if shape == "laplace" else torch.exp(-square / (2 * L**2))

    predictions = []
    for update in range(updates + 1):
        K = torch.stack([torch.stack([k(a, b) for b in x]) for a in x])
        alpha = torch.linalg.solve(K + ridge * K.trace() / n * torch.eye(n, dtype=x.dtype), y)
        predictions.append(torch.stack([torch.stack([k(a, b) for b in x]) for a in z]) @ alpha)
        if update == updates:
            break
        gradients = torch.zeros(n, y.shape[1], d, dtype=x.dtype)
        for i in range(n):
            for j in range(n):
                if not torch.equal(x[i], x[j]):
                    point = x[i].clone().requires_grad_()
                    (slope,) = torch.autograd.grad(k(point, x[j]), point)
                    gradients[i] += alpha[j][:, None] * slope
        if center:
            gradients = gradients - gradients.mean(0)
        G = torch.einsum("ica,icb->ab", gradients, gradients) / n
        G = torch.diag(G.diagonal()) if diagonal else G
        M = _power(G, power)
        if scale == "max":
            M = M / M.max()
        elif scale == "trace":
            M = M / (M.trace() / d)
    return predictions, M


@pytest.mark.parametrize("shape", ["laplace", "gaussian"])
@pytest.mark.parametrize(
    ("power", "diagonal", "center", "scale"),
    [
        (1.0, False, False, "max"),
        (0.5, False, False, "max"),
        (1.0, True, False, "trace"),
        (0.5, True, True, "max"),
        (0.7, False, True, "trace"),
        (1.0, False, False, None),
    ],
)
def test_written_iteration(shape: str, power: float, diagonal: bool, center: bool, scale: str | None) -> None:
    x, y, z = _data()
    x[7] = x[3]  # a repeated row has no gradient from its twin
    settings = RFMSettings(DistanceKernel(shape, 2.5), 3, 1e-2, power, diagonal, center, scale)  # type: ignore[arg-type]
    states = list(recursion(x, y, settings))
    expected, M = _written(shape, x, y, z, 2.5, 1e-2, power, diagonal, center, scale, 3)
    assert len(states) == 4
    for state, wanted in zip(states, expected, strict=True):
        torch.testing.assert_close(state.predict(z), wanted, rtol=1e-8, atol=1e-8)
    found = states[-1].metric.matrix
    torch.testing.assert_close(torch.diag(found) if diagonal else found, M, rtol=1e-8, atol=1e-8)
    assert states[-1].residual == pytest.approx(float((states[-1].predict(x) - y).square().mean()), rel=1e-6)


def test_zero_targets_leave_the_metric() -> None:
    x, y, _ = _data()
    states = list(recursion(x, 0 * y, RFMSettings(DistanceKernel("laplace", 1.0), 2, 1e-3, 1.0, False, False, "max")))
    assert torch.equal(states[-1].metric.matrix, torch.eye(4, dtype=torch.float64))


def test_median_bandwidth_follows_the_metric() -> None:
    x, y, _ = _data(30)
    settings = RFMSettings(DistanceKernel("laplace", None, 2.0), 2, 1e-3, 1.0, False, False, "max")
    for state in recursion(x, y, settings):
        assert isinstance(state.kernel, DistanceKernel)
        assert state.kernel.bandwidth == pytest.approx(2 * float(torch.pdist(state.points).median()), rel=1e-9)
    same = x[:1].expand(5, 4)
    fitted, gram = DistanceKernel("laplace", None).fit(same)
    assert fitted.bandwidth == 1.0 and torch.equal(gram, torch.ones(5, 5, dtype=torch.float64))  # all points coincide


@pytest.mark.parametrize("power", [0.3, 0.5, 1.0, 2.0])
@pytest.mark.parametrize("factor", [1.0, 1e-150, 1e150])
def test_metrics_of_any_scale(power: float, factor: float) -> None:
    half = normal(6, 4)
    agop = half.T @ half
    metric = metric_from(factor * agop, power, "max")
    assert metric is not None and float(metric.matrix.max()) == pytest.approx(1)
    torch.testing.assert_close(metric.root @ metric.root, metric.matrix)
    torch.testing.assert_close(metric.matrix, _power(agop, power) / _power(agop, power).max())
    assert metric_from(0 * agop, power, "max") is None
    plain = metric_from(agop, power, None)
    assert plain is not None
    torch.testing.assert_close(plain.matrix, _power(agop, power))
    assert math.isfinite(float(plain.root.sum()))
