"""The expected pre-activation tangent kernel: closed forms, wide networks, the infinite tangent kernel."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import mlp, normal
from torch import Tensor, nn

import ntkit
from ntkit import features
from ntkit.errors import InputError, UnsupportedLayerError

X = normal(6, 5)


def _k0(r: Tensor) -> Tensor:
    return (math.pi - torch.arccos(r.clamp(-1, 1))) / math.pi


def _k1(r: Tensor) -> Tensor:
    r = r.clamp(-1, 1)
    return (r * (math.pi - torch.arccos(r)) + (1 - r**2).sqrt()) / math.pi


def test_two_hidden_relu_layers() -> None:
    net = nn.Sequential(nn.Linear(5, 4, bias=False), nn.ReLU(), nn.Linear(4, 4, bias=False), nn.ReLU(), nn.Linear(4, 1))
    norms = X.norm(dim=1)
    r0 = X @ X.T / norms[:, None] / norms[None]
    found = features.expected_ptk(net, X, w_std=1.0)
    torch.testing.assert_close(found["0"], _k0(r0) * _k0(_k1(r0)) / 4)
    torch.testing.assert_close(found["2"], _k0(_k1(r0)) / 2)
    torch.testing.assert_close(found["4"], torch.ones(6, 6, dtype=torch.float64))


def test_two_hidden_quadratic_layers() -> None:
    square = ntkit.Elementwise(lambda z: z**2)
    net = nn.Sequential(nn.Linear(5, 4, bias=False), square, nn.Linear(4, 4, bias=False), square, nn.Linear(4, 1))
    S = X @ X.T / 5
    v = S.diagonal()
    expected = 16 * S * (v[:, None] * v[None] + 2 * S**2)
    torch.testing.assert_close(features.expected_ptk(net, X, w_std=1.0)["0"], expected, rtol=1e-8, atol=1e-10)


def test_times_the_inputs_it_is_the_infinite_tangent_kernel() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.GELU(), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 2))
    kappa = features.expected_ptk(net, X, w_std=1.3, b_std=0.2)
    layers = [net[0], net[2], net[4]]
    for path, layer in zip(("0", "2", "4"), layers, strict=True):
        net.requires_grad_(False)
        layer.requires_grad_(True)
        single = ntkit.infinite_width(net, w_std=1.3, b_std=0.2).ntk(X)
        end = int(path) + 1
        read = ntkit.infinite_width(net[:end], w_std=1.3, b_std=0.2).nngp(X)
        torch.testing.assert_close(kappa[path] / 2 * read, single)  # two outputs


def test_wide_networks_agree() -> None:
    generator = torch.Generator().manual_seed(0)
    total: dict[str, Tensor] = {}
    for _ in range(40):
        net = nn.Sequential(
            nn.Linear(5, 300, bias=False), nn.ReLU(), nn.Linear(300, 300, bias=False), nn.ReLU(), nn.Linear(300, 1)
        )
        net = net.double()
        with torch.no_grad():
            for layer in (net[0], net[2], net[4]):
                layer.weight.normal_(0, layer.in_features**-0.5, generator=generator)
        for path, kappa in features.ptk(net, X).items():
            total[path] = total.get(path, 0) + kappa / 40
    expected = features.expected_ptk(net, X, w_std=1.0)
    for path, kappa in total.items():
        assert float((kappa - expected[path]).norm() / expected[path].norm()) < 0.03


def test_orthogonal_inputs_divide_nothing_by_zero() -> None:
    net = mlp(2, 4, 1, bias=False)
    found = features.expected_ptk(net, torch.eye(2, dtype=torch.float64), w_std=1.0)["0"]
    assert float(found[0, 1]) == pytest.approx(0.25)


def test_frozen_and_normalised_layers_do_not_matter() -> None:
    net = nn.Sequential(nn.Linear(5, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 1))
    before = features.expected_ptk(net, X)["0"]
    net.requires_grad_(False)
    assert torch.equal(before, features.expected_ptk(net, X)["0"])


def test_refusals() -> None:
    conv = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(12, 1))
    with pytest.raises(InputError, match="several positions"):
        features.expected_ptk(conv, X[:, None])
    assert set(features.expected_ptk(conv, X[:, None], layers=["3"])) == {"3"}
    with pytest.raises(UnsupportedLayerError):
        features.expected_ptk(nn.Sequential(nn.Linear(5, 4), nn.Softmax(1), nn.Linear(4, 1)), X)


def test_gains_are_those_of_the_module():
    net, x = mlp(3, 8, 1), torch.eye(3, dtype=torch.float64)
    given = features.expected_ptk(net, x, w_std=1.3, b_std=0.2)
    plain, default = features.expected_ptk(net, x, w_std=2**0.5, b_std=0.0), features.expected_ptk(net, x)
    own = features.expected_ptk(ntkit.parametrize_ntk(net, w_std=1.3, b_std=0.2), x)
    for path in given:
        torch.testing.assert_close(own[path], given[path])
        torch.testing.assert_close(default[path], plain[path])
