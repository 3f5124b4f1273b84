"""What has no closed-form limit is refused before any computation, every place at once."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import UnsupportedLayerError


class Net(nn.Module):
    """Linear(4, 8), a body given as a function of the net and the hidden value, Linear(8, 2)."""

    def __init__(self, body, **layers):
        super().__init__()
        self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 2)
        for name, layer in layers.items():
            setattr(self, name, layer)
        self.body = body

    def forward(self, x):
        return self.head(self.body(self, self.fc(x)))


class Function(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.function = function

    def forward(self, x):
        return self.function(x)


def image_net(*layers):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *layers, nn.Flatten(), nn.LazyLinear(2))


def finish(net, *shape):
    net(torch.zeros(2, *shape))
    return net


CASES = {
    "max pool": (finish(image_net(nn.MaxPool2d(2)), 3, 32, 32), "2", "maximum"),
    "batch norm": (finish(image_net(nn.BatchNorm2d(8)).eval(), 3, 32, 32), "2", "batch"),
    "instance norm": (finish(image_net(nn.InstanceNorm2d(8)), 3, 32, 32), "2", "one channel"),
    "group norm of single channels": (finish(image_net(nn.GroupNorm(8, 8)), 3, 32, 32), "2", "one channel"),
    "depthwise": (finish(image_net(nn.Conv2d(8, 8, 3, groups=8)), 3, 32, 32), "2", "depthwise"),
    "raw groups": (
        finish(nn.Sequential(nn.Conv2d(4, 8, 3, groups=2), nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), 4, 32, 32),
        "0",
        "grouped convolution on raw",
    ),
    "trained prelu": (nn.Sequential(nn.Linear(4, 8), nn.PReLU(), nn.Linear(8, 2)), "1", "gradient stays random"),
    "attention": (Net(lambda n, h: n.attention(h[:, None], h[:, None], h[:, None])[0][:, 0],
                      attention=nn.MultiheadAttention(8, 2, batch_first=True)), "attention", "attention"),
    "softmax": (Net(lambda n, h: h.softmax(-1)), "forward", "softmax"),
    "recurrent": (Net(lambda n, h: n.rnn(h[:, None])[0][:, 0], rnn=nn.GRU(8, 8, batch_first=True)), "rnn", "recurrent"),
    "constant before activation": (Net(lambda n, h: torch.relu(h + 1.0)), "forward", "a constant is added"),
    "activation of activation": (Net(lambda n, h: torch.tanh(torch.relu(h))), "forward", "another activation"),
    "pooled activation": (
        finish(image_net(nn.AvgPool2d(2), nn.ReLU()), 3, 32, 32), "3", "another activation",
    ),
    "dependent sum": (Net(lambda n, h: h + torch.relu(h)), "forward", "depend on each other"),
    "dependent activations": (Net(lambda n, h: torch.sin(h) + torch.cos(h)), "forward", "depend on each other"),
    "dependent product": (Net(lambda n, h: h * torch.sigmoid(h)), "forward", "depend on each other"),
    "pooled plus itself": (
        finish(nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), Function(lambda x: x + x.mean(-1, keepdim=True)),
                             nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), 2, 32), "1", "depend on each other",
    ),
    "trained scale": (Net(lambda n, h: n.scale * h, scale=nn.Parameter(torch.ones(()))), "forward", "trained parameter"),
    "trained shift": (Net(lambda n, h: n.shift + h, shift=nn.Parameter(torch.ones(8))), "forward", "trained parameter"),
    "channel mask": (Net(lambda n, h: h * torch.arange(8.0)), "forward", "constant tensor"),
    "channel slice": (Net(lambda n, h: torch.cat([h[:, :4], h[:, 4:]], 1)), "forward", "part of the channels"),
    "channel mean": (Net(lambda n, h: h - h.mean(-1, keepdim=True)), "forward", "reduces the channels"),
    "batch mean": (Net(lambda n, h: h - h.mean(0)), "forward", "batch"),
    "computed weights": (Net(lambda n, h: F.linear(h, n.w * 2), w=nn.Parameter(torch.ones(8, 8))), "forward", "computed"),
    "matrix product": (Net(lambda n, h: h @ n.w, w=nn.Parameter(torch.ones(8, 8))), "forward", "matrix product"),
    "unknown operation": (Net(lambda n, h: torch.cumsum(h, -1)), "forward", "no rule"),
    "assignment": (Net(lambda n, h: _assign(h)), "forward", "part of the channels"),
    "in place": (Net(lambda n, h: n.mix(F.relu(h, inplace=True)) + h, mix=nn.Linear(8, 8)), "forward", "in place"),
    "in place on a view": (
        finish(nn.Sequential(nn.Conv1d(2, 8, 3), Function(lambda x: (x[:, :, 0].relu_(), x)[1]),
                             nn.Flatten(), nn.LazyLinear(2)), 2, 32), "1", "in place",
    ),
    "positions mixed": (
        nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.ReLU(), nn.Linear(32, 5), nn.Flatten(), nn.Linear(40, 2)),
        "2", "position axis",
    ),
    "trained norm of raw data": (nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)), "0", "raw"),
    "data-dependent control flow": (Net(lambda n, h: h if h.sum() > 0 else -h), "forward", "graph"),
    "no layer": (nn.Sequential(nn.ReLU()), "forward", "layers with weights"),
    "trained embedding": (nn.Sequential(nn.Linear(4, 8), nn.Flatten(), nn.Unflatten(1, (2, 4)), nn.Linear(4, 2)), "2", "reshape"),
}  # fmt: skip


def _assign(h):
    h[:, 0] = 0
    return h


@pytest.mark.parametrize("case", CASES)
def test_refused_with_place_reason_and_remedy(case):
    module, path, reason = CASES[case]
    with pytest.raises(UnsupportedLayerError) as raised:
        ntkit.infinite_width(module).ntk(torch.randn(2, 4))
    problem = raised.value.problems[0]
    assert problem.path == path
    assert reason in problem.reason
    assert problem.instead


def test_shared_weights():
    layer = nn.Linear(8, 8)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), layer, nn.ReLU(), layer)
    with pytest.raises(UnsupportedLayerError, match="called twice"):
        ntkit.infinite_width(net)


def test_tied_parameters():
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 8))
    net[4].weight = net[2].weight
    with pytest.raises(UnsupportedLayerError, match="'2' as well"):
        ntkit.infinite_width(net)


def test_all_problems_at_once():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 8, 3, padding=1),
        nn.PReLU(), nn.AdaptiveMaxPool2d(1), nn.Flatten(), nn.Linear(8, 4), nn.ReLU(), nn.Sigmoid(), nn.Softmax(1),
    )  # fmt: skip
    with pytest.raises(UnsupportedLayerError) as raised:
        ntkit.infinite_width(net)
    assert [problem.path for problem in raised.value.problems] == ["1", "3", "5", "6", "10", "11"]
    assert "6 places" in str(raised.value)
    assert all(problem.path in str(raised.value) for problem in raised.value.problems)


def test_error_survives_pickling():
    import pickle

    with pytest.raises(UnsupportedLayerError) as raised:
        ntkit.infinite_width(nn.Sequential(nn.Linear(4, 8), nn.PReLU(), nn.Linear(8, 1)))
    again = pickle.loads(pickle.dumps(raised.value))
    assert again.problems == raised.value.problems
    assert isinstance(again, NotImplementedError)


def test_sign_has_no_tangent_kernel_unless_frozen():
    class Sign(nn.Module):
        def forward(self, x):
            return torch.sign(x)

    net = nn.Sequential(nn.Linear(4, 8), Sign(), nn.Linear(8, 1))
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    limit = ntkit.infinite_width(net)
    assert torch.isfinite(limit.nngp(x)).all()
    with pytest.raises(UnsupportedLayerError, match=r"use limit\.nngp"):
        limit.ntk(x)
    net[0].requires_grad_(False)
    limit = ntkit.infinite_width(net)
    torch.testing.assert_close(limit.ntk(x), limit.nngp(x))


def test_code_that_only_proxies_run_is_not_read():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc, self.head = nn.Linear(4, 8), nn.Linear(8, 2)

        def forward(self, x):
            h = self.fc(x)
            if isinstance(h, torch.fx.Proxy):
                return self.head(torch.relu(h))
            return self.head(torch.relu(h) + 1)

    plain = Net(lambda net, h: torch.relu(h) + 1)
    x = torch.randn(3, 4, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    torch.testing.assert_close(ntkit.infinite_width(Hidden()).ntk(x), ntkit.infinite_width(plain).ntk(x))


def test_batch_statistics_of_raw_data():
    class Centred(nn.Module):
        def __init__(self):
            super().__init__()
            self.head = nn.Linear(4, 2)

        def forward(self, x):
            return self.head(x - x.mean(0))

    with pytest.raises(UnsupportedLayerError, match="mixes the inputs of a batch"):
        ntkit.infinite_width(Centred())


def test_raw_data_overwritten_and_read_again():
    class Hidden(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(4, 2)

        def forward(self, x):
            x.mul_(2)
            return self.fc(x)

    with pytest.raises(UnsupportedLayerError, match="in place"):
        ntkit.infinite_width(Hidden())
