from __future__ import annotations

import pytest
import torch
from torch import nn

from ntkit._src.experiments._deep_networks import myrtle, resnet50


def layers(net: nn.Module) -> list[nn.Module]:
    return [one for one in net.modules() if isinstance(one, (nn.Conv2d, nn.Linear))]


def test_resnet50_has_fifty_layers_and_its_widths():
    net = resnet50(3, 64)
    found = layers(net)
    shortcuts = [one.shortcut for one in net if getattr(one, "shortcut", None) is not None]
    assert len(found) - len(shortcuts) == 50 and len(shortcuts) == 4
    # Torchvision's ResNet-50 has 23,454,912 weights in its convolutions; its first one has 7x7 instead of 3x3 weights.
    convolutions = sum(one.weight.numel() for one in found if isinstance(one, nn.Conv2d))
    assert convolutions == 23_454_912 - 64 * 3 * (49 - 9)
    assert found[-1].in_features == 2048


def test_myrtle_has_four_convolutions_and_a_linear_layer():
    assert [type(one).__name__ for one in layers(myrtle(3, 64))] == ["Conv2d"] * 4 + ["Linear"]


@pytest.mark.parametrize(("make", "sides"), [(myrtle, [4, 12, 32]), (resnet50, [8, 32])])
def test_outputs_and_the_global_generator(make, sides):
    before = torch.get_rng_state()
    net = make(3, 2)
    assert torch.equal(before, torch.get_rng_state())
    for side in sides:
        assert net(torch.zeros(2, 3, side, side)).shape == (2, 1)


def test_pools_before_a_global_average_change_nothing():
    net = myrtle(1, 2).double()
    generator = torch.Generator().manual_seed(0)
    for parameter in net.parameters():
        parameter.data = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
    *body, pool, flatten, last = net
    longer = nn.Sequential(*body, nn.AvgPool2d(2), nn.AvgPool2d(2), pool, flatten, last)
    x = torch.randn(3, 1, 16, 16, generator=generator, dtype=torch.float64)
    assert torch.allclose(net(x), longer(x), rtol=1e-12)
