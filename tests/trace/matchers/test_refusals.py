"""What has no closed-form limit is refused before any computation, every place at once."""

import pytest
import torch
from tests.cases import Function, mlp, normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.trace.matchers._refusals import refused_layers
from ntkit._src.trace.matchers._registry import _MODULES
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


def image_net(*layers):
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *layers, nn.Flatten(), nn.LazyLinear(2))


def finish(net, *shape):
    net(torch.zeros(2, *shape))
    return net


CASES = {
    "max pool": (finish(image_net(nn.MaxPool2d(2)), 3, 32, 32), "2", "maximum"),
    "batch norm": (finish(image_net(nn.BatchNorm2d(8)), 3, 32, 32), "2", "batch"),
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
    "dependent sum": (Net(lambda n, h: h + torch.sign(h)), "forward", "depend on each other"),
    "dependent product": (Net(lambda n, h: h * torch.sign(h)), "forward", "depend on each other"),
    "pooled plus itself": (
        finish(nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), Function(lambda x: x + x.mean(-1, keepdim=True)),
                             nn.ReLU(), nn.Flatten(), nn.LazyLinear(2)), 2, 32), "1", "depend on each other",
    ),
    "trained scale": (Net(lambda n, h: n.scale * h, scale=nn.Parameter(torch.ones(()))), "forward", "trained parameter"),
    "trained shift": (Net(lambda n, h: n.shift + h, shift=nn.Parameter(torch.ones(1))), "forward", "trained parameter"),
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


def test_tied_parameters():
    net = mlp(4, 8, 8, 8)
    net[4].weight = net[2].weight
    with pytest.raises(UnsupportedLayerError, match="also those of '2'"):
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


@pytest.mark.parametrize(
    "step", [lambda h: torch.heaviside(h, torch.zeros((), dtype=h.dtype)), lambda h: (h > 0).to(h.dtype)]
)
def test_step_of_a_trained_network_has_an_nngp_kernel_alone(step):
    """Torch cannot differentiate heaviside, so the replay of a trained network compares values alone."""
    limit = ntkit.infinite_width(Net(lambda net, h: step(h)), b_std=0.3)
    x = normal(3, 4)
    before = ntkit.infinite_width(nn.Linear(4, 8), b_std=0.3).nngp(x)
    scale = before.diagonal().sqrt()
    angle = torch.acos((before / scale / scale[:, None]).clamp(-1, 1))
    torch.testing.assert_close(limit.nngp(x), 2 * (0.5 - angle / (2 * torch.pi)) + 0.09, rtol=1e-7, atol=0)
    with pytest.raises(UnsupportedLayerError, match="a tangent kernel through it does not exist"):
        limit.ntk(x)


def test_sign_has_no_tangent_kernel_unless_frozen():
    class Sign(nn.Module):
        def forward(self, x):
            return torch.sign(x)

    net = nn.Sequential(nn.Linear(4, 8), Sign(), nn.Linear(8, 1))
    x = normal(3, 4)
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
    x = normal(3, 4)
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


class Token(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, 8), nn.Linear(8, 2)
        self.token = nn.Parameter(torch.zeros(1, 1, 8))

    def forward(self, x):
        h = torch.cat([self.token.expand(len(x), -1, -1), self.embed(x.flatten(2).transpose(1, 2))], 1)
        return self.head(torch.relu(h)[:, 0])


def problems(module):
    with pytest.raises(UnsupportedLayerError) as raised:
        ntkit.infinite_width(module)
    return raised.value.problems


def test_an_activation_of_a_class_token():
    with pytest.raises(UnsupportedLayerError, match="a parameter of zeros"):
        ntkit.infinite_width(Token()).ntk(torch.randn(2, 3, 4, 4))


def test_every_depthwise_convolution_and_what_follows():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(),
        nn.Conv2d(8, 8, 3, groups=8), nn.ReLU(), nn.AdaptiveAvgPool2d(5), nn.MaxPool2d(5), nn.Flatten(), nn.Linear(8, 2),
    )  # fmt: skip
    assert [problem.path for problem in problems(net)] == ["2", "4", "7"]


class ConvNeXtBlock(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.spread, self.norm = nn.Conv2d(width, width, 3, padding=1, groups=width), nn.LayerNorm(width)
        self.up, self.down, self.act = nn.Linear(width, 4 * width), nn.Linear(4 * width, width), nn.GELU()
        self.scale = nn.Parameter(1e-6 * torch.ones(width))

    def forward(self, x):
        h = self.norm(self.spread(x).permute(0, 2, 3, 1))
        return x + (self.scale * self.down(self.act(self.up(h)))).permute(0, 3, 1, 2)


def test_every_block_of_a_convnext():
    net = nn.Sequential(nn.Conv2d(3, 8, 4, 4), ConvNeXtBlock(8), ConvNeXtBlock(8), nn.AdaptiveAvgPool2d(1), nn.Flatten(),
                        nn.Linear(8, 2))  # fmt: skip
    found = [(problem.path, problem.what) for problem in problems(net)]
    assert found == [("1.spread", "Conv2d"), ("1", "mul"), ("2.spread", "Conv2d"), ("2", "mul")]


def test_one_complaint_about_attention():
    net = Net(lambda n, h: torch.relu(n.attention(h[:, None], h[:, None], h[:, None])[0][:, 0]),
              attention=nn.MultiheadAttention(8, 2, batch_first=True))  # fmt: skip
    assert [problem.path for problem in problems(net)] == ["attention"]


class PostActivation(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(width, width, 3, padding=1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.conv2(torch.relu(self.conv1(x))))


def test_a_residual_network_with_its_activation_after_the_sum():
    net = nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), PostActivation(8), PostActivation(8),
                        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 2))  # fmt: skip
    found = problems(net)
    assert [problem.path for problem in found] == ["2", "3"]
    assert all(
        "pre-activation" in problem.instead and "x + conv2(act(conv1(act(x))))" in problem.instead for problem in found
    )
    # A constant in place of the skip is another matter.
    (other,) = problems(Net(lambda n, h: torch.relu(h + 1.0)))
    assert "pre-activation" not in other.instead


