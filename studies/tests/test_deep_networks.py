from __future__ import annotations

import pytest
import torch
from torch import nn

from ntkit_studies._deep_networks import myrtle, resnet50


def layers(net: nn.Module) -> list[nn.Module]:
    return [one for one in net.modules() if isinstance(one, (nn.Conv2d, nn.Linear))]


def test_resnet50_has_fifty_layers_and_its_widths():
    net = resnet50(3, 64)
    found = layers(net)
    shortcuts = [one.shortcut for one in net if getattr(one, "shortcut", None) is not None]
    assert len(found) - len(shortcuts) == 50 and len(shortcuts) == 4
    # As many weights in its convolutions as torchvision's ResNet-50.
    assert sum(one.weight.numel() for one in found if isinstance(one, nn.Conv2d)) == 23_454_912
    assert found[-1].in_features == 2048


def test_resnet50_averages_where_it_has_a_maximum_pool():
    """Golikov et al. 2022, section 9: "removing batch normalizations and substituting max poolings with average poolings"."""
    first, pool, *_ = resnet50(3, 2)
    assert (first.kernel_size, first.stride, first.padding) == ((7, 7), (2, 2), (3, 3))
    assert isinstance(pool, nn.AvgPool2d) and (pool.kernel_size, pool.stride, pool.padding) == (3, 2, 1)
    assert pool(first(torch.zeros(1, 3, 32, 32))).shape == (1, 2, 8, 8)
    assert not any(
        "MaxPool" in type(one).__name__ or "BatchNorm" in type(one).__name__ for one in resnet50(3, 2).modules()
    )


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
