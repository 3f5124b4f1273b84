"""A survey is used again while the module is unchanged, and never once it has changed."""

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn.utils import parametrize

import ntkit

from .cases import brute_ntk

RUNS = []


class Counted(nn.Module):
    def forward(self, x):
        RUNS.append(len(x))
        return x


class Net(nn.Module):
    """Reads a plain attribute, a buffer, and layers in a dict by name."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 3), nn.Linear(3, 3), nn.Linear(3, 2)
        self.twice, self.order = False, ["first", "second"]
        self.register_buffer("swap", torch.zeros(()))

    def forward(self, x):
        for name in self.order:
            x = torch.tanh(getattr(self, name)(x))
        if self.twice:
            x = torch.tanh(self.first(x))
        if self.swap > 0:
            x = x + x @ self.second.weight
        return self.head(x)


def close(value, expected):
    torch.testing.assert_close(value, expected, rtol=1e-9, atol=1e-11)


def inputs():
    return normal(5, 3, seed=1)


def network():
    torch.manual_seed(0)
    return Net().double()


def test_the_second_call_runs_the_module_less_often():
    net = nn.Sequential(nn.Linear(3, 4), Counted(), nn.Tanh(), nn.Linear(4, 1)).double()
    emp, x, runs = ntkit.empirical(net), inputs(), []
    for call in (emp.ntk, emp.ntk, emp.ntk.diag, emp.nngp, emp.nngp, lambda x: emp.ntk(x, x[:2])):
        RUNS.clear()
        value = call(x)
        runs.append(len(RUNS))
        assert torch.equal(value, call(x))
    assert runs[1] == runs[0] - 1 and runs[4] == runs[3] - 1
    with torch.no_grad():
        net[0].weight.add_(1.0)
    RUNS.clear()
    close(emp.ntk(x), brute_ntk(net, x, x))
    assert len(RUNS) > runs[1]


def replaced(net):
    net.second = nn.Linear(3, 3, bias=False).double()


def tied(net):
    net.second.weight = net.first.weight


def frozen(net):
    net.first.weight.requires_grad_(False)


def hooked(net):
    net.second.register_forward_hook(lambda layer, args, output: output.flip(-1) * 2)


def pre_hooked(net):
    net.register_forward_pre_hook(lambda layer, args: (args[0] @ net.second.weight,))


def other_forward(net):
    net.second.forward = lambda x: x @ net.second.weight @ net.first.weight


def flagged(net):
    net.twice = True


def listed(net):
    net.order.append("second")


def buffered(net):
    net.swap.fill_(1.0)


def parametrised(net):
    parametrize.register_parametrization(net.first, "weight", nn.Softplus())


def scaled(net):
    ntkit.parametrize_ntk(net, w_std=1.3, b_std=0.2)


@pytest.mark.parametrize(
    "change",
    [replaced, tied, frozen, hooked, pre_hooked, other_forward, flagged, listed, buffered, parametrised, scaled],
    ids=lambda change: change.__name__,
)
@pytest.mark.parametrize("method", ["structured", "jacobian", "auto"])
def test_changes_between_calls_are_seen(change, method):
    net, x = network(), inputs()
    emp = ntkit.empirical(net, method=method)
    before = emp.ntk(x)
    close(before, brute_ntk(net, x, x))
    change(net)
    after = emp.ntk(x)
    close(after, brute_ntk(net, x, x))
    assert not torch.allclose(before, after)
    close(emp.ntk.diag(x), after.diagonal())


def test_the_gain_of_the_parametrisation_is_read_again():
    net, x = ntkit.parametrize_ntk(network(), w_std=1.0, b_std=0.1), inputs()
    emp = ntkit.empirical(net)
    emp.ntk(x)
    net.first.parametrizations.weight[0].gain = 3.0
    close(emp.ntk(x), brute_ntk(net, x, x))


class Turned(nn.Module):
    """Moves the batch to the second axis around its first layer; a last layer of zeros hides that from a survey."""

    def __init__(self):
        super().__init__()
        self.first, self.head = nn.Linear(2, 4), nn.Linear(4, 1)
        nn.init.zeros_(self.head.weight)

    def forward(self, x):
        return self.head(torch.tanh(self.first(x.transpose(0, 1))).transpose(0, 1).sum(1))


@pytest.mark.parametrize("write", [lambda weight: weight.detach().normal_(), lambda weight: weight.data.normal_()])
def test_what_zeros_hide_is_seen_after_training(write):
    torch.manual_seed(0)
    net, x = Turned().double(), torch.randn(3, 3, 2, dtype=torch.float64)
    emp = ntkit.empirical(net, method="structured")
    close(emp.ntk(x), brute_ntk(net, x, x))
    write(net.head.weight)
    close(emp.ntk(x), brute_ntk(net, x, x))


def test_modes_and_arguments():
    net, x = nn.Sequential(nn.Linear(3, 4), nn.Dropout(), nn.Linear(4, 1)).double().eval(), inputs()
    emp = ntkit.empirical(net)
    emp.ntk(x)
    net.train()
    with pytest.raises(ntkit.errors.InputError, match="evaluation mode"):
        emp.ntk(x)

    class Twice(Net):
        def forward(self, x, twice):
            self.twice = twice
            return super().forward(x)

    torch.manual_seed(0)
    wide, once = Twice().double(), network()
    emp = ntkit.empirical(wide)
    close(emp.ntk((x, False)), ntkit.empirical(once).ntk(x))
    once.twice = True
    close(emp.ntk((x, True)), ntkit.empirical(once).ntk(x))
