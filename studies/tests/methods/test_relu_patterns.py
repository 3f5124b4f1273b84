from __future__ import annotations

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from ntkit_studies.methods._relu_patterns import pattern_distance, relu_patterns


class Functional(nn.Module):
    def __init__(self, how):
        super().__init__()
        self.first, self.how = nn.Linear(2, 4), how

    def forward(self, x):
        return self.how(self.first(x)).sum(1, keepdim=True)


@pytest.mark.parametrize(
    "how", [F.relu, torch.relu, nn.ReLU(), nn.ReLU(inplace=True), lambda z: z.relu(), lambda z: z.relu_()]
)
def test_patterns_of_every_spelling(how):
    net, x = Functional(how), torch.randn(5, 2)
    assert torch.equal(relu_patterns(net, x), net.first(x) > 0)


def test_a_module_without_relu_has_no_patterns():
    net, x = Functional(torch.tanh), torch.randn(5, 2)
    assert relu_patterns(net, x) is None and math.isnan(pattern_distance(None, None))


def test_distance_is_the_share_of_units_that_differ():
    first = torch.tensor([[True, False], [True, True]])
    assert pattern_distance(first, first) == 0 and pattern_distance(first, ~first) == 1
    assert pattern_distance(first, torch.ones_like(first)) == 0.25
