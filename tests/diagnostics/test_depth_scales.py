"""Depth scales: closed forms for erf and ReLU, finite networks, blocks of several kinds, errors."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor, nn

from ntkit.diagnostics import depth_scales
from ntkit.errors import InputError, UnsupportedLayerError


class ErfBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.linear = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return torch.erf(self.linear(x))


class Residual(nn.Module):
    def __init__(self, branch: nn.Module) -> None:
        super().__init__()
        self.branch = branch

    def forward(self, x: Tensor) -> Tensor:
        return x + self.branch(x)


def erf_course(w: float, b: float, q: float, c: float, depth: int) -> list[tuple[float, float]]:
    """Iterate E[erf(u) erf(v)] = 2 / pi asin(2 k / (1 + 2 q)), written independently of the library."""
    found = [(q, c)]
    for _ in range(depth):
        variance, covariance = w**2 * q + b**2, w**2 * q * c + b**2
        q = 2 / math.pi * math.asin(2 * variance / (1 + 2 * variance))
        c = 2 / math.pi * math.asin(2 * covariance / (1 + 2 * variance)) / q
        found.append((q, c))
    return found


@pytest.mark.parametrize(("w", "b", "phase"), [(0.8, 0.3, "ordered"), (1.6, 0.1, "chaotic"), (3.0, 0.5, "chaotic")])
def test_erf_networks_by_iteration(w: float, b: float, phase: str) -> None:
    found = depth_scales(ErfBlock(), w_std=w, b_std=b)
    course = erf_course(w, b, 1.0, 0.4, 400)
    assert found.phase == phase
    assert found.variance == pytest.approx(course[-1][0], rel=1e-10)
    assert found.correlation == pytest.approx(course[-1][1], rel=1e-8)
    variance = w**2 * found.variance + b**2
    assert found.chi == pytest.approx(w**2 * 4 / math.pi / math.sqrt(1 + 4 * variance), rel=1e-10)  # w^2 E[erf'^2]
    # The distance from the fixed point falls by the slope with every block: late, where it is small, yet above rounding.
    gaps = [abs(c - found.correlation) for _, c in erf_course(w, b, found.variance, 0.4, 60)]
    late = max(i for i, gap in enumerate(gaps[:-1]) if gap > 1e-7)
    assert gaps[late + 1] / gaps[late] == pytest.approx(math.exp(-1 / found.correlation_scale), rel=1e-4)
    assert found.correlation_scale == pytest.approx(-1 / math.log(found.slope))
    torch.testing.assert_close(found.course(5, 0.4, 1.0), torch.tensor(course[:6], dtype=torch.float64))


@pytest.mark.parametrize(
    ("w", "b", "variance", "chi"),
    [(2**0.5, 0.0, 1.0, 1.0), (1.0, 0.2, 0.04, 0.5), (1.0, 0.0, 0.0, 1.0), (2.0, 0.3, math.inf, 1.0)],
)
def test_relu_networks(w: float, b: float, variance: float, chi: float) -> None:
    found = depth_scales(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), w_std=w, b_std=b)
    assert found.variance == pytest.approx(variance) and found.chi == pytest.approx(chi) and found.correlation == 1
    assert found.phase == ("ordered" if chi < 1 else "critical")


def test_a_residual_block_adds_its_branch() -> None:
    w1, w2, c = 1.2, 0.7, 0.3
    branch = nn.Sequential(nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False))
    found = depth_scales(Residual(branch), overrides={"branch.0": {"w_std": w1}, "branch.2": {"w_std": w2}})
    angle = math.acos(c)
    arc = (math.sin(angle) + (math.pi - angle) * c) / math.pi
    share = (w1 * w2) ** 2 / 2
    assert found.variance == math.inf and found.phase == "critical"
    assert found.correlation_map(c, variance=1.0) == pytest.approx((c + share * arc) / (1 + share), rel=1e-10)


def test_the_order_within_a_block_changes_no_scale() -> None:
    before, after = (
        depth_scales(nn.Sequential(*layers), w_std=2.0, b_std=0.3)
        for layers in ((nn.Linear(4, 4), nn.Sigmoid()), (nn.Sigmoid(), nn.Linear(4, 4)))
    )
    for name in ("chi", "slope", "variance_scale", "correlation_scale"):
        assert getattr(before, name) == pytest.approx(getattr(after, name), rel=1e-7)
    assert after.variance == pytest.approx(4 * before.variance + 0.09)


def test_finite_networks_follow_the_map() -> None:
    width, w, b = 1500, 1.8, 0.2
    generator = torch.Generator().manual_seed(0)
    block = nn.Sequential(nn.Linear(4, 4), nn.LayerNorm(4), nn.GELU())
    course = depth_scales(block, w_std=w, b_std=b).course(4, 0.5, 1.0)
    one, other = torch.randn(2, width, generator=generator, dtype=torch.float64)
    x = torch.stack([one, 0.5 * one + 0.75**0.5 * other])
    for q, c in course[1:].tolist():
        weight = torch.randn(width, width, generator=generator, dtype=torch.float64) * w / width**0.5
        h = x @ weight.T + b * torch.randn(width, generator=generator, dtype=torch.float64)
        x = nn.functional.gelu(nn.functional.layer_norm(h, (width,)))
        products = x @ x.T / width
        assert float(products[0, 0]) == pytest.approx(q, rel=0.12)
        assert float(products[0, 1] / products.diagonal().prod().sqrt()) == pytest.approx(c, abs=0.06)


def test_errors() -> None:
    with pytest.raises(InputError, match="features"):
        depth_scales(nn.Tanh())
    with pytest.raises(InputError, match="vectors"):
        depth_scales(nn.Sequential(nn.Linear(4, 4), nn.Flatten()))
    with pytest.raises(UnsupportedLayerError):
        depth_scales(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.ReLU()))
    with pytest.raises(InputError):
        depth_scales(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), variance=0.0)
