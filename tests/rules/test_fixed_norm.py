"""Batch norm in evaluation mode: against its formula and finite networks."""

import math

import torch
from tests.cases import normal
from torch import nn

import ntkit

W, B = 1.3, 0.4


def _net(width=8, affine=True):
    return (
        nn.Sequential(nn.Linear(3, width), nn.BatchNorm1d(width, affine=affine), nn.ReLU(), nn.Linear(width, 1))
        .double()
        .eval()
    )


def _dual(k):
    q = k.diagonal()
    size = (q[:, None] * q).sqrt()
    angle = torch.acos((k / size).clamp(-1, 1))
    return size * (torch.sin(angle) + (math.pi - angle) * torch.cos(angle)) / (2 * math.pi), (math.pi - angle) / (
        2 * math.pi
    )


def test_against_the_formula():
    """u = g s z + beta with s^2 = 1 / (v + eps): the gain adds E[u phi'(u) v phi'(v)] = E[phi phi], the bias E[phi' phi']."""
    x = normal(4, 3)
    for affine, variance in ((True, 1.0), (False, 1.0), (True, 4.0)):
        net = _net(affine=affine)
        net[1].running_var.fill_(variance)
        found = ntkit.infinite_width(net, w_std=W, b_std=B).both(x)
        square = 1 / (variance + net[1].eps)
        k = W**2 * x @ x.T / 3 + B**2
        value, slope = _dual(square * k)
        theta = (square * k + affine) * slope + affine * value
        torch.testing.assert_close(found.nngp, W**2 * value + B**2, rtol=1e-12, atol=1e-13)
        apart = ~torch.eye(4, dtype=torch.bool)  # at equal inputs the angle above has lost half of its digits
        ntk = W**2 * (value + theta) + B**2
        torch.testing.assert_close(found.ntk[apart], ntk[apart], rtol=1e-12, atol=1e-13)
        torch.testing.assert_close(found.ntk, ntk, rtol=1e-7, atol=0)


def test_against_finite_networks():
    x, generator = normal(3, 2, 5), torch.Generator().manual_seed(0)

    def build(width):
        layers = (
            nn.Conv1d(2, width, 3),
            nn.BatchNorm1d(width),
            nn.ReLU(),
            nn.Conv1d(width, width, 2),
            nn.BatchNorm1d(width),
        )
        return nn.Sequential(*layers, nn.Tanh(), nn.Flatten(), nn.Linear(2 * width, 1)).double().eval()

    estimates = []
    for width in (48, 96):
        net, found = ntkit.parametrize_ntk(build(width), w_std=W, b_std=B), []
        for _ in range(60):
            ntkit.initialize(net, generator=generator)
            slopes = [torch.autograd.grad(y, tuple(net.parameters()), retain_graph=True) for y in net(x)[:, 0]]
            rows = torch.stack([torch.cat([slope.flatten() for slope in own]) for own in slopes])
            found.append(rows @ rows.T)
        kernels = torch.stack(found)
        estimates.append((kernels.mean(0), kernels.std(0) / len(found) ** 0.5))
    (narrow, a), (wide, b) = estimates
    limit = ntkit.infinite_width(build(8), w_std=W, b_std=B).ntk(x)
    deviation = (limit - (2 * wide - narrow)) / (4 * b**2 + a**2).sqrt()
    assert deviation.abs().max() < 4, deviation


def test_equal_statistics_are_a_multiple():
    """A mean that is not zero moves all channels: exact where no activation follows at once."""
    x, net = (
        normal(3, 3),
        nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, affine=False), nn.Linear(8, 1)).double().eval(),
    )
    net[1].running_mean.fill_(0.5)
    square = 1 / (1 + net[1].eps)
    k = W**2 * x @ x.T / 3 + B**2
    after = square * (k + 0.25)
    found = ntkit.infinite_width(net, w_std=W, b_std=B).both(x)
    torch.testing.assert_close(found.nngp, W**2 * after + B**2, rtol=1e-12, atol=0)
    torch.testing.assert_close(found.ntk, W**2 * (after + square * k) + B**2, rtol=1e-12, atol=0)