def test_integers():
    net = nn.Sequential(nn.Embedding(10, 8), Function(lambda h: h.mean(1)), nn.Linear(8, 2))
    tokens = torch.randint(10, (3, 5), generator=torch.Generator().manual_seed(0))
    assert ntkit.monte_carlo(net.double(), 2).ntk(tokens).shape == (3, 3)
    real = nn.Sequential(nn.Linear(10, 8, bias=False), Function(lambda h: h.mean(1)), nn.Linear(8, 2))
    limit = ntkit.infinite_width(real, overrides={"0": {"w_std": 10**0.5}})
    torch.testing.assert_close(ntkit.infinite_width(net).ntk(tokens), limit.ntk(F.one_hot(tokens, 10).double()))
    with pytest.raises(TypeError, match="floating-point"):
        ntkit.infinite_width(nn.Linear(3, 1)).ntk(torch.ones(2, 3, dtype=torch.int64))


def test_an_image_without_a_batch():
    net = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8 * 36, 2))
    with pytest.raises(ntkit.errors.InputError, match=r"takes \(n, 3, 8, 8\).*x\[None\]"):
        ntkit.infinite_width(net).ntk(torch.randn(3, 8, 8))


def test_division_by_zero():
    with pytest.raises(UnsupportedLayerError, match="divides by zero"):
        ntkit.infinite_width(Net(lambda n, h: torch.relu(h / 0.0)))


@pytest.mark.parametrize("layer", [nn.GRU(5, 4, batch_first=True), nn.LSTM(5, 4, batch_first=True)])
def test_frozen_parameters_in_front_are_random_unless_said_otherwise(layer):
    class InFront(nn.Module):
        def __init__(self):
            super().__init__()
            self.front, self.head = layer.requires_grad_(False), nn.Linear(4, 2)

        def forward(self, x):
            h = self.front(x)
            return self.head(h[0][:, -1])

    net = InFront()
    x = normal(3, 2, 5)
    with pytest.raises(UnsupportedLayerError, match=r"frozen parameter is random(?s:.*)deterministic=\('front',\)"):
        ntkit.infinite_width(net).ntk(x)
    limit = ntkit.infinite_width(net, deterministic=("front",))
    h = layer.double()(x)
    features = h[0][:, -1]
    torch.testing.assert_close(limit.nngp(x), features @ features.T / 2)
    sampled = ntkit.monte_carlo(net, 3, deterministic=("front",), generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(sampled.ntk(x), limit.ntk(x))
    with pytest.raises(ntkit.errors.InputError, match="are trained"):
        ntkit.infinite_width(net, deterministic=("head",))
    with pytest.raises(ntkit.errors.InputError, match="does not have"):
        ntkit.infinite_width(net, deterministic=("nothing",))


def test_a_frozen_first_layer_is_drawn_unless_said_otherwise():
    net = mlp(4, 8, 2).double()
    net[0].requires_grad_(False)
    x = normal(3, 4)
    drawn = ntkit.infinite_width(net).nngp(x)
    fixed = ntkit.infinite_width(net, deterministic=("0",)).nngp(x)
    torch.nn.init.normal_(net[0].weight)
    assert torch.equal(ntkit.infinite_width(net).nngp(x), drawn)
    features = torch.relu(net[0](x))
    torch.testing.assert_close(
        ntkit.infinite_width(net, deterministic=("0",)).nngp(x), (features @ features.T / 4).detach()
    )
    assert not torch.allclose(fixed, drawn)


def test_an_override_of_a_bias_that_is_not_there():
    net = nn.Sequential(nn.Linear(4, 8, bias=False), nn.ReLU(), nn.Linear(8, 2))
    with pytest.raises(ntkit.errors.InputError, match=r"b_std of the layers \['0'\], which have no bias"):
        ntkit.infinite_width(net, overrides={"0": {"b_std": 0.1}})
    ntkit.infinite_width(net, overrides={"2": {"b_std": 0.1}, "0": {"w_std": 1.0}})


def test_every_layer_that_is_refused_is_in_the_table():
    shown = refused_layers()
    assert all(f"`{kind.__name__}`" in shown for kind, known in _MODULES.items() if known.matcher.refuses)
