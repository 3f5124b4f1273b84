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

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(3, 4), nn.Linear(3, 4)
        self.between = nn.Parameter(normal(1, 2, 4, seed=5))

    def forward(self, x):
        return torch.cat([self.first(x), self.between.expand(len(x), -1, -1), torch.sin(self.second(x[:, 1:]))], 1)


def head(*layers):
    return [*layers, nn.Flatten(), nn.LazyLinear(1)]


class Merged(nn.Module):
    """Positions along several axes as tokens, behind a learned one."""

    def __init__(self):
        super().__init__()
        self.token = nn.Parameter(normal(1, 1, 4, seed=6))

    def forward(self, x):
        return torch.cat([self.token.expand(len(x), -1, -1), x.flatten(2).transpose(1, 2)], 1)


@pytest.mark.parametrize("b_std", [0.0, 0.3])
def test_joined(b_std):
    engines_agree(nn.Sequential(*head(Beside(), nn.Linear(4, 4), nn.ReLU())).double(), (4, 3), b_std)


@pytest.mark.parametrize(
    ("layer", "shape"),
    [
        (nn.Conv2d(2, 4, 3, padding=1), (2, 3, 4)),
        (nn.Conv2d(2, 4, 3, padding=1, padding_mode="circular"), (2, 3, 4)),
        (nn.Conv3d(2, 4, 2), (2, 3, 3, 4)),
    ],
)
def test_merged(layer, shape):
    layers = [layer, Merged(), nn.Linear(4, 4), nn.ReLU(), Function(lambda x: x.mean(1))]
    engines_agree(nn.Sequential(*head(*layers)).double(), shape, 0.2)


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
    layers = [
        nn.Embedding(7, 4, padding_idx=padding),
        Function(lambda x: x.mT),
        nn.Conv1d(4, 4, 3, padding=1),
        nn.ReLU(),
    ]
    limit = ntkit.infinite_width(nn.Sequential(*layers, nn.Flatten(), nn.Linear(20, 1)), b_std=0.2)
    x = torch.randint(0, 7, (9, 5), generator=torch.Generator().manual_seed(0)).to(dtype)
    x[1] = x[0]
    for kernel in (limit.ntk, limit.nngp):
        native, reference = (kernel(x, x[3:], engine=engine) for engine in ("native", "reference"))
        assert native.dtype == reference.dtype == torch.float64
        torch.testing.assert_close(native, reference, rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(kernel.diag(x)[3:], native.diagonal(-3), rtol=1e-12, atol=0)
