"""Recurrent layers equal the same network written as a loop over linear layers."""

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit.errors import UnsupportedLayerError

GAINS = {"w_std": 1.3, "b_std": 0.4}


class Recurrent(nn.Module):
    """``read`` turns the two results of ``nn.RNN`` into vectors, which a linear layer reads."""

    def __init__(self, read, turned=False, **options):
        super().__init__()
        self.rnn = nn.RNN(3, 8, batch_first=not turned, **options)
        self.head = nn.LazyLinear(1)
        self.read, self.turned = read, turned
        self(torch.zeros(1, 2, 3))

    def forward(self, x):
        states, last = self.rnn(x.transpose(0, 1) if self.turned else x)
        return self.head(self.read(states.transpose(0, 1) if self.turned else states, last))


class Written(nn.Module):
    """The same as a loop of cells."""

    def __init__(self, phi=torch.tanh, layers=1, mean=True, both=False):
        super().__init__()
        widths = [3] + [16 if both else 8] * (layers - 1)
        count = 2 if both else 1
        self.cells = nn.ModuleList(nn.RNNCell(w, 8) for w in widths for _ in range(count))
        self.count, self.phi, self.mean, self.head = count, phi, mean, nn.Linear(8 * count, 1)
        for cell in self.cells:
            cell.nonlinearity = "tanh" if phi is torch.tanh else "relu"

    def forward(self, x):
        given = [x[:, t] for t in range(x.shape[1])]
        for first in range(0, len(self.cells), self.count):
            sides = []
            for side in range(self.count):
                state, found = None, []
                for value in given[:: -1 if side else 1]:
                    state = self.cells[first + side](value, state)
                    found.append(state)
                sides.append(found[:: -1 if side else 1])
            given = [torch.cat(parts, 1) for parts in zip(*sides, strict=True)]
        return self.head(torch.stack(given, 1).mean(1) if self.mean else given[-1])


CASES = {
    "mean": (Recurrent(lambda h, last: h.mean(1)), Written()),
    "last": (Recurrent(lambda h, last: h[:, -1]), Written(mean=False)),
    "last state": (Recurrent(lambda h, last: last[-1], num_layers=2), Written(layers=2, mean=False)),
    "two layers": (Recurrent(lambda h, last: h.mean(1), num_layers=2), Written(layers=2)),
    "two ReLU layers": (
        Recurrent(lambda h, last: h.mean(1), num_layers=2, nonlinearity="relu"),
        Written(torch.relu, layers=2),
    ),
    "squeezed": (Recurrent(lambda h, last: last.squeeze(0)), Written(mean=False)),
    "relu": (Recurrent(lambda h, last: h.mean(1), nonlinearity="relu"), Written(torch.relu)),
    "steps first": (Recurrent(lambda h, last: h.mean(1), turned=True), Written()),
    "both directions": (Recurrent(lambda h, last: h.mean(1), bidirectional=True), Written(both=True)),
    "two layers, both directions": (
        Recurrent(lambda h, last: h.mean(1), num_layers=2, bidirectional=True),
        Written(layers=2, both=True),
    ),
    "two layers, both directions, last": (
        Recurrent(lambda h, last: h[:, -1], num_layers=2, bidirectional=True),
        Written(layers=2, both=True, mean=False),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_layers_equal_loops(case):
    x = normal(3, 3, 3)
    layer, loop = (ntkit.infinite_width(net, **GAINS).both(x) for net in CASES[case])
    torch.testing.assert_close(layer.ntk, loop.ntk, rtol=1e-12, atol=0)
    torch.testing.assert_close(layer.nngp, loop.nngp, rtol=1e-12, atol=0)


def test_a_chain_runs_on_the_native_engine():
    """The last state needs no covariance between steps."""
    limit, x = ntkit.infinite_width(CASES["last"][0], **GAINS), normal(4, 3, 3)
    assert limit.explain((3, 3)).rows[0].engine == "native"
    torch.testing.assert_close(limit.ntk(x), limit.ntk(x, engine="reference"), rtol=1e-9, atol=0)


def test_one_gain_for_all_weights_and_torch_initialisation():
    x, net = normal(2, 2, 3), Recurrent(lambda h, last: h.mean(1))
    own = ntkit.infinite_width(net, w_std=1.0, overrides={"rnn": {"w_std": 2.0}, "head": {"w_std": 1.0}})
    torch.testing.assert_close(own.nngp(x), ntkit.infinite_width(net, w_std=2.0).nngp(x) / 4)
    wide, torch_limit = Recurrent(lambda h, last: h.mean(1)), ntkit.infinite_width(net, init="torch")
    inner = torch_limit.program((2, 3)).nodes
    gains = [
        node.op.gains
        for outer in inner
        for node in (outer, *getattr(outer.op, "nodes", ()))
        if hasattr(node.op, "gains")
    ]
    # PyTorch draws all of them from U(-1, 1) / sqrt(8), so their variances are 1 / 24.
    found = {round(float(g.w_std) ** 2, 12) for g in gains} | {round(float(g.b_std) ** 2, 12) for g in gains}
    assert {round(3 / 24, 12), round(8 / 24, 12), round(1 / 24, 12)} <= found
    assert wide.rnn.weight_hh_l0.abs().max() <= 8**-0.5


def test_refused():
    class Started(nn.Module):
        def __init__(self, kind):
            super().__init__()
            self.rnn, self.head = kind(3, 8, batch_first=True), nn.Linear(8, 1)

        def forward(self, x):
            start = () if not isinstance(self.rnn, nn.RNN) else (torch.ones(1, 2, 8),)
            return self.head(self.rnn(x, *start)[0][:, -1])

    with pytest.raises(UnsupportedLayerError, match="gates of this recurrent layer"):
        ntkit.infinite_width(Started(nn.GRU)).program((2, 3))

    class Unturned(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn, self.head = nn.RNN(3, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.head(self.rnn(x)[0].mean(1))

    with pytest.raises(UnsupportedLayerError, match="batch_first"):
        ntkit.infinite_width(Unturned()).program((2, 3))
