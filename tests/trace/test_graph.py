"""Ordinary code is traced as it is: sizes, lengths, branches and loops over shapes."""

import subprocess
import sys

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.trace._graph import Untraceable, symbolic_graph
from ntkit.errors import UnsupportedLayerError
from ntkit.layers import SelfAttention


class Net(nn.Module):
    """conv 3 -> 8, a body, a head on 8 features."""

    def __init__(self, body, features=8):
        super().__init__()
        self.conv, self.head = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(features, 2)
        self.act = ntkit.Elementwise(torch.erf)
        self.body = body

    def forward(self, x):
        return self.head(self.body(self, self.conv(x), x))


def flatten_by_length(net, h, x):
    return h.relu().reshape(len(x), -1)


def flatten_by_product(net, h, x):
    n, c, *rest = h.shape
    return F.relu(h).view(n, c * rest[0] * rest[1])


def flatten_by_numel(net, h, x):
    return F.relu(h).reshape(h.size(0), h.shape[1:].numel())


def flatten_checked(net, h, x):
    assert h.dim() == 4 and h.ndim == len(h.shape)
    if x.shape[1] != 3 or h.size(-1) < 1 or x.size(0) == 0:
        raise ValueError
    return F.relu(h).flatten(1)


def unpacked(net, h, x):
    return F.relu(h.flatten(2).view(*h.shape[:2], *x.shape[2:])).flatten(1)


def loop(net, h, x):
    for _ in range(h.shape[2] // 4):
        h = F.relu(h)
    return h.flatten(1)


PLAIN = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 16, 2))


@pytest.mark.parametrize(
    "body", [flatten_by_length, flatten_by_product, flatten_by_numel, flatten_checked, unpacked, loop]
)
def test_code_with_sizes(body):
    net = Net(body, 8 * 16)
    symbolic_graph(net.double(), normal(2, 3, 4, 4))  # without the exporter
    x = normal(3, 3, 4, 4)
    torch.testing.assert_close(ntkit.infinite_width(net).ntk(x), ntkit.infinite_width(PLAIN).ntk(x))


def test_a_prefix_that_uses_the_length_serves_every_batch():
    class Flat(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(48, 2)

        def forward(self, x):
            return self.head(x.reshape(len(x), x.shape[1] * x.shape[2] * x.shape[3]))

    x = normal(5, 3, 4, 4)
    torch.testing.assert_close(ntkit.infinite_width(Flat()).nngp(x), 2 * x.flatten(1) @ x.flatten(1).T / 48)


def test_elementwise_modules_survive_the_exporter():
    class Typed(nn.Module):
        """Proxies are no tensors, so this branch needs the exporter."""

        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(3, 8), nn.Linear(8, 2)
            self.act = ntkit.Elementwise(lambda z: torch.exp(-z * z))

        def forward(self, x):
            if not isinstance(x, torch.Tensor):
                raise TypeError
            return self.head(self.act(self.fc(x)))

    net, x = Typed(), normal(3, 3)
    with pytest.raises(Untraceable):
        symbolic_graph(net, x.float())
    plain = nn.Sequential(net.fc, net.act, net.head)
    torch.testing.assert_close(ntkit.infinite_width(net).ntk(x), ntkit.infinite_width(plain).ntk(x))


def test_attention_survives_the_exporter():
    class Typed(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(3, 8), nn.Linear(8, 2)
            self.attention = SelfAttention(8, 2, ntkit.Elementwise(torch.tanh), mask="causal", positions=torch.eye(4))

        def forward(self, x):
            if not isinstance(x, torch.Tensor):
                raise TypeError
            return self.head(self.attention(self.fc(x))[:, -1])

    class Plain(Typed):
        def forward(self, x):
            return self.head(self.attention(self.fc(x))[:, -1])

    x = normal(3, 4, 3)
    torch.testing.assert_close(ntkit.infinite_width(Typed()).ntk(x), ntkit.infinite_width(Plain()).ntk(x))


@pytest.mark.slow
def test_nothing_is_printed():
    code = """
import torch, ntkit
from torch import nn
class Token(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc, self.head, self.cls = nn.Linear(3, 8), nn.Linear(16, 2), nn.Parameter(torch.zeros(1, 1, 8))
    def forward(self, x):
        h = torch.cat([self.cls.expand(len(x), 4, -1), self.fc(x)], 2)
        return self.head(torch.relu(h)[:, 0])
class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.fc = nn.Linear(3, 2)
    def forward(self, x):
        return self.fc(x + x.reshape(2, 3))
for module, x in ((Token(), torch.zeros(2, 4, 3)), (Mixed(), torch.zeros(2, 3))):
    try:
        ntkit.infinite_width(module).ntk(x)
    except ntkit.errors.UnsupportedLayerError:
        pass
    else:
        raise AssertionError
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == run.stderr == ""


def test_branches_on_values_are_refused():
    for body in (
        lambda net, h, x: (h if h.sum() > 0 else -h).mean((2, 3)),
        lambda net, h, x: (h if x.max() > 0 else -h).mean((2, 3)),
    ):
        with pytest.raises(UnsupportedLayerError, match="graph"):
            ntkit.infinite_width(Net(body))
