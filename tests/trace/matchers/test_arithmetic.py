"""Sums and products of one value are multiples and powers of it."""

import pytest
import torch
from tests.cases import normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import UnsupportedLayerError


def test_same_value_twice_is_a_multiple():
    twice = Lambda(lambda m, x: m.b((h := m.a(x)) + h - 0.5 * h), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    multiple = Lambda(lambda m, x: m.b(m.a(x) * 1.5), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(twice, multiple, normal(3, 4))
    recomputed = Lambda(lambda m, x: m.b(torch.relu(h := m.a(x)) + F.relu(h)), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    doubled = Lambda(lambda m, x: m.b(2 * F.relu(m.a(x))), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(recomputed, doubled, normal(3, 4))


def test_frozen_numbers_scale():
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 1)
            self.alpha = nn.Parameter(torch.tensor(0.25), requires_grad=False)
            self.register_buffer("beta", torch.tensor([2.0]))

        def forward(self, x):
            return self.head(torch.relu(self.alpha * self.fc(x)) / self.beta)

    plain = Lambda(lambda m, x: m.b(torch.relu(m.a(x)) * 0.125), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(Scaled(), plain, normal(3, 4))


def test_square_of_a_value_by_product():
    product = Lambda(lambda m, x: m.b((h := m.a(x)) * h), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    square = Lambda(lambda m, x: m.b(m.a(x) ** 2), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    same_kernels(product, square, normal(3, 4))


def test_one_factor_for_each_position():
    """m_p relu(h_p), then the mean over p: K = sum over p, p' of m_p m_p' K[p, p'] / P^2; dividing multiplies by 1 / m."""
    m, x = torch.tensor([1.0, -2.0, 0.5, 3.0]), normal(3, 2, 4)

    class Weighted(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.conv, self.head, self.function = nn.Conv1d(2, 8, 3, padding=1), nn.Linear(8, 1), function
            self.register_buffer("m", m)

        def forward(self, x):
            return self.head(self.function(F.relu(self.conv(x)), self.m).mean(2))

    gains = {"w_std": 1.3, "b_std": 0.2}
    features = nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.ReLU())
    kernel = ntkit.infinite_width(features, **gains).nngp.positions(x)  # (n, n, P, P)
    expected = 1.3**2 * torch.einsum("abpq,p,q->ab", kernel, m.double(), m.double()) / 16 + 0.04
    found = ntkit.infinite_width(Weighted(lambda h, m: h * m), **gains)
    torch.testing.assert_close(found.nngp(x), expected)
    divided = ntkit.infinite_width(Weighted(lambda h, m: h / (1 / m)), **gains)
    torch.testing.assert_close(divided.ntk(x), found.ntk(x))
    with pytest.raises(UnsupportedLayerError, match="differs between channels"):
        ntkit.infinite_width(Weighted(lambda h, m: h * torch.arange(8.0)[:, None]))
