"""Linear layers written in different ways have the same kernel."""

import pytest
import torch
from tests.cases import mlp, normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F

import ntkit


def test_functional_layers_with_parameters_of_their_own():
    class Own(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.b1 = nn.Parameter(torch.zeros(8, 4)), nn.Parameter(torch.zeros(8))
            self.w2 = nn.Parameter(torch.zeros(1, 8))

        def forward(self, x):
            return F.linear(F.relu(F.linear(x, self.w1, self.b1)), self.w2)

    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))
    same_kernels(Own(), plain, normal(3, 4), b_std=0.4)
    override = ntkit.infinite_width(Own(), overrides={"w1": {"w_std": 0.5}}).nngp(normal(3, 4))
    expected = ntkit.infinite_width(plain, overrides={"0": {"w_std": 0.5}}).nngp(normal(3, 4))
    torch.testing.assert_close(override, expected)


@pytest.mark.parametrize("shape", [(5,), (3, 7)])
def test_user_subclass_of_a_layer(shape):
    class MyLinear(nn.Linear):
        pass

    class Twice(nn.Linear):
        def forward(self, x):
            return 2 * super().forward(x)

    x = normal(3, *shape)
    plain = mlp(shape[-1], 8, 1)
    same_kernels(nn.Sequential(MyLinear(shape[-1], 8), nn.ReLU(), nn.Linear(8, 1)), plain, x)
    scaled = nn.Sequential(nn.Linear(shape[-1], 8), Lambda(lambda m, h: 2 * h), nn.ReLU(), nn.Linear(8, 1))
    same_kernels(nn.Sequential(Twice(shape[-1], 8), nn.ReLU(), nn.Linear(8, 1)), scaled, x)
