from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.cases import mlp
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError
from ntkit.layers import FourierFeatures

KINDS = {
    "basic": {},
    "positional": {"size": 3, "scale": 8.0},
    "gaussian": {"size": 5, "scale": 2.0},
}


def draw(kind, dim=2):
    generator = torch.Generator().manual_seed(0) if kind == "gaussian" else None
    return FourierFeatures(dim, kind, generator=generator, **KINDS[kind])


def test_frequencies():
    assert draw("basic").frequencies.tolist() == [[1, 0], [0, 1]]
    # sigma^(j / M) with M = 3 and sigma = 8: 1, 2, 4, for each coordinate.
    expected = [[1, 0], [0, 1], [2, 0], [0, 2], [4, 0], [0, 4]]
    assert torch.allclose(draw("positional").frequencies, torch.tensor(expected, dtype=torch.float64))
    wide = FourierFeatures(3, "gaussian", size=4000, scale=2.5, generator=torch.Generator().manual_seed(1)).frequencies
    assert wide.shape == (4000, 3) and float(wide.std()) == pytest.approx(2.5, rel=0.05)
    assert torch.equal(draw("gaussian").frequencies, draw("gaussian").frequencies)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_values_and_translation_invariance(kind, dtype):
    layer = draw(kind)
    x = torch.rand(7, 2, generator=torch.Generator().manual_seed(3), dtype=dtype)
    z = layer(x)
    assert z.shape == (7, layer.out_features) and z.dtype == dtype
    for row, point in zip(z, x, strict=True):
        phases = [2 * math.pi * float(b @ point.double()) for b in layer.frequencies]
        expected = [math.cos(p) for p in phases] + [math.sin(p) for p in phases]
        assert row.tolist() == pytest.approx(expected, abs=1e-4 if dtype == torch.float32 else 1e-12)
    moved = layer(x + torch.tensor([0.3, -0.7], dtype=dtype))
    assert torch.allclose(z @ z.T, moved @ moved.T, atol=1e-4)


def test_whole_coordinates_are_not_truncated():
    layer = draw("gaussian")
    assert torch.allclose(layer(torch.tensor([[1, 2]])), layer(torch.tensor([[1.0, 2.0]])))


@pytest.mark.parametrize("kind", KINDS)
def test_it_runs_before_any_module(kind):
    layer = draw(kind)
    tail = mlp(layer.out_features, 16, 1)
    net = nn.Sequential(layer, tail)
    x = torch.rand(4, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    limit, bare = ntkit.infinite_width(net, b_std=0.3), ntkit.infinite_width(tail, b_std=0.3)
    assert torch.allclose(limit.ntk(x), bare.ntk(layer(x))) and torch.allclose(limit.nngp(x), bare.nngp(layer(x)))
    double = copy.deepcopy(net).double()
    assert torch.allclose(ntkit.empirical(double).ntk(x), ntkit.empirical(double[1]).ntk(layer(x)))
    assert not list(layer.parameters())
    ntkit.initialize(ntkit.parametrize_ntk(net), generator=torch.Generator().manual_seed(0))
    assert torch.equal(net[0].frequencies, draw(kind).frequencies)


@pytest.mark.parametrize(
    ("arguments", "error", "message"),
    [
        ({"dim": 2, "kind": "fourier"}, InputError, "kind must be"),
        ({"dim": 0, "kind": "basic"}, InputError, "dim must be at least 1"),
        ({"dim": 2.0, "kind": "basic"}, InputTypeError, "dim must be an integer"),
        ({"dim": 2, "kind": "basic", "size": 3}, InputError, "neither size nor scale"),
        ({"dim": 2, "kind": "gaussian", "size": 3}, InputError, "needs size and scale"),
        ({"dim": 2, "kind": "gaussian", "size": 0, "scale": 1.0}, InputError, "size must be at least 1"),
        ({"dim": 2, "kind": "gaussian", "size": 3, "scale": 0.0}, InputError, "scale must be finite and positive"),
        ({"dim": 2, "kind": "gaussian", "size": 3, "scale": math.nan}, InputError, "scale must be finite"),
        ({"dim": 2, "kind": "gaussian", "size": 3, "scale": "1"}, InputTypeError, "scale must be a number"),
        ({"dim": 2, "kind": "positional", "size": 3, "scale": 0.5}, InputError, "at least 1"),
        ({"dim": 2, "kind": "basic", "generator": torch.Generator()}, InputError, "only the kind 'gaussian'"),
    ],
)
def test_bad_arguments(arguments, error, message):
    with pytest.raises(error, match=message):
        FourierFeatures(**arguments)
