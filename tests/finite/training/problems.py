"""The network and the data that the tests of training share."""

from __future__ import annotations

import torch
from tests.cases import mlp, normal
from torch import nn

import ntkit


def network(seed: int = 0, outputs: int = 2) -> nn.Module:
    net = mlp(3, 24, outputs, activation=nn.Tanh).double()
    return ntkit.initialize(
        ntkit.parametrize_ntk(net, w_std=1.2, b_std=0.3), generator=torch.Generator().manual_seed(seed)
    )


X, Y, X_TEST = normal(6, 3), normal(6, 2, seed=1), normal(4, 3, seed=2)


def full_kernel(net, x1, x2):
    """The n1 k x n2 k kernel by brute force."""
    parameters = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}

    def jacobian(x):
        each = torch.func.jacrev(lambda p: torch.func.functional_call(net, p, (x,)).reshape(-1))(parameters)
        return torch.cat([each[name].flatten(1) for name in parameters], 1)

    return jacobian(x1) @ jacobian(x2).T
