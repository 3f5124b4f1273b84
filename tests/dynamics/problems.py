"""Small training problems that several tests share."""

from __future__ import annotations

import torch
from tests.cases import mlp, normal
from torch import Tensor, nn
from torch.func import functional_call, jacrev

import ntkit


class Features(ntkit.Kernel):
    """K(x, x') = phi(x).phi(x') for phi linear in a fixed random map: the kernel of a model linear in its weights."""

    def __init__(self, inputs: int = 3, features: int = 40, seed: int = 5) -> None:
        self.map = normal(inputs, features, seed=seed)
        self.phase = 3 * normal(features, seed=seed + 1)

    def features(self, x: Tensor) -> Tensor:
        return torch.cos(x @ self.map.to(x) + self.phase.to(x)) / self.map.shape[1] ** 0.5

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        return self.features(x1) @ self.features(x1 if x2 is None else x2).T

    def diag(self, x: Tensor) -> Tensor:
        return (self.features(x) ** 2).sum(1)


class Linearised:
    """A finite network replaced by its first-order expansion in the weights around where it is now."""

    def __init__(self, net: nn.Module) -> None:
        self.net = net
        self.weights = {name: parameter.detach() for name, parameter in net.named_parameters()}

    def start(self, x: Tensor) -> Tensor:
        """f_0(x), shape (n, k)."""
        return functional_call(self.net, self.weights, (x,))

    def jacobian(self, x: Tensor) -> Tensor:
        """df/dw, shape (n, k, weights)."""
        parts = jacrev(lambda weights: functional_call(self.net, weights, (x,)))(self.weights)
        return torch.cat([part.flatten(2) for part in parts.values()], dim=2)


class OneOutput(ntkit.Kernel):
    """The empirical tangent kernel of a linearised network with one output."""

    def __init__(self, model: Linearised) -> None:
        self.model = model

    def __call__(self, x1: Tensor, x2: Tensor | None = None) -> Tensor:
        first = self.model.jacobian(x1)[:, 0]
        return first @ (first if x2 is None else self.model.jacobian(x2)[:, 0]).T

    def diag(self, x: Tensor) -> Tensor:
        return (self.model.jacobian(x)[:, 0] ** 2).sum(1)


def small_net() -> nn.Module:
    """Two inputs, one output, with fixed weights."""
    net = mlp(2, 16, 1, activation=nn.Tanh).double()
    with torch.no_grad():
        for index, parameter in enumerate(net.parameters()):
            parameter.copy_(0.5 * normal(*parameter.shape, seed=index))
    return net


def start(x: Tensor) -> Tensor:
    """Outputs of two columns before training."""
    return torch.stack([x.sum(1).sin(), x[:, 0]], dim=1)
