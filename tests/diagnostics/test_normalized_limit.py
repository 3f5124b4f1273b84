from __future__ import annotations

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit.diagnostics import normalized_limit
from ntkit.errors import InputError, InputTypeError

X = normal(4, 3)


def network(width, hidden=1):
    layers, inputs = [], 3
    for _ in range(hidden):
        layers += [nn.Linear(inputs, width), nn.Tanh()]
        inputs = width
    return nn.Sequential(*layers, nn.Linear(width, 1))


def test_two_layers_leave_the_kernel_of_the_hidden_units():
    # E phi phi is the NNGP kernel of the head over its w_std^2.
    net = network(8)
    nngp = ntkit.infinite_width(net, w_std=1.3, b_std=0.4, init="standard").nngp(X)
    expected = (nngp - 0.4**2) / 1.3**2
    assert torch.allclose(normalized_limit(net, X, 8, 1.3, 0.4), expected, atol=1e-9)


@pytest.mark.parametrize("hidden", [1, 2])
def test_kernels_of_wide_networks_over_their_width_tend_to_it(hidden):
    limit, n = normalized_limit(network(4, hidden), X, 4, 1.0, 0.5), 2000
    torch.manual_seed(0)
    net = network(n, hidden).double()
    with torch.no_grad():
        for layer in net:
            if isinstance(layer, nn.Linear):
                layer.weight.normal_(0, layer.in_features**-0.5)
                layer.bias.normal_(0, 0.5)
    measured = ntkit.empirical(net).ntk(X) / n
    assert float((measured - limit).norm() / limit.norm()) < 0.06


def test_bad_input():
    with pytest.raises(InputError, match="width must be at least 1"):
        normalized_limit(network(8), X, 0)
    with pytest.raises(InputTypeError, match="width must be an integer"):
        normalized_limit(network(8), X, 8.0)
