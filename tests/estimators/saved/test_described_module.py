from __future__ import annotations

import pytest
import torch
from torch import nn

from ntkit._src.estimators.saved import build_described, describe_module
from ntkit.errors import InputError


def frozen(layer: nn.Module) -> nn.Module:
    return layer.requires_grad_(False)


NETWORKS = {
    "vectors": lambda: nn.Sequential(nn.Linear(3, 8, bias=False), nn.GELU("tanh"), frozen(nn.Linear(8, 2))),
    "images": lambda: nn.Sequential(
        nn.Conv2d(1, 4, (3, 2), stride=2, padding=(1, 0), padding_mode="circular"), nn.LeakyReLU(0.3), nn.AvgPool2d(2, 1),
        nn.Sequential(nn.GroupNorm(1, 4, affine=False), nn.ELU(0.5)), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(4, 1),
    ),
    "shapes": lambda: nn.Sequential(nn.Unflatten(1, (1, 6)), nn.Conv1d(1, 2, 3), nn.Tanh(), nn.Dropout(0.2), nn.Flatten(1, -1)),
    "padding": lambda: nn.Sequential(nn.ZeroPad2d((1, 2, 0, 1)), nn.Conv2d(1, 2, 3, dilation=2), nn.LayerNorm((2, 3, 3))),
}  # fmt: skip


@pytest.mark.parametrize("make", NETWORKS.values(), ids=NETWORKS)
def test_a_network_and_its_description_are_the_same(make):
    network = make()
    described = describe_module(network)
    assert described is not None
    again = build_described(described)
    assert repr(again) == repr(network)
    assert not any(layer.training for layer in again.modules())  # dropout is off
    flags = [[one.requires_grad for one in net.parameters()] for net in (network, again)]
    shapes = [[one.shape for one in net.parameters()] for net in (network, again)]
    assert flags[0] == flags[1] and shapes[0] == shapes[1]


class Own(nn.Module):
    def forward(self, x):
        return x


def half_frozen() -> nn.Module:
    layer = nn.Linear(2, 2)
    layer.bias.requires_grad_(False)
    return layer


@pytest.mark.parametrize(
    "network",
    [Own(), nn.Linear(2, 2), nn.Sequential(Own()), nn.Sequential(nn.Sequential(Own())), nn.Sequential(half_frozen())],
)
def test_what_a_description_cannot_hold_has_none(network):
    assert describe_module(network) is None


@pytest.mark.parametrize(
    ("layers", "message"),
    [
        ([], "must list at least one layer"),
        ("Linear", "must list at least one layer"),
        (["Linear"], 'must have a name, as in layer = "Linear"'),
        ([{"layer": "Lineer"}], "layer 0 of net.toml must be a layer of torch.nn. Got 'Lineer'"),
        ([{"layer": "functional"}], "must be a layer of torch.nn"),
        ([{"layer": "Parameter"}], "must be a layer of torch.nn"),
        (
            [{"layer": "ReLU"}, {"layer": "Linear", "in": 3}],
            "layer 1 of net.toml, Linear, does not take these arguments",
        ),
        ([{"layer": "Sequential", "layers": []}], "must list at least one layer"),
        (
            [{"layer": "Conv2d", "in_channels": 3, "out_channels": 4, "kernel_size": 3, "groups": 2}],
            "divisible by groups",
        ),
    ],
)
def test_bad_descriptions(layers, message):
    with pytest.raises(InputError, match=message.replace("(", r"\(")):
        build_described(layers, "net.toml")


def test_building_leaves_the_global_generator_alone():
    torch.manual_seed(0)
    before = torch.get_rng_state()
    build_described([{"layer": "Linear", "in_features": 3, "out_features": 2}])
    assert torch.equal(before, torch.get_rng_state())
