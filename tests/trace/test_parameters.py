"""What no copy of a module keeps is refused: gradient hooks, and parameters that share memory."""

import pytest
import torch
from tests.cases import mlp
from torch import nn

import ntkit
from ntkit._src.trace._parameters import lost_by_copies
from ntkit.errors import UnsupportedLayerError


def net():
    return mlp(3, 8, 8, 8, 1)


def same_memory(module):
    module[4].weight = nn.Parameter(module[2].weight.data)


def overlapping_memory(module):
    table = torch.randn(9, 8)
    module[2].weight, module[4].weight = nn.Parameter(table[:8]), nn.Parameter(table[1:])


def one_row_for_all(module):
    module[4].weight = nn.Parameter(torch.randn(1, 8).expand(8, 8))


def bias_in_a_weight(module):
    module[4].bias = nn.Parameter(module[4].weight.data[0])


@pytest.mark.parametrize("share", [same_memory, overlapping_memory, one_row_for_all, bias_in_a_weight])
def test_shared_memory_is_refused(share):
    module = net()
    share(module)
    with pytest.raises(UnsupportedLayerError, match="share memory"):
        ntkit.infinite_width(module)


def test_neighbours_in_memory_are_independent():
    module = net()
    flat, columns = torch.randn(128), torch.randn(8, 16)
    module[2].weight, module[4].weight = (nn.Parameter(part.view(8, 8)) for part in flat.split(64))
    assert not list(lost_by_copies(module))
    module[2].weight, module[4].weight = nn.Parameter(columns[:, ::2]), nn.Parameter(columns[:, 1::2])
    assert not list(lost_by_copies(module))


def test_hooks_on_gradients_are_refused():
    module = net()
    handle = module[2].weight.register_hook(torch.zeros_like)
    with pytest.raises(UnsupportedLayerError, match="hook on its gradient") as caught:
        ntkit.infinite_width(module)
    assert [problem.path for problem in caught.value.problems] == ["2.weight"]
    handle.remove()
    ntkit.infinite_width(module)
