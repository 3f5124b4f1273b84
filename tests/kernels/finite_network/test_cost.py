"""Multiplications counted by hand, as the docstring of ``costs`` counts them."""

import pytest
import torch
from tests.cases import mlp
from torch import nn

import ntkit
from ntkit._src.kernels.finite_network import Network, as_inputs
from ntkit._src.kernels.finite_network._cost import _CALL, _PASS, _TRANSFORMS, _VMAP, costs
from ntkit._src.kernels.finite_network._survey import survey

LARGE = 2**40


def _survey(module, shape, output="trace", budget=LARGE):
    return survey(Network(module, output), as_inputs(torch.randn(3, *shape)), budget)


@pytest.mark.parametrize("output", ["trace", "full"])
@pytest.mark.parametrize("n2", [None, 6])
def test_multilayer_perceptron(n2, output):
    module = mlp(3, 5, 2, activation=nn.Tanh)
    found = costs(_survey(module, (3,), output), 4, n2)
    rows, columns, pairs = (4, 4, 10) if n2 is None else (10, 6, 24)
    forward, parameters, c, call = 3 * 5 + 5 * 2, 3 * 5 + 5 + 5 * 2 + 2, 2, _CALL * 4
    blocks = c * c if output == "full" else c
    assert (
        found["jacobian"]
        == _VMAP * rows * ((1 + 2 * c) * forward + c * parameters) + _TRANSFORMS * call + pairs * parameters * blocks
    )
    assert found["ntk-vp"] == 4 * pairs * c * forward + 4 * columns * c * call + _PASS * columns * c * parameters
    layers = 0.0
    for q, d in ((3, 5), (5, 2)):
        formed = rows * q * d * c + pairs * q * d * blocks
        paired = pairs * (q + d * blocks + 8 * (blocks if output == "full" else 1))
        layers += min(formed, paired)
    assert found["structured"] == (1 + c) * (rows * forward + call) + layers


def test_convolution_with_groups():
    """At 36 positions of 3x3 windows, four input channels in two groups, six output channels."""
    module = nn.Conv2d(4, 6, 3, padding=1, groups=2, bias=False)
    found = costs(_survey(nn.Sequential(module, nn.Flatten()), (4, 6, 6), output=0), 5, None)
    pairs, c, positions, groups, q, d = 15, 1, 36, 2, 2 * 9, 3
    formed = 5 * positions * groups * q * d * c + pairs * groups * q * d * c
    paired = pairs * groups * positions**2 * (q + d * c + 8)
    assert formed < paired
    assert found["structured"] == 2 * (5 * positions * groups * q * d + 3 * _CALL) + formed


def test_other_parameters_and_tables():
    """A parameter of no layer counts one multiplication for each entry; a table is read, not multiplied."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.scale, self.head = (
                nn.Embedding(7, 4),
                nn.Parameter(torch.ones(4)),
                nn.Linear(4, 1, bias=False),
            )

        def forward(self, tokens):
            return self.head(self.scale * self.table(tokens).mean(1))

    found = costs(survey(Network(Net(), "trace"), as_inputs(torch.randint(7, (3, 2))), LARGE), 2, None)
    forward, call = 4 + 4, 3 * _CALL
    derivatives = _VMAP * 2 * (3 * forward + 32) + _TRANSFORMS * call + 3 * 32
    assert found["structured"] == derivatives + 2 * (2 * forward + call) + min(2 * 4 + 3 * 4, 3 * (4 + 1 + 8))
    assert found["jacobian"] == _VMAP * 2 * (3 * forward + 36) + _TRANSFORMS * call + 3 * 36


def test_a_small_budget_repeats_derivatives():
    """With room for one row, the derivatives of all rows are formed again for each column."""
    module = mlp(3, 5, 2, activation=nn.Tanh)
    found = costs(_survey(module, (3,), budget=1), 4, 6)
    passes = 10 * 6 * (5 * 25 + 2 * 32)
    assert found["jacobian"] == _VMAP * passes + _TRANSFORMS * _CALL * 4 * 6 + 24 * 32 * 2
    assert found["structured"] > 6 * costs(_survey(module, (3,)), 4, 6)["structured"] / 2


def test_the_cheapest_is_chosen():
    x = torch.randn(3, 3)
    module = mlp(3, 5, 2, activation=nn.Tanh)
    estimates = costs(_survey(module, (3,)), 3, None)
    assert ntkit.empirical(module).method_for(x) == min(estimates, key=estimates.get)
