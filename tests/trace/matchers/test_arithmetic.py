"""Sums and products of one value are multiples and powers of it."""

import torch
from tests.cases import normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F


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
