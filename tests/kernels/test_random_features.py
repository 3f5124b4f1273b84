"""Random features against the exact kernels: unbiased to their own spread, and closer with more of them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

import ntkit
from ntkit._src.kernels import _random_features
from ntkit._src.kernels._random_features import JacobianFeatures, SketchedFeatures
from ntkit._src.rules._positions import _merged
from ntkit._src.rules._sketch import CountSketch, Draws
from ntkit.errors import InputError, InputTypeError, UnsupportedLayerError


class Residual(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.block, self.last = nn.Linear(3, 8), nn.Sequential(nn.ReLU(), nn.Linear(8, 8)), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        return self.last(torch.relu(h + self.block(h)))


class Rows(nn.Module):
    """Positions that become an image, which is averaged over one of its axes."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Conv1d(2, 8, 3, padding=1), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        h = torch.relu(self.first(x)).unflatten(-1, (3, 4)).mean(2)
        return self.last(h.transpose(1, 2).mean(1))


class Graph(nn.Module):
    """Nodes with three features each, averaged over an adjacency that each input brings along."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.last = nn.Linear(3, 8), nn.Linear(8, 1)

    def forward(self, x: Tensor) -> Tensor:
        features, edges = x[..., :3], torch.softmax(x[..., 3:], -1)
        return self.last((edges @ torch.relu(self.first(features))).mean(1))


def _conv(*layers: nn.Module) -> nn.Module:
    return nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), *layers)


NETWORKS: dict[str, tuple[nn.Module, tuple[int, ...]]] = {
    "relu": (nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)), (3,)),
    "no hidden layer": (nn.Linear(3, 1), (3,)),
    "gelu, tanh": (nn.Sequential(nn.Linear(3, 8), nn.GELU(), nn.Linear(8, 8), nn.Tanh(), nn.Linear(8, 1)), (3,)),
    "residual": (Residual(), (3,)),
    "layer norm": (
        nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8, elementwise_affine=False), nn.LeakyReLU(0.2), nn.Linear(8, 1)), (3,)
    ),
    "flatten": (_conv(nn.Flatten(), nn.Linear(4 * 25, 1)), (2, 5, 5)),
    "pooled": (
        _conv(nn.Conv2d(4, 4, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 1)), (2, 5, 5)
    ),
    "strided, circular": (
        _conv(
            nn.Conv2d(4, 4, 3, stride=2, padding=1, padding_mode="circular"), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(),
            nn.Linear(4, 1),
        ),
        (2, 6, 6),
    ),
    "split": (Rows(), (2, 12)),
    "graph": (Graph(), (4, 7)),
}  # fmt: skip


def _error(features: Tensor, exact: Tensor) -> float:
    return float((features @ features.T - exact).norm() / exact.norm())


@pytest.mark.parametrize("which", ["ntk", "nngp"])
@pytest.mark.parametrize("name", NETWORKS)
def test_products_tend_to_the_kernel(name: str, which: str) -> None:
    module, shape = NETWORKS[name]
    kernel = getattr(ntkit.infinite_width(module, b_std=0.3), which)
    x = torch.randn(6, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = kernel(x)
    draws = 24
    values = [SketchedFeatures(kernel, 400, shape, seed)(x) for seed in range(draws)]
    grams = torch.stack([one @ one.T for one in values])
    single = float((grams - exact).norm(dim=(1, 2)).mean() / exact.norm())
    mean = float((grams.mean(0) - exact).norm() / exact.norm())
    assert single < 0.3
    # The error of the mean is its spread over sqrt(draws), and a small bias: products of estimates inside an activation.
    assert mean < 2.5 * single / draws**0.5 + 0.02, (single, mean)


def test_more_features_are_closer() -> None:
    module, shape = NETWORKS["relu"]
    kernel = ntkit.infinite_width(module, b_std=0.3).ntk
    x = torch.randn(8, *shape, generator=torch.Generator().manual_seed(0))
    exact = kernel(x)
    errors = [sum(_error(SketchedFeatures(kernel, m, shape, s)(x), exact) for s in range(6)) / 6 for m in (64, 1024)]
    assert errors[1] < 0.4 * errors[0]
    features = SketchedFeatures(kernel, 65, shape, 3)
    assert features(x).shape == (8, 65) and features(x).dtype == torch.float32
    assert torch.equal(features(x), SketchedFeatures(kernel, 65, shape, 3)(x)), "the same draws from the same seed"
    torch.testing.assert_close(features(x)[2:4], features(x[2:4]))


@pytest.mark.parametrize("outputs", [1, 3])
def test_projected_derivatives_of_any_module(outputs: int) -> None:
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, outputs)).double().eval()
    emp = ntkit.empirical(net)
    x = torch.randn(6, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    exact = emp.ntk(x)
    grams = torch.stack([f @ f.T for f in (JacobianFeatures(emp, 100, seed)(x) for seed in range(10))])
    single = float((grams - exact).norm(dim=(1, 2)).mean() / exact.norm())
    assert single < 0.5
    assert float((grams.mean(0) - exact).norm() / exact.norm()) < 2.5 * single / 10**0.5
    features = JacobianFeatures(emp, 20, 5)
    torch.testing.assert_close(features(x)[1:3], features(x[1:3]))


def test_sketches_keep_inner_products() -> None:
    generator = torch.Generator().manual_seed(0)
    u, v = torch.randn(2, 5, 30, generator=generator, dtype=torch.float64)
    plain = torch.stack([(s := CountSketch.draw(30, 10, u, generator))(u) @ s(v).T for _ in range(3000)])
    assert ((plain.mean(0) - u @ v.T) / (plain.std(0) / 3000**0.5)).abs().max() < 4.5
    draws = [Draws(1, 16, generator) for _ in range(3000)]
    tensor = torch.stack([one.product(0, "psi", u, v) @ one.product(0, "psi", v, u).T for one in draws])
    exact = (u @ v.T) * (v @ u.T)
    assert ((tensor.mean(0) - exact) / (tensor.std(0) / 3000**0.5)).abs().max() < 4.5


def test_refusals() -> None:
    affine = ntkit.infinite_width(nn.Sequential(nn.Linear(3, 8), nn.LayerNorm(8), nn.ReLU(), nn.Linear(8, 1))).ntk
    with pytest.raises(UnsupportedLayerError, match=r"affine(.|\n)*method='jacobian'"):
        SketchedFeatures(affine, 10, (3,))
    relu = ntkit.infinite_width(NETWORKS["relu"][0]).ntk
    for count, error in ((0, InputError), (2.5, InputTypeError), (True, InputTypeError)):
        with pytest.raises(error, match="n_components must be"):
            SketchedFeatures(relu, count, (3,))  # type: ignore[arg-type]
    with pytest.raises(InputTypeError, match=r"limit\.ntk"):
        SketchedFeatures(relu + relu, 10, (3,))  # type: ignore[arg-type]
    with pytest.raises(InputError, match=r"shape \(n, 3\)"):
        SketchedFeatures(relu, 10, (3,))(torch.ones(2, 4))
    net = nn.Sequential(nn.Linear(3, 2))
    with pytest.raises(InputError, match="trace"):
        JacobianFeatures(ntkit.empirical(net, output="sum"), 10)
    with pytest.raises(InputTypeError, match="empirical"):
        JacobianFeatures(net, 10)  # type: ignore[arg-type]


def test_rows_larger_than_a_block_come_one_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    module, shape = NETWORKS["relu"]
    features = SketchedFeatures(ntkit.infinite_width(module).ntk, 20, shape)
    x = torch.randn(4, *shape, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    sizes, block = [], features._block  # type: ignore[attr-defined]
    monkeypatch.setattr(features, "_block", lambda part: sizes.append(len(part)) or block(part))
    whole = features(x)
    monkeypatch.setattr(_random_features, "_BLOCK_BYTES", 1)
    torch.testing.assert_close(features(x), whole)
    assert sizes == [4, 1, 1, 1, 1]


def test_some_positions_are_merged_and_the_others_stay() -> None:
    v = torch.randn(2, 3, 4, 5, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    for axes, kept in (((0,), v.permute(0, 2, 1, 3)), ((1,), v), ((0, 1), v)):
        merged = _merged(v, axes)
        expected = (
            kept.reshape(2, *kept.shape[1 : 3 - len(axes)], -1)
            / (v[0, ..., 0].numel() / merged[0, ..., 0].numel()) ** 0.5
        )
        torch.testing.assert_close(merged, expected, rtol=1e-15, atol=0)
