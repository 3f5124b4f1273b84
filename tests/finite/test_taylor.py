from __future__ import annotations

import copy
import math

import pytest
import torch
from tests.cases import Case, mlp, normal, seeded
from torch import nn
from torch.func import functional_call, jacrev
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

import ntkit
from ntkit._src.common import Elementary
from ntkit._src.finite._taylor import _derivatives
from ntkit.errors import InputError, InputTypeError


class Attention(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Linear(3, 4), nn.Linear(4, 2)
        self.block = nn.TransformerEncoderLayer(4, 2, 8, dropout=0.0, batch_first=True, activation="gelu")

    def forward(self, x):
        return self.head(self.block(self.embed(x)).mean(1))


def tied() -> nn.Module:
    net = mlp(3, 3, 3, activation=nn.Tanh)
    net[2].weight = net[0].weight
    return net


def frozen() -> nn.Module:
    net = mlp(3, 5, 2, activation=nn.Tanh)
    net[0].weight.requires_grad_(False)
    return net


def batch_norm() -> nn.Module:
    net = nn.Sequential(
        nn.Conv2d(2, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(16, 2)
    )
    net[1].running_mean.normal_(generator=torch.Generator().manual_seed(0))
    return net.eval()


CASES = {
    "layer norm": Case(lambda: nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Tanh(), nn.Linear(5, 2)), (3,)),
    "attention": Case(
        Attention,
        (
            5,
            3,
        ),
    ),
    "batch norm, max pool": Case(
        batch_norm,
        (
            2,
            6,
            6,
        ),
    ),
    "embedding": Case(lambda: nn.Sequential(nn.Embedding(7, 4), nn.Flatten(), nn.Linear(8, 2)), (2,), 7),
    "tied": Case(tied, (3,)),
    "frozen": Case(frozen, (3,)),
    "ntk": Case(lambda: ntkit.parametrize_ntk(mlp(3, 5, 2, activation=nn.GELU)), (3,)),
}


def case(name):
    return seeded(CASES[name].build), CASES[name].inputs(4)


def displace(module, size, seed=1):
    """Move every trained parameter along a fixed direction."""
    draws = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in module.parameters():
            if parameter.requires_grad:
                parameter.add_(size * torch.randn(parameter.shape, generator=draws, dtype=parameter.dtype))


@pytest.mark.parametrize("name", CASES)
def test_linearization_is_the_brute_force_one(name):
    net, x = case(name)
    linear = ntkit.linearize(net)
    torch.testing.assert_close(linear(x), net(x), rtol=1e-12, atol=1e-13)
    displace(linear, 0.7)
    origin = {n: p.detach() for n, p in net.named_parameters() if p.requires_grad}
    with sdpa_kernel(SDPBackend.MATH):  # the fused one has no batching rule, and warns
        jacobian = jacrev(lambda p: functional_call(net, p, (x,)))(origin)
    now = dict(linear.module.named_parameters())
    expected = net(x) + sum(
        torch.tensordot(jacobian[n], now[n] - origin[n], dims=now[n].ndim) for n in origin
    )  # fmt: skip
    torch.testing.assert_close(linear(x), expected, rtol=1e-12, atol=1e-12)
    weights = normal(*expected.shape, seed=5)
    (linear(x) * weights).sum().backward()
    for n in origin:
        gradient = torch.tensordot(weights, jacobian[n], dims=weights.ndim)
        torch.testing.assert_close(now[n].grad, gradient, rtol=1e-11, atol=1e-12)
    assert all(p.grad is None for n, p in now.items() if n not in origin)


@pytest.mark.parametrize("name", ["layer norm", "attention", "tied", "frozen", "ntk"])
def test_error_is_of_the_next_order(name):
    """Halving the distance divides the error by 2^(order + 1)."""
    for order in (1, 2, 3):
        errors = []
        for size in (2e-3, 1e-3):
            net, x = case(name)
            expanded, moved = ntkit.taylor(net, order), copy.deepcopy(net)
            displace(expanded, size)
            displace(moved, size)
            errors.append((expanded(x) - moved(x)).abs().max().item())
        assert abs(math.log2(errors[0] / errors[1]) - order - 1) < 0.3, (order, errors)


def test_a_polynomial_is_its_own_expansion():
    net = nn.Sequential(nn.Linear(2, 3), nn.Linear(3, 3), nn.Linear(3, 1)).double()
    expanded, x = ntkit.taylor(net, 3), normal(4, 2)
    displace(expanded, 1.0)
    torch.testing.assert_close(expanded(x), expanded.module(x), rtol=1e-12, atol=1e-12)


def test_state_copies_and_optimisers():
    net, x = case("frozen")
    linear, before = ntkit.linearize(net), [p.clone() for p in net.parameters()]
    optimizer = torch.optim.Adam(linear.parameters(), lr=0.1)
    for _ in range(20):
        optimizer.zero_grad()
        loss = (linear(x) - 1).square().sum()
        loss.backward()
        optimizer.step()
    assert loss < (net(x) - 1).square().sum() / 4
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), before, strict=True))
    clone, other = copy.deepcopy(linear), ntkit.linearize(case("frozen")[0])
    other.load_state_dict(linear.state_dict())
    assert torch.equal(clone(x), linear(x)) and torch.equal(other(x), linear(x))
    assert {name for name, p in linear.named_parameters() if not p.requires_grad} == {"module.0.weight"}


