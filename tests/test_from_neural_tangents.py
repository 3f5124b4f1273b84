"""The recipes of ``docs/from_neural_tangents.md``, against values of neural-tangents 0.6.5 in float64 and against formulas."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import NtkitError


def values(*shape, seed=0):
    """Return the inputs that neural-tangents was given."""
    k = torch.arange(math.prod(shape), dtype=torch.float64)
    return torch.sin(1.3 * k + 0.1 * k * k + seed).reshape(shape)


def near(found, expected):
    torch.testing.assert_close(found, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-11)


def gains(**layers):
    return {name.replace("_", "."): dict(zip(("w_std", "b_std"), own, strict=False)) for name, own in layers.items()}


class Aggregate(nn.Module):
    """Features of the nodes, then the adjacency: each row of the input holds a node's features and its arrows."""

    def __init__(self, channels, transposed=True):
        super().__init__()
        self.first, self.second = nn.Linear(channels, 8), nn.Linear(8, 8, bias=False)
        self.head, self.channels, self.transposed = nn.Linear(8, 1, bias=False), channels, transposed

    def forward(self, x):
        h, pattern = x[..., : self.channels], x[..., self.channels :]
        h = torch.relu(self.first(h))
        h = (pattern.transpose(1, 2) if self.transposed else pattern) @ h
        return self.head(torch.relu(self.second(h)).mean(1))


def test_aggregate_contracts_the_first_index_of_the_pattern():
    x1 = torch.cat([values(2, 4, 3), (values(2, 4, 4, seed=2) > 0).double()], -1)
    x2 = torch.cat([values(2, 4, 3, seed=1), (values(2, 4, 4, seed=3) > 0.2).double()], -1)
    own = gains(first=(1.2, 0.1), second=(1.5,), head=(1.0,))
    expected = [[1.257955973770, 0.593103673979], [0.655851582641, 0.509156068634]]
    near(ntkit.infinite_width(Aggregate(3), overrides=own).ntk(x1, x2), expected)
    other = ntkit.infinite_width(Aggregate(3, transposed=False), overrides=own).ntk(x1, x2)
    assert float((other - torch.tensor(expected)).abs().max()) > 0.05


