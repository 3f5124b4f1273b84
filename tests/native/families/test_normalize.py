"""Normalisations of rows that are parallel, of very different size, or nearly equal."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from tests.cases import normal
from torch import Tensor, nn

import ntkit
from ntkit._src.native import BeyondRange


@pytest.mark.parametrize("size", [1.0, 1e4, 1e9])
def test_rows_of_very_different_size(size: float) -> None:
    """K of H has lost log2(size) bits; beyond a limit only the reference engine computes, which divides K itself."""
    x = normal(6, 5)
    y = size * normal(4, 5, seed=1)
    net = nn.Sequential(nn.Linear(5, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))
    limit = ntkit.infinite_width(net, b_std=0.3)
    beyond = size > 1e5
    for a, b in ((x, y), (torch.cat([x, y]), None)):
        found, exact = (limit.both(a, b, engine=engine) for engine in ("auto" if beyond else "native", "reference"))
        for one, other in zip(found, exact, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
        if beyond:
            with pytest.raises(BeyondRange, match=r"1 \(normalize\): .* within a factor of 65,536\. Got a factor of "):
                limit.both(a, b, engine="native")


def _normal(*shape: int, seed: int) -> Tensor:
    return normal(*shape, seed=seed)


def _vectors(*layers: nn.Module) -> tuple[tuple[int, ...], nn.Module]:
    return (40,), nn.Sequential(nn.Linear(40, 8), *layers, nn.Linear(8, 1))


def _images(*layers: nn.Module) -> tuple[tuple[int, ...], nn.Module]:
    return (3, 6), nn.Sequential(nn.Conv1d(3, 8, 3, padding=1), *layers, nn.Flatten(), nn.Linear(48, 1))


class Permuted(nn.Module):
    """A normalisation of images with the axes in another order, (n, *order)."""

    def __init__(self, norm: nn.Module, *order: int) -> None:
        super().__init__()
        self.norm, self.order = norm, (0, *order)

    def forward(self, x: Tensor) -> Tensor:
        back = [self.order.index(axis) for axis in range(4)]
        return self.norm(x.permute(self.order)).permute(back)


def _planes(*layers: nn.Module) -> tuple[tuple[int, ...], nn.Module]:
    pooled = nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
    return (2, 3, 4), nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=1), *layers, nn.Conv2d(8, 8, 3, padding=1), nn.ReLU(), *pooled
    )


NETWORKS = {
    "LayerNorm over rows": _planes(Permuted(nn.LayerNorm((4, 8)), 2, 3, 1), nn.ReLU()),
    "LayerNorm over columns": _planes(Permuted(nn.LayerNorm((3, 8), elementwise_affine=False), 3, 2, 1), nn.ReLU()),
    "LayerNorm of channels": _planes(Permuted(nn.LayerNorm(8), 2, 3, 1), nn.ReLU()),
    "RMSNorm over rows": _planes(nn.ReLU(), Permuted(nn.RMSNorm((4, 8), eps=0.1), 2, 3, 1)),
    "RMSNorm": _planes(nn.ReLU(), Permuted(nn.RMSNorm(8, eps=1e-5), 2, 3, 1)),
    "LayerNorm": _vectors(nn.LayerNorm(8), nn.ReLU()),
    "LayerNorm, not trained": _vectors(nn.LayerNorm(8, elementwise_affine=False), nn.ReLU()),
    "LayerNorm, large eps": _vectors(nn.LayerNorm(8, eps=0.3), nn.ReLU()),
    "two LayerNorms": _vectors(nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()),
    "LayerNorm after ReLU": _vectors(nn.ReLU(), nn.Linear(8, 8), nn.LayerNorm(8), nn.ReLU()),
    "GroupNorm": _images(nn.GroupNorm(1, 8), nn.ReLU()),
    "two GroupNorms": _images(
        nn.GroupNorm(1, 8), nn.ReLU(), nn.Conv1d(8, 8, 3, padding=1), nn.GroupNorm(1, 8), nn.ReLU()
    ),
    "LayerNorm of tokens": (
        (4, 6),
        nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 8), nn.Flatten(), nn.Linear(32, 1)),
    ),
}

FACTORS = torch.tensor([0.14, 0.5, 1.0, 3.0, 37.0, 200.0, 1370.0], dtype=torch.float64)
ROWS: dict[str, Callable[[Tensor, Tensor, list[int]], Tensor]] = {
    "parallel": lambda x, other, shape: FACTORS.view(shape) * x,
    "opposite": lambda x, other, shape: FACTORS.view(shape) * torch.tensor([1.0, -1.0] * 3 + [1.0]).view(shape) * x,
    "near duplicates": lambda x, other, shape: x + 10.0 ** -torch.arange(3.0, 10.0).double().view(shape) * other,
    "generic": lambda x, other, shape: other,
    "generic of different size": lambda x, other, shape: FACTORS.view(shape) * other,
}


@pytest.mark.parametrize("rows", ROWS)
@pytest.mark.parametrize("name", NETWORKS)
def test_both_engines_agree(name: str, rows: str) -> None:
    """Rounding of H costs the angle between two rows half of its digits, unless H is divided without its difference of sizes."""
    shape, net = NETWORKS[name]
    x = ROWS[rows](_normal(*shape, seed=0), _normal(7, *shape, seed=1), [7, *[1] * len(shape)])
    for b_std in (0.0, 0.3):
        limit = ntkit.infinite_width(net, b_std=b_std)
        found, exact = (limit.both(x, engine=engine) for engine in ("native", "reference"))
        for one, other in zip(found, exact, strict=True):
            assert (one - other).abs().max() <= 1e-12 * other.abs().max()


@pytest.mark.parametrize("features", [5, 40, 3000])
def test_parallel_rows_of_similar_size(features: int) -> None:
    """Every term of Theta is a product of one factor of each row, so Theta(x, x')^2 = Theta(x, x) Theta(x', x')."""
    factors = torch.tensor([1.0, 1.003, 1.01, 1.05, 1.2, 1.5, 0.9], dtype=torch.float64)
    x = factors[:, None] * _normal(features, seed=0)
    norm = nn.LayerNorm(8, elementwise_affine=False)
    limit = ntkit.infinite_width(nn.Sequential(nn.Linear(features, 8), norm, nn.ReLU(), nn.Linear(8, 1)))
    ntk = limit.ntk(x, engine="native")
    root = ntk.diagonal().sqrt()
    torch.testing.assert_close(ntk, root[:, None] * root, rtol=1e-14, atol=0.0)
