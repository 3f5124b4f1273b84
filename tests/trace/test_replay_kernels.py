"""Modules that are more than their layers and that the replay understands: their kernel is that of finite networks."""

import pytest
import torch
from tests.cases import mlp, normal
from torch import nn

import ntkit
from ntkit._src.testing import sampled_kernels
from ntkit._src.trace import GainRule


def scaled_norm(groups=False):
    return lambda width: _scaled_norm(width, groups)


def _scaled_norm(width, groups):
    norm = nn.GroupNorm(2, width) if groups else nn.LayerNorm(width)
    nn.init.constant_(norm.weight, 2.0)
    norm.requires_grad_(False)
    return nn.Sequential(nn.Linear(4, width), norm, nn.Tanh(), nn.Linear(width, 2))


def shifted_norm(width):
    norm = nn.LayerNorm(width)
    nn.init.constant_(norm.weight, 0.5)
    nn.init.constant_(norm.bias, 1.5)
    norm.requires_grad_(False)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), norm, nn.Linear(width, 2))


def hook_that_only_looks(width):
    net = mlp(4, width, width, 2)
    net[2].register_forward_hook(lambda m, i, o: None)
    return net


def hooked(change):
    def build(width):
        net = mlp(4, width, width, 2)
        change(net)
        return net

    return build


def with_gains(width):
    return ntkit.parametrize_ntk(mlp(4, width, width, 2), w_std=1.0, b_std=0.5, overrides={"2": {"w_std": 2.0}})


def frozen_slope(width):
    net = nn.Sequential(nn.Linear(4, width), nn.PReLU(init=-0.5), nn.Linear(width, 2))
    net[1].requires_grad_(False)
    return net


def two_norms(width):
    return nn.Sequential(nn.Linear(4, width), nn.LayerNorm(width), nn.ReLU(), nn.Linear(width, width),
                         nn.LayerNorm(width), nn.Tanh(), nn.Linear(width, 2))  # fmt: skip


RIGHT = {
    "frozen layer norm of 2": scaled_norm(),
    "frozen group norm of 2": scaled_norm(groups=True),
    "frozen shift": shifted_norm,
    "hook that only looks": hook_that_only_looks,
    "forward hook": hooked(lambda n: n[2].register_forward_hook(lambda m, i, o: 2 * o)),
    "pre-hook": hooked(lambda n: n[2].register_forward_pre_hook(lambda m, i: (2 * i[0],))),
    "hook with keywords": hooked(lambda n: n[1].register_forward_hook(lambda m, i, k, o: o + 1, with_kwargs=True)),
    "hook on the whole": hooked(lambda n: n.register_forward_hook(lambda m, i, o: 2 * o)),
    "gains of its own": with_gains,
    "frozen slope": frozen_slope,
    "two norms": two_norms,
}


@pytest.mark.parametrize("case", RIGHT)
def test_right_for_the_module_as_it_is(case):
    x = normal(3, 4)
    generator = torch.Generator().manual_seed(0)
    narrow, wide = (sampled_kernels(RIGHT[case](width), x, None, GainRule(), 60, generator) for width in (32, 64))
    exact = ntkit.infinite_width(RIGHT[case](8)).both(x)
    for value, a, b in zip(exact, narrow, wide, strict=True):
        deviation = (value - (2 * b.mean - a.mean)).abs() / (4 * b.error**2 + a.error**2).sqrt()
        assert deviation.max() < 5