class Sign(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second, self.head = nn.Linear(3, 8), nn.Linear(8, 8), nn.Linear(8, 1)

    def forward(self, x):
        return self.head(torch.sign(self.second(torch.relu(self.first(x)))))


def test_sign_has_the_tangent_kernel_of_what_comes_after_it():
    net, x1, x2 = Sign(), values(2, 3), values(2, 3, seed=1)
    own = gains(first=(1.1, 0.2), second=(1.3, 0.1), head=(1.2, 0.3))
    expected = [[0.672991945162, 0.939942909406], [0.225953295614, 0.725260667289]]
    near(ntkit.infinite_width(net, overrides=own).nngp(x1, x2), expected)
    with pytest.raises(NtkitError):
        ntkit.infinite_width(net, overrides=own).ntk(x1, x2)
    for layer in (net.first, net.second):
        layer.requires_grad_(False)
    near(ntkit.infinite_width(net, overrides=own).ntk(x1, x2), expected)


class Masked(nn.Module):
    """Sequences of any length up to the longest: the last channel of the input is 1 where there is a token."""

    def __init__(self, pool):
        super().__init__()
        self.first, self.second = nn.Conv1d(3, 8, 3, padding=1), nn.Conv1d(8, 8, 3, padding=1)
        self.head, self.pool = nn.Linear(48 if pool == "flatten" else 8, 1), pool

    def forward(self, x):
        h, mask = x[:, :-1], x[:, -1:]
        h = torch.relu(self.first(h * mask)) * mask
        h = torch.relu(self.second(h)) * (mask / mask.sum(2, keepdim=True) if self.pool == "mean" else mask)
        return self.head(h.flatten(1) if self.pool == "flatten" else h.sum(2))


MASKED = {
    "mean": [[0.209990590712, 0.195010650757], [0.185897741050, 0.253552789942]],
    "sum": [[2.409887088543, 3.710213015143], [3.176159338898, 7.316583698257]],
    "flatten": [[0.164034520310, 0.132667208159], [0.083814259594, 0.383494187102]],
}
LENGTHS = ((4, 6), (3, 5))


def padded():
    found = []
    for seed, lengths in enumerate(LENGTHS):
        tokens = values(2, 6, 3, seed=seed).transpose(1, 2)
        mask = (torch.arange(6) < torch.tensor(lengths)[:, None]).double()[:, None]
        found.append(torch.cat([torch.where(mask > 0, tokens, 1e3), mask], 1))  # what is hidden does not matter
    return found


@pytest.mark.parametrize("pool", MASKED)
def test_masks_are_an_input_channel(pool):
    own = gains(first=(1.2, 0.3), second=(1.1, 0.2), head=(1.0, 0.1))
    limit = ntkit.infinite_width(Masked(pool), overrides=own)
    near(limit.ntk(*padded()), MASKED[pool])


def test_masked_sequences_have_the_kernel_of_shorter_ones():
    """Between two sequences of one length, the kernel is that of the network on sequences of that length."""
    own = gains(first=(1.2, 0.3), second=(1.1, 0.2), head=(1.0, 0.1))
    x = values(3, 3, 4)
    long = torch.cat([F.pad(x, (0, 2)), F.pad(torch.ones(3, 1, 4, dtype=torch.float64), (0, 2))], 1)
    plain = torch.cat([x, torch.ones(3, 1, 4, dtype=torch.float64)], 1)
    limit = ntkit.infinite_width(Masked("mean"), overrides=own)
    torch.testing.assert_close(limit.ntk(long), limit.ntk(plain), rtol=1e-12, atol=1e-13)


class ConvLocal(nn.Module):
    """A convolution with its own weights at each position: one convolution per position."""

    def __init__(self, inputs, outputs, positions, kernel=3, stride=1, padding=0):
        super().__init__()
        self.convs = nn.ModuleList(nn.Conv1d(inputs, outputs, kernel) for _ in range(positions))
        self.kernel, self.stride, self.padding = kernel, stride, padding

    def forward(self, x):
        x = F.pad(x, (self.padding, self.padding))
        starts = [self.stride * i for i in range(len(self.convs))]
        parts = [conv(x[:, :, i : i + self.kernel]) for i, conv in zip(starts, self.convs, strict=True)]
        return torch.cat(parts, 2)


def local(layer, w_std, b_std):
    return {f"{layer}.convs.{i}": {"w_std": w_std, "b_std": b_std} for i in range(6)}


def test_local_convolutions_are_one_convolution_per_position():
    x1, x2 = (values(2, 6, 3, seed=seed).transpose(1, 2) for seed in (0, 1))
    net = nn.Sequential(
        ConvLocal(3, 8, 6, padding=1), nn.ReLU(), ConvLocal(8, 8, 6, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(48, 1)
    )  # fmt: skip
    own = {**local("0", 1.2, 0.3), **local("2", 1.1, 0.2), "5": {"w_std": 1.0, "b_std": 0.0}}
    expected = [[0.453802426751, 0.185954349906], [0.176207352597, 0.450457336106]]
    near(ntkit.infinite_width(net, overrides=own).ntk(x1, x2), expected)
    pooled = nn.Sequential(
        ConvLocal(3, 8, 2, stride=2), nn.ReLU(), nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(8, 1)
    )
    own = {f"0.convs.{i}": {"w_std": 1.2, "b_std": 0.3} for i in range(2)} | {"4": {"w_std": 1.0, "b_std": 0.0}}
    expected = [[0.368050352313, 0.152841904790], [0.134102339270, 0.395366075522]]
    near(ntkit.infinite_width(pooled, overrides=own).ntk(x1, x2), expected)


def test_a_kernel_as_input():
    """The rows are the positions of one input, and every layer acts at each position."""
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    x = values(5, 4)
    limit = ntkit.infinite_width(net, w_std=1.2, b_std=0.3)
    prior = limit.with_prior(x @ x.T / 4)
    torch.testing.assert_close(prior.nngp.positions(), limit.nngp(x), rtol=1e-12, atol=1e-13)
    torch.testing.assert_close(prior.ntk.positions(), limit.ntk(x), rtol=1e-12, atol=1e-13)


CONCAT = {
    "concat": (1.0, "softmax", "linear", False, [[0.233090096913, 0.164260823914], [0.301796993326, 0.993041696757]]),
    "six channels": (2.0, "softmax", "linear", False, [[0.187768119490, 0.148991942454], [0.277164923484, 0.912533769220]]),
    "values": (1.0, "softmax", "linear", True, [[0.252027790322, 0.217492998287], [0.290476440900, 0.655458170128]]),
    "sqrt": (1.0, "identity", "sqrt", False, [[4.551946199702, 1.234097089553], [1.575709632196, 7.458371330919]]),
}  # fmt: skip


@pytest.mark.parametrize(("ratio", "mechanism", "scaling", "read", "expected"), CONCAT.values(), ids=CONCAT)
def test_concatenated_positions_are_added_ones_with_other_gains(ratio, mechanism, scaling, read, expected):
    """Of c + p channels, c of the tokens: a = c / (c + p). The gains of queries and keys fall by sqrt(a), R grows by p / c."""
    a, tied = 1 / (1 + ratio), scaling == "linear"
    attention = ntkit.layers.SelfAttention(
        8,
        2,
        mechanism,
        scaling,
        tied=tied,
        positions=0.6**2 * ratio * torch.eye(4, dtype=torch.float64),
        position_values=read,
    )
    net = nn.Sequential(nn.Linear(3, 8), attention, nn.ReLU(), Mean(), nn.Linear(8, 1))
    # Tied queries and keys have one gain, whose square is the product of the two.
    query = {"query": math.sqrt(1.4 * 0.9 * a)} if tied else {"query": 1.4 * a**0.5, "key": 0.9 * a**0.5}
    own = {f"1.{name}": {"w_std": gain} for name, gain in query.items()}
    own |= {"1.value": {"w_std": 1.1 * (a**0.5 if read else 1)}, "1.out": {"w_std": 1.2, "b_std": 0.25}}
    own |= gains(**{"0": (1.2, 0.1), "4": (1.0, 0.0)})
    x1, x2 = (values(2, 6, 3, seed=seed)[:, :4] for seed in (0, 1))
    near(ntkit.infinite_width(net, overrides=own).ntk(x1, x2), expected)


class Mean(nn.Module):
    def forward(self, x):
        return x.mean(1)


NET = nn.Sequential(nn.Linear(3, 8), nn.ReLU(), nn.Linear(8, 1))
LIMIT = {"overrides": gains(**{"0": (1.2, 0.3), "2": (1.1, 0.2)})}
X, TEST, Y = values(5, 3), values(2, 3, seed=1), values(5, 2, seed=4)
TIME = 0.7 * 3.0 / Y.numel()  # learning_rate t / y.numel()
POSTERIORS = {
    "last layer": ({"mode": "last_layer", "noisy_targets": True, "t": TIME},
        [[-0.062365556365, -0.056435227204], [-0.053280626835, -0.045573059598]],
        [[0.504599917581, 0.215593736479], [0.215593736479, 0.282270946670]]),
    "last layer, to the end": ({"mode": "last_layer", "noisy_targets": True},
        [[-1.268790646965, -0.312042232766], [-0.753550967523, -0.151053633170]],
        [[0.292097372019, 0.042352954142], [0.042352954142, 0.038862569198]]),
    "Bayes": ({"mode": "nngp"},
        [[-1.268790646965, -0.312042232766], [-0.753550967523, -0.151053633170]],
        [[0.292097372019, 0.042352954142], [0.042352954142, 0.038862569198]]),
    "all layers": ({"mode": "ntk", "t": TIME},
        [[-0.124019988180, -0.058044324906], [-0.118269069876, -0.049107879813]],
        [[0.491533553975, 0.180758384435], [0.180758384435, 0.185738554596]]),
    "all layers, to the end": ({"mode": "ntk"},
        [[-1.015405569835, -0.226568446341], [-0.738093910340, -0.147455676243]],
        [[0.284375068541, 0.023679549870], [0.023679549870, 0.014211288622]]),
}  # fmt: skip


@pytest.mark.parametrize(("arguments", "mean", "covariance"), POSTERIORS.values(), ids=POSTERIORS)
def test_ensembles_with_a_ridge(arguments, mean, covariance):
    """``gradient_descent_mse_ensemble(kernel_fn, x, y, learning_rate=0.7, diag_reg=0.1)(t=3.0)``."""
    found = ntkit.posterior(ntkit.infinite_width(NET, **LIMIT), X, Y, TEST, ridge=0.1, **arguments)
    near(found.mean, mean)
    near(found.covariance, covariance)


def test_time_and_learning_rates():
    kernel = ntkit.infinite_width(NET, **LIMIT).ntk
    flow = ntkit.GradientFlow(kernel).fit(X, Y)
    near(flow.predict(TEST, TIME), [[-0.125510514848, -0.058716062491], [-0.119667843863, -0.049641014049]])
    rate = ntkit.max_learning_rate(kernel(X))
    assert math.isclose(rate * Y.numel(), 6.144167639496, rel_tol=1e-9)


def test_the_tangent_kernel_comes_first():
    """There ``kernel_fn(x1, x2, get)`` returns what ``get`` names, in its order, and in ``Kernel`` the NNGP comes first."""
    limit = ntkit.infinite_width(NET, **LIMIT)
    first, second = limit.both(X[:1], TEST[:1])
    near(second, [[0.305055104704]])
    near(first, [[0.449192452522]])
    both = limit.both(X[:1], TEST[:1])
    assert torch.equal(both.ntk, first) and torch.equal(both.nngp, second)
