"""Numbers and branches that depend on the values of the data, or on the size of the batch, are refused."""

import pytest
import torch
from tests.cases import mlp
from torch import nn

import ntkit
from ntkit._src.trace._graph import Untraceable, symbolic_graph
from ntkit.errors import UnsupportedLayerError


class Net(nn.Module):
    """An ordinary network, and code that treats some inputs or batches in another way."""

    def __init__(self, odd):
        super().__init__()
        self.layers = mlp(3, 8, 1)
        self.register_buffer("factor", torch.tensor(2.0))
        self.odd = odd

    def forward(self, x):
        return self.odd(self, self.layers(x), x)


def caught(net, h, x):
    try:
        return h * 2 if x.abs().max() > 100 else h
    except Exception:
        return h


# All of them are the plain network on inputs of usual size, and another one on larger inputs.
BY_VALUES = {
    "item": lambda net, h, x: h * 2 if x.abs().max().item() > 100 else h,
    "any": lambda net, h, x: h * 2 if bool((x > 100).any().item()) else h,
    "tolist": lambda net, h, x: h * 2 if max(x.flatten().tolist()) > 100 else h,
    "factor": lambda net, h, x: h * (1 + (x > 100).sum().item()),
    "length": lambda net, h, x: h * (1 + len(torch.nonzero(x > 100))),
    "mask": lambda net, h, x: h * (1 + x[x > 100].shape[0]),
    "numpy": lambda net, h, x: h * (1 + torch.as_tensor((x.numpy() > 100).sum())),
    "caught": caught,
    "index": lambda net, h, x: h * 2 if x[0].argmax().item() > 5 else h,
}


@pytest.mark.parametrize("name", BY_VALUES)
def test_numbers_read_from_data_are_refused(name):
    module = Net(BY_VALUES[name])
    with pytest.raises(Untraceable, match="values of a tensor"):
        symbolic_graph(module, torch.randn(2, 3, generator=torch.Generator().manual_seed(0)))
    with pytest.raises(UnsupportedLayerError, match="could not be read as a graph|reads numbers out of the values"):
        ntkit.infinite_width(module)


def test_numbers_read_from_buffers_are_constants():
    x = torch.eye(3, dtype=torch.float64)
    plain = ntkit.infinite_width(Net(lambda net, h, x: h)).ntk(x)
    double = ntkit.infinite_width(Net(lambda net, h, x: h * net.factor.item())).ntk(x)
    torch.testing.assert_close(double, 4 * plain, rtol=1e-12, atol=0)


@pytest.mark.parametrize("size", [1, 100])
def test_branches_on_the_size_of_the_batch_are_refused(size):
    module = Net(lambda net, h, x: h * 2 if x.shape[0] > 64 else h)
    if size == 1:
        module = Net(lambda net, h, x: h * 2 if x.shape[0] == 1 else h)
    with pytest.raises(UnsupportedLayerError, match="in a batch of"):
        ntkit.infinite_width(module)


def test_checks_of_the_size_of_the_batch_are_harmless():
    x = torch.eye(3, dtype=torch.float64)

    def checked(net, h, x):
        if x.shape[0] < 1:
            raise ValueError
        return h

    plain = ntkit.infinite_width(Net(lambda net, h, x: h)).ntk(x)
    torch.testing.assert_close(ntkit.infinite_width(Net(checked)).ntk(x), plain, rtol=1e-12, atol=0)
