"""The same network written in different ways has the same kernel."""

import pickle
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from tests.cases import mlp, normal
from tests.trace.forms import IMAGES, MLP, Lambda, same_kernels
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import InputError


class Branching(nn.Module):
    """Needs export: loops and branches over shapes."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Conv2d(2, 8, 3, padding=1, padding_mode="circular"), nn.Conv2d(8, 8, 3, padding="same")
        self.norm, self.drop, self.fc = nn.LayerNorm(8), nn.Dropout(0.5).eval(), nn.Linear(8, 1)

    def forward(self, x):
        if x.shape[-1] % 2:
            x = F.pad(x, (0, 1))
        h = F.gelu(self.a(x))
        while h.shape[-1] > 2:
            h = F.avg_pool2d(h, 2)
        h = F.relu(self.b(h)).permute(0, 2, 3, 1)
        h = self.drop(self.norm(h))
        return self.fc(h.mean((1, 2)))


def test_shape_dependent_branches_by_export():
    plain = Lambda(
        lambda m, x: m.fc(m.norm(F.relu(m.b(F.avg_pool2d(F.gelu(m.a(x)), 2))).permute(0, 2, 3, 1)).mean((1, 2))),
        a=nn.Conv2d(2, 8, 3, padding=1, padding_mode="circular"), b=nn.Conv2d(8, 8, 3, padding=1), norm=nn.LayerNorm(8),
        fc=nn.Linear(8, 1),
    )  # fmt: skip
    same_kernels(Branching(), plain, normal(3, 2, 4, 4), b_std=0.1)
    odd = normal(3, 2, 4, 3)
    torch.testing.assert_close(
        ntkit.infinite_width(Branching()).ntk(odd), ntkit.infinite_width(plain).ntk(F.pad(odd, (0, 1)))
    )


def test_prefix_runs_on_the_data_as_it_is():
    frequencies = normal(2, 16, seed=1)

    class Fourier(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("frequencies", frequencies.float())
            self.bn = nn.BatchNorm1d(32, affine=False)
            self.bn.running_mean.fill_(0.1)
            self.net = mlp(32, 8, 1)

        def forward(self, x):
            angles = x @ self.frequencies
            return self.net(self.bn(torch.cat([angles.sin(), angles.cos()], -1)))

    x = normal(4, 2)
    before = x.clone()
    angles = x @ frequencies.float().double()
    features = (torch.cat([angles.sin(), angles.cos()], -1) - float(torch.tensor(0.1))) / (1 + 1e-5) ** 0.5
    limit = ntkit.infinite_width(Fourier())
    expected = ntkit.infinite_width(mlp(32, 8, 1)).ntk(features)
    torch.testing.assert_close(limit.ntk(x), expected)
    assert torch.equal(x, before)


def test_prefix_that_writes_in_place_leaves_the_data_alone():
    net = Lambda(lambda m, x: m.fc(x.mul_(2)), fc=nn.Linear(4, 1))
    x = normal(3, 4)
    before = x.clone()
    torch.testing.assert_close(ntkit.infinite_width(net).nngp(x), 8 * x @ x.T / 4)
    assert torch.equal(x, before)


def test_the_module_is_left_alone_and_read_once():
    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.5).eval(), nn.ReLU(), nn.Linear(8, 1))
    state = {name: value.clone() for name, value in net.state_dict().items()}
    x = normal(3, 4)
    limit = ntkit.infinite_width(net)
    k = limit.ntk(x)
    assert net.training
    assert all(torch.equal(value, state[name]) for name, value in net.state_dict().items())
    net[0].weight.requires_grad_(False)
    assert torch.equal(limit.ntk(x), k)
    # Dropout is off, as in evaluation.
    torch.testing.assert_close(
        k, ntkit.infinite_width(nn.Sequential(net[0].requires_grad_(True), net[2], net[3])).ntk(x)
    )


def test_global_random_state_is_not_touched():
    torch.manual_seed(3)
    expected = torch.randn(2)
    torch.manual_seed(3)
    ntkit.infinite_width(MLP).ntk(normal(3, 4))
    assert torch.equal(torch.randn(2), expected)


def test_pickling():
    limit = pickle.loads(pickle.dumps(ntkit.infinite_width(MLP, b_std=0.2)))
    x = normal(3, 4)
    assert torch.equal(limit.ntk(x), ntkit.infinite_width(MLP, b_std=0.2).ntk(x))


def test_wrong_shapes_are_named():
    limit = ntkit.infinite_width(IMAGES)
    with pytest.raises(InputError, match=r"cannot take inputs of shape \(n, 3, 4, 4\)"):
        limit.ntk(normal(2, 3, 4, 4))
    with pytest.raises(InputError, match="cannot take"):
        limit.ntk(normal(2, 2))


def test_lazy_and_foreign_modules():
    with pytest.raises(InputError, match="no shape yet"):
        ntkit.infinite_width(nn.LazyLinear(3))
    with pytest.raises(TypeError, match="nn.Module"):
        ntkit.infinite_width(lambda x: x)


def test_a_parametrised_module_has_the_limit_of_the_plain_one():
    net = mlp(4, 8, 8, 1)
    net[2].weight.requires_grad_(False)
    x = torch.linspace(-1, 1, 12, dtype=torch.float64).reshape(3, 4)
    gains = {"w_std": 1.3, "b_std": 0.2}
    plain = ntkit.infinite_width(net, **gains).ntk(x)
    assert torch.equal(ntkit.infinite_width(ntkit.parametrize_ntk(net, **gains), **gains).ntk(x), plain)


def test_modules_are_traced_on_several_threads():
    def trace(width):
        return ntkit.infinite_width(nn.Sequential(*[nn.Linear(width, width), nn.ReLU()] * 1, nn.Linear(width, 1)))

    with ThreadPoolExecutor(4) as pool:
        assert len(list(pool.map(trace, range(1, 40)))) == 39
