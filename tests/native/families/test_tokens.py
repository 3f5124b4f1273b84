"""Integers, learned vectors, tokens joined and axes merged on the native engine."""

import pytest
import torch
from tests.cases import normal
from tests.native.networks import engines_agree
from torch import nn

import ntkit
from ntkit._src.native.families._tokens import _splits


class Function(nn.Module):
    """A function between layers."""

    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


class Beside(nn.Module):
    """Two layers of the same tokens, joined along them with learned vectors between."""

    def __init__(self, trained):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 4)
        self.between = nn.Parameter(normal(1, 2, 4, seed=5), requires_grad=trained)

    def forward(self, x):
        return torch.cat([self.first(x), self.between.expand(len(x), -1, -1), torch.relu(self.second(x[:, 1:]))], 1)


def head(*layers):
    return [*layers, nn.Flatten(), nn.LazyLinear(1)]


@pytest.mark.parametrize("b_std", [0.0, 0.3])
@pytest.mark.parametrize("trained", [True, False])
def test_joined(trained, b_std):
    layers = [Beside(trained), nn.Linear(4, 4), nn.ReLU()]
    engines_agree(nn.Sequential(*head(*layers)).double(), (4, 3), b_std)


@pytest.mark.parametrize("layer", [nn.Conv1d(4, 4, 3, padding=1), nn.Conv1d(4, 4, 3, padding=1, padding_mode="circular")])
def test_merged(layer):
    layers = [nn.Conv2d(2, 4, 3, padding=1), nn.ReLU(), nn.Flatten(2), layer, nn.ReLU(), nn.AdaptiveAvgPool1d(1)]
    engines_agree(nn.Sequential(*head(*layers)).double(), (2, 3, 4), 0.2)


def test_three_axes_merged():
    layers = [nn.Conv3d(2, 4, 2), nn.ReLU(), nn.Flatten(2), nn.Conv1d(4, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(1)]
    engines_agree(nn.Sequential(*head(*layers)).double(), (2, 3, 3, 4), 0.2)


def test_offsets_before_a_merge():
    for sizes in ((3, 4), (2, 3, 4), (1, 5), (4, 1, 2)):
        count = torch.tensor(sizes).prod().item()
        places = torch.cartesian_prod(*(torch.arange(size) for size in sizes)).reshape(count, len(sizes))
        for d in range(1 - count, count):
            found = {tuple((places[p + d] - places[p]).tolist()) for p in range(max(0, -d), min(count, count - d))}
            assert found <= set(_splits(d, sizes))


@pytest.mark.parametrize("padding", [None, 0])
@pytest.mark.parametrize("dtype", [torch.int64, torch.int32])
def test_integers(padding, dtype):
    layers = [nn.Embedding(7, 4, padding_idx=padding), Function(lambda x: x.mT), nn.Conv1d(4, 4, 3, padding=1), nn.ReLU()]
    limit = ntkit.infinite_width(nn.Sequential(*head(*layers, nn.AdaptiveAvgPool1d(1))), b_std=0.2)
    x = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0)).to(dtype)
    x[1] = x[0]
    for kernel in (limit.ntk, limit.nngp):
        native, reference = (kernel(x, x[3:], engine=engine) for engine in ("native", "reference"))
        assert native.dtype == reference.dtype == torch.float64
        torch.testing.assert_close(native, reference, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(kernel.diag(x)[3:], native.diagonal(-3), rtol=1e-12, atol=0)
