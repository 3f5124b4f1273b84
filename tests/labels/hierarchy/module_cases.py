"""Modules to take the tangent hierarchy of, and the hierarchy by towers of explicit Jacobians."""

from __future__ import annotations

import torch
from tests.cases import Case, mlp, normal, seeded
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn.attention import SDPBackend, sdpa_kernel

import ntkit


class WrittenOutNorm(nn.LayerNorm):
    """Layer norm in elementary operations: torch's own is wrong from second order on (torch 2.13)."""

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        return centred / ((centred**2).mean(-1, keepdim=True) + self.eps) ** 0.5 * self.weight + self.bias


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.block = nn.MultiheadAttention(2, 1, batch_first=True)
        self.head = nn.Linear(2, 1)

    def forward(self, x):
        return self.head(self.block(x, x, x)[0].mean(1))


def tied() -> nn.Module:
    net = mlp(3, 3, 3, 1, activation=nn.Tanh)
    net[2].weight = net[0].weight
    return net


def frozen() -> nn.Module:
    net = mlp(3, 4, 1, activation=nn.Tanh)
    net[0].weight.requires_grad_(False)
    return net


def smooth_mlp(norm=None) -> nn.Module:
    return nn.Sequential(
        nn.Linear(3, 3), *([norm(3)] if norm else []), nn.Tanh(), nn.Linear(3, 2), nn.GELU(), nn.Linear(2, 1)
    )


def ntk() -> nn.Module:
    return ntkit.initialize(ntkit.parametrize_ntk(mlp(3, 4, 1, activation=nn.Softplus), b_std=0.3))


def cnn() -> nn.Module:
    return nn.Sequential(nn.Conv2d(1, 2, 2), nn.Softplus(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2, 1))


def kinked() -> nn.Module:
    norm = nn.BatchNorm2d(2)
    return nn.Sequential(nn.Conv2d(1, 2, 2), norm, nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(2, 1)).eval()


# A module, its twin whose every derivative torch takes right, the shape of an input, the highest number of vectors.
CASES = {
    "mlp": (smooth_mlp, smooth_mlp, (3,), 3),
    "ntk": (ntk, ntk, (3,), 2),
    "cnn": (cnn, cnn, (1, 4, 3), 2),
    "layer norm": (lambda: smooth_mlp(nn.LayerNorm), lambda: smooth_mlp(WrittenOutNorm), (3,), 2),
    "attention": (Attention, Attention, (3, 2), 2),
    "tied": (tied, tied, (3,), 2),
    "frozen": (frozen, frozen, (3,), 2),
    "ReLU, max pool, batch norm": (kinked, kinked, (1, 4, 3), 2),
    "embedding": (lambda: nn.Sequential(nn.Embedding(5, 3), nn.Tanh(), nn.Flatten(), nn.Linear(6, 1)),) * 2 + ((2,), 2),
}


def case(name):
    make, make_twin, shape, most = CASES[name]
    found = [seeded(maker) for maker in (make, make_twin)]
    draw = Case(make, shape, 5 if name == "embedding" else None).inputs
    return (*found, draw(3, 1), draw(2, 2), draw(4, 3), [normal(4, seed=10 + k) for k in range(most)])


def tower(net, x1, x2, x, vectors):
    """Differentiate the kernel's matrix again and again by explicit Jacobians, where the gradients of x move too."""
    trained = {name: p.detach() for name, p in net.named_parameters() if p.requires_grad}
    sizes = [p.numel() for p in trained.values()]

    def jacobian(theta, points):
        def outputs(flat):
            pieces = zip(trained.items(), flat.split(sizes), strict=True)
            return functional_call(net, {name: v.view_as(p) for (name, p), v in pieces}, (points,))[:, 0]

        return jacrev(outputs)(theta)

    def kernel(theta):
        return jacobian(theta, x1) @ jacobian(theta, x2).T

    def next_order(function, u):
        return lambda theta: jacrev(function)(theta) @ (u @ jacobian(theta, x))

    for u in vectors:
        kernel = next_order(kernel, u)
    with sdpa_kernel(SDPBackend.MATH):
        return kernel(torch.cat([p.reshape(-1) for p in trained.values()]))


def close(found, expected, digits=1e-11):
    torch.testing.assert_close(found, expected, rtol=0, atol=digits * max(1.0, float(expected.abs().max())))
