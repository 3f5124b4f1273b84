from __future__ import annotations

import pytest
import torch
from torch import nn

from ntkit_studies._networks import blank, conv_network, dense_network, drawn_network


def test_nothing_is_drawn_from_the_global_generator():
    before = torch.get_rng_state()
    for net in (conv_network(2, 4, True, 3, 8), dense_network(5, 7), blank(lambda: nn.Linear(2, 3))):
        assert not any(parameter.any() for parameter in net.parameters())
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("average", [True, False])
def test_convolutional_network(average):
    net = conv_network(3, 4, average, 2, 8)
    assert net(torch.zeros(5, 2, 8, 8)).shape == (5, 1)
    assert sum(isinstance(layer, nn.Conv2d) for layer in net) == 3
    # CNTK-GAP has its first and last layer fixed.
    fixed = [not parameter.requires_grad for parameter in net.parameters()]
    assert fixed == ([True, False, False, True] if average else [False] * 4)


def test_dense_network():
    net = dense_network(5, 7, hidden=2, bias=True, dtype=torch.float64)
    assert net(torch.zeros(3, 5, dtype=torch.float64)).shape == (3, 1)
    assert [tuple(parameter.shape) for parameter in net.parameters()] == [(7, 5), (7,), (7, 7), (7,), (1, 7), (1,)]
    assert all(parameter.ndim == 2 for parameter in dense_network(5, 7).parameters())


def test_drawn_network():
    before = torch.get_rng_state()
    one, same, other = (drawn_network(4, 5, seed) for seed in (0, 0, 1))
    assert torch.equal(before, torch.get_rng_state()) and one(torch.zeros(3, 1, 2, 2)).shape == (3, 1)
    for a, b, c in zip(*(net.parameters() for net in (one, same, other)), strict=True):
        assert torch.equal(a, b) and not torch.equal(a, c)
    assert float(one[1].weight.detach().abs().max()) <= 0.5  # PyTorch's uniform weights, within 1 / sqrt(inputs)
