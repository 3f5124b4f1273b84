from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils import prune

from ntkit._src.common import OwnParameters, copy_module
from ntkit.errors import InputError


def pruned() -> nn.Sequential:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    prune.l1_unstructured(net[0], "weight", 0.5)
    net(torch.ones(1, 3))  # so that the layer holds a computed weight
    return net


def test_a_copy_computes_the_same_with_parameters_of_its_own() -> None:
    net, x = pruned(), torch.randn(5, 3, generator=torch.Generator().manual_seed(1))
    assert not net[0].weight.is_leaf
    copied = copy_module(net)
    assert torch.equal(copied[0].weight, torch.zeros(4, 3))  # until it is called
    assert torch.equal(copied(x), net(x))
    with torch.no_grad():
        copied[2].bias += 1
    torch.testing.assert_close(copied(x), net(x) + 1)


def test_a_function_that_closes_over_a_layer_is_named() -> None:
    net = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))
    layer = net[1]
    net[1].forward = lambda x: nn.functional.linear(x, layer.weight)
    copied = copy_module(net)
    with OwnParameters(net):
        nn.functional.linear(torch.ones(1, 3), copied[0].weight)
        with pytest.raises(InputError, match=r"parameter '1\.weight'"):
            copied(torch.ones(1, 3))
