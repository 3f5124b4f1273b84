"""Which programs with layers called more than once get a shared part, and which are refused."""

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.program import Shared
from ntkit.errors import UnsupportedLayerError


class Net(nn.Module):
    """``function`` of two linear layers and a read-out that all networks here have."""

    def __init__(self, function):
        super().__init__()
        self.first, self.again, self.norm, self.head = (
            nn.Linear(4, 8),
            nn.Linear(8, 8),
            nn.LayerNorm(8),
            nn.Linear(8, 1),
        )
        self.function = function

    def forward(self, x):
        return self.head(self.function(self, x))


def _chain(net, x):
    return torch.relu(net.again(torch.relu(net.again(torch.relu(net.first(x))))))


def _same(net, x):
    h = torch.relu(net.first(x))
    return torch.relu(net.again(h) + net.again(h))


def _skip(net, x):
    one = net.again(torch.relu(net.first(x)))
    return torch.relu(one + net.again(torch.relu(one)))


def _after(net, x):
    one = net.again(torch.relu(net.first(x)))
    return torch.tanh(net.first(torch.flip(x, (1,)))) + torch.tanh(net.again(torch.relu(one))) + torch.tanh(one)


@pytest.mark.parametrize(("function", "shared"), [(_chain, 0), (_same, 0), (_skip, 1), (_after, 1)])
def test_shared_part(function, shared):
    limit = ntkit.infinite_width(Net(function))
    ops = [node.op for node in limit.program((4,)).nodes]
    assert sum(isinstance(op, Shared) for op in ops) == shared
    assert torch.isfinite(limit.ntk(torch.randn(3, 4))).all()
    rows = limit.explain((4,)).rows
    assert (
        any("shared weights" in row.operation for row in rows) == bool(shared)
        if hasattr(rows[0], "operation")
        else True
    )


def _two_functions(net, x):
    one = net.again(torch.relu(net.first(x)))
    return torch.tanh(one) + torch.relu(net.again(torch.relu(one)))


def _function_beside(net, x):
    one = net.again(torch.relu(net.first(x)))
    return one + torch.relu(net.again(torch.relu(one)))


def _product(net, x):
    one = net.again(torch.relu(net.first(x)))
    return one * net.again(torch.relu(one))


def _norm(net, x):
    one = net.norm(net.again(torch.relu(net.first(x))))
    return torch.tanh(one) + torch.tanh(net.norm(net.again(torch.relu(one))))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (_two_functions, "a layer is called more than once"),
        (_function_beside, "a layer is called more than once"),
        (_product, "a product of branches that depend on each other"),
        (_norm, "also those of 'norm'"),
    ],
)
def test_refused(function, reason):
    with pytest.raises(UnsupportedLayerError, match=reason) as raised:
        ntkit.infinite_width(Net(function))
    assert raised.value.problems[0].instead


def test_parameters_shared_in_part_are_refused():
    net = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)
    )
    net[4].weight = net[2].weight
    with pytest.raises(UnsupportedLayerError, match="also those of '2'"):
        ntkit.infinite_width(net)
    net[4].bias = net[2].bias
    x = torch.randn(2, 4)
    with pytest.raises(UnsupportedLayerError, match="also those of '2'"):
        ntkit.infinite_width(net, overrides={"2": {"w_std": 1.0}})
    plain = nn.Sequential(
        nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 1)
    )
    torch.testing.assert_close(ntkit.infinite_width(net).ntk(x), ntkit.infinite_width(plain).ntk(x))
