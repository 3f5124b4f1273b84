"""The same activation written in different ways has the same kernel."""

import pytest
import torch
from tests.cases import normal
from tests.trace.forms import MLP, Lambda, same_kernels
from torch import nn
from torch.nn import functional as F


@pytest.mark.parametrize(
    "relu",
    [F.relu, torch.relu, lambda h: h.relu(), lambda h: h.relu_(), lambda h: F.relu(h, inplace=True),
     lambda h: F.leaky_relu(h, 0.0),
     lambda h: 0.5 * (h + 0.0) * 2, None],
    ids=["F", "torch", "method", "inplace method", "inplace", "leaky", "scaled", "prelu"],
)  # fmt: skip
def test_forms_of_relu(relu):
    layers = dict(a=nn.Linear(4, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 1))
    if relu is None:
        slope = nn.Parameter(torch.zeros(1), requires_grad=False)
        relu = lambda h: F.prelu(h, slope.to(h.dtype))  # noqa: E731
    linear = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 8), nn.Linear(8, 1))
    plain = MLP if relu(torch.tensor(-1.0)) == 0 else linear
    net = Lambda(lambda m, x: m.c(relu(m.b(relu(m.a(x))))), **layers)
    same_kernels(net, plain, normal(3, 4), b_std=0.3)


@pytest.mark.parametrize(
    "relu",
    [lambda h: h.clamp(min=0), lambda h: h.clamp_min(0.0), lambda h: torch.maximum(h, torch.zeros(())),
     lambda h: torch.maximum(torch.zeros_like(h), h), lambda h: -torch.minimum(-h, torch.tensor(0.0)),
     lambda h: torch.clip(h, 0, None)],
)  # fmt: skip
def test_more_forms_of_relu(relu):
    net = Lambda(lambda m, x: m.c(relu(m.b(relu(m.a(x))))), a=nn.Linear(4, 8), b=nn.Linear(8, 8), c=nn.Linear(8, 1))
    same_kernels(net, MLP, normal(3, 4), b_std=0.3)


def test_clamp_is_hardtanh():
    clamped = Lambda(lambda m, x: m.b(m.a(x).clamp(-1, 2)), a=nn.Linear(4, 8), b=nn.Linear(8, 1))
    hard = nn.Sequential(nn.Linear(4, 8), nn.Hardtanh(-1, 2), nn.Linear(8, 1))
    same_kernels(clamped, hard, normal(3, 4))