def test_mode_stays_that_of_the_expansion():
    net, x = case("batch norm, max pool")
    linear = ntkit.linearize(net)
    before = linear(x)
    linear.train()
    assert torch.equal(linear(x), before) and not linear.module.training
    assert torch.equal(linear.float().double()(x), linear(x))


FUNCTIONS = {
    "tanh": torch.tanh, "gelu": F.gelu, "gelu tanh": lambda x: F.gelu(x, approximate="tanh"), "silu": F.silu, "elu": F.elu,
    "softplus": F.softplus, "mish": F.mish, "sigmoid": torch.sigmoid, "erf": torch.erf, "sin": torch.sin,
    "softmax": lambda x: x.softmax(-1), "attention": lambda x: F.scaled_dot_product_attention(x, x, x),
    "conv": lambda x: F.conv1d(x[:, None], x[:1, :3][None]) ** 2, "linear": lambda x: F.linear(x, x) ** 2,
    "rms norm": lambda x: F.rms_norm(x, (5,)), "normalize": F.normalize, "std": lambda x: x.std(-1),
    "layer norm": lambda x: F.layer_norm(x, (5,), x[0], x[1]), "torch layer norm": lambda x: torch.layer_norm(x, (5,)),
    "group norm": lambda x: F.group_norm(torch.cat([x, x.exp()], 1), 2, x[0].repeat(2), x[1].repeat(2)),
    "instance norm": lambda x: F.instance_norm(x[:, None]), "glu": lambda x: F.glu(x[:, :4]),
    "batch norm": lambda x: F.batch_norm(x.exp(), x[0].detach(), x[1].detach().abs(), x[2], x[3]),
}  # fmt: skip

WRITTEN_OUT = {
    "layer norm": lambda x: standard(x) * x[0] + x[1],
    "torch layer norm": lambda x: standard(x),
    "group norm": lambda x: torch.cat([standard(x), standard(x.exp())], 1) * x[0].repeat(2) + x[1].repeat(2),
    "instance norm": lambda x: standard(x)[:, None],
}


def standard(x):
    centred = x - x.mean(-1, keepdim=True)
    return centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()


@pytest.mark.parametrize("name", FUNCTIONS)
def test_derivatives_forwards_are_those_backwards(name):
    """torch's own are wrong without an error for some normalisations, even backwards; so those are written out here."""
    function, oracle = FUNCTIONS[name], WRITTEN_OUT.get(name, FUNCTIONS[name])
    x, d = normal(4, 5), normal(4, 5, seed=1)
    with Elementary():
        forwards = _derivatives(lambda p: function(p["x"]), {"x": x}, {"x": d}, 4)
    weights = normal(*forwards[0].shape, seed=2)
    s = torch.zeros((), dtype=torch.float64, requires_grad=True)
    value = (oracle(x + s * d) * weights).sum()
    for order in range(5):
        torch.testing.assert_close((forwards[order] * weights).sum(), value.detach(), rtol=1e-8, atol=1e-10)
        if order < 4:
            (value,) = torch.autograd.grad(value, s, create_graph=True)


class Several(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 2)

    def forward(self, x):
        return self.layer(x), x


@pytest.mark.parametrize(
    ("act", "error", "message"),
    [
        (lambda: ntkit.taylor(nn.Linear(2, 1), 0), InputError, "at least 1"),
        (lambda: ntkit.taylor(nn.Linear(2, 1), 1.0), InputTypeError, "integer"),
        (lambda: ntkit.linearize(torch.sin), InputTypeError, "torch.nn.Module"),
        (lambda: ntkit.linearize(nn.Linear(2, 1).requires_grad_(False)), InputError, "requires_grad_"),
        (lambda: ntkit.linearize(nn.Sequential(nn.Linear(2, 1), nn.Dropout())), InputError, "module.eval()"),
        (lambda: ntkit.linearize(nn.Sequential(nn.Linear(2, 1), nn.BatchNorm1d(1))), InputError, "module.eval()"),
        (lambda: ntkit.linearize(Several())(torch.ones(2, 2)), InputError, "one tensor"),
    ],
)
def test_errors(act, error, message):
    with pytest.raises(error) as caught:
        act()
    assert message in str(caught.value)
