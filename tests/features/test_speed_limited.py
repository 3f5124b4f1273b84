"""Speed Limited Optimization against the rule written out."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.cases import normal
from torch import Tensor, nn

import ntkit
from ntkit import features
from ntkit.errors import InputError, InputTypeError
from ntkit.features import SpeedLimited


def _net(seed: int = 0, bias: bool = True) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        layers = [
            nn.Linear(3, 6, bias=bias),
            nn.Tanh(),
            nn.Linear(6, 5, bias=bias),
            nn.Tanh(),
            nn.Linear(5, 1, bias=bias),
        ]
        return nn.Sequential(*layers).double()


X = normal(9, 3, seed=3)
Y = normal(9, 1, seed=4)
SPEEDS = {"0": 30.0, "2": 0.02, "4": 0.5}


def _loss(net: nn.Module) -> Tensor:
    return (net(X) - Y).square().mean()


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("eps", [0.1, 0.0])
def test_five_steps_follow_the_rule(momentum: float, eps: float) -> None:
    net, twin = _net(), _net()
    optimizer = SpeedLimited(net.named_parameters(), lr=0.01, speed=SPEEDS, eps=eps, momentum=momentum)
    velocity = {name: torch.zeros_like(p) for name, p in twin.named_parameters()}
    for _ in range(5):
        optimizer.zero_grad()
        _loss(net).backward()
        optimizer.step()
        gradients = torch.autograd.grad(_loss(twin), list(twin.parameters()))
        with torch.no_grad():
            for (name, parameter), g in zip(twin.named_parameters(), gradients, strict=True):
                velocity[name] = momentum * velocity[name] + g
                norm = float((velocity[name] ** 2).sum()) ** 0.5
                parameter -= 0.01 * SPEEDS[name[0]] * velocity[name] / (eps + norm)
        for a, b in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)


def test_adaptive_steps_follow_the_rule() -> None:
    net, twin = _net(bias=False), _net(bias=False)
    optimizer = SpeedLimited(net.named_parameters(), lr=0.05, eps=0.01)
    recorder = features.Recorder(net, X, every=2)
    adaptive = features.AdaptiveSpeed(optimizer, recorder, strength=20)
    chosen = set()
    for _ in range(5):
        optimizer.zero_grad()
        _loss(net).backward()
        adaptive.step()
        recorder.step()
        correlations = {path: found.uncentred for path, found in features.nfa(twin, X).items()}
        least = min(correlations, key=correlations.__getitem__)
        chosen.add(least)
        assert adaptive.layer == least
        gradients = torch.autograd.grad(_loss(twin), list(twin.parameters()))
        with torch.no_grad():
            for (name, parameter), g in zip(twin.named_parameters(), gradients, strict=True):
                speed = 20.0 if name[0] == least else 1 / 20
                parameter -= 0.05 * speed * g / (0.01 + g.norm())
        for a, b in zip(net.parameters(), twin.parameters(), strict=True):
            torch.testing.assert_close(a, b, rtol=0, atol=1e-12)
    assert chosen


def test_no_step_is_longer_than_the_limit() -> None:
    net = _net()
    optimizer = SpeedLimited(net.named_parameters(), lr=0.1, speed=SPEEDS, eps=0.05, momentum=0.95)
    for _ in range(20):
        before = copy.deepcopy(net.state_dict())
        optimizer.zero_grad()
        (100 * _loss(net)).backward()
        optimizer.step()
        for name, value in net.state_dict().items():
            assert float((value - before[name]).norm()) <= 0.1 * SPEEDS[name[0]] * (1 + 1e-12)


def test_biases_have_groups_of_their_own() -> None:
    net = _net()
    optimizer = SpeedLimited(net.named_parameters(), lr=0.1, speed={"0": 2.0, "0.bias": 7.0, "2": 3.0, "4": 4.0})
    found = {tuple(group["param_names"]): (group["layer"], group["speed"]) for group in optimizer.param_groups}
    assert found[("0.weight",)] == ("0", 2.0)
    assert found[("0.bias",)] == ("0", 7.0)
    assert found[("2.bias",)] == ("2", 3.0)
    assert len(found) == 6


def test_parametrised_layers_are_found_by_name() -> None:
    net = ntkit.parametrize_ntk(_net())
    optimizer = SpeedLimited(net.named_parameters(), lr=0.1, speed=SPEEDS)
    assert {group["layer"]: group["speed"] for group in optimizer.param_groups} == SPEEDS
    features.AdaptiveSpeed(optimizer, features.Recorder(net, X))


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_state_dict_continues_to_the_same_bits(momentum: float) -> None:
    def steps(net: nn.Module, optimizer: SpeedLimited, count: int) -> None:
        for _ in range(count):
            optimizer.zero_grad()
            _loss(net).backward()
            optimizer.step()

    settings = {"lr": 0.02, "speed": SPEEDS, "eps": 0.1, "momentum": momentum}
    net = _net()
    optimizer = SpeedLimited(net.named_parameters(), **settings)
    steps(net, optimizer, 3)
    saved = copy.deepcopy((net.state_dict(), optimizer.state_dict()))
    steps(net, optimizer, 4)
    other = _net(seed=5)
    again = SpeedLimited(other.named_parameters(), **{**settings, "lr": 9.0, "speed": 1.0})
    other.load_state_dict(saved[0])
    again.load_state_dict(saved[1])
    steps(other, again, 4)
    assert all(torch.equal(a, b) for a, b in zip(net.parameters(), other.parameters(), strict=True))


def test_closures_schedulers_and_more_groups() -> None:
    net, extra = _net(), torch.nn.Parameter(torch.ones(2, dtype=torch.float64))
    optimizer = SpeedLimited([{"params": net.parameters(), "speed": 2.0}], lr=0.1, eps=0.0)
    optimizer.add_param_group({"params": [extra], "speed": 3.0})
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)

    def closure() -> Tensor:
        optimizer.zero_grad()
        loss = _loss(net) + extra.sum()
        loss.backward()
        return loss

    before = extra.detach().clone()
    first = optimizer.step(closure)
    assert isinstance(first, Tensor) and float((extra.detach() - before).norm()) == pytest.approx(0.3)
    scheduler.step()
    before = extra.detach().clone()
    optimizer.step(closure)
    assert float((extra.detach() - before).norm()) == pytest.approx(0.15)


def test_zero_gradient_without_eps_moves_nothing() -> None:
    parameter = torch.nn.Parameter(torch.ones(3))
    parameter.grad = torch.zeros(3)
    unused = torch.nn.Parameter(torch.ones(3))
    SpeedLimited([parameter, unused], lr=1.0, eps=0.0).step()
    assert torch.equal(parameter, torch.ones(3)) and torch.equal(unused, torch.ones(3))


def test_gradients_beyond_the_range_of_their_squares() -> None:
    parameter = torch.nn.Parameter(torch.zeros(3))
    parameter.grad = torch.full((3,), 1e30)
    SpeedLimited([parameter], lr=1.0, eps=0.0).step()
    torch.testing.assert_close(parameter.detach(), torch.full((3,), -(3**-0.5)))


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_gradient_that_is_not_finite_is_named_and_nothing_moves(value: float) -> None:
    net = _net()
    optimizer = SpeedLimited(net.named_parameters(), lr=0.1, speed=SPEEDS, momentum=0.5)
    _loss(net).backward()
    net[2].weight.grad[0, 0] = value
    before = copy.deepcopy(net.state_dict())
    with pytest.raises(InputError, match="gradient of '2.weight' must be finite"):
        optimizer.step()
    assert all(torch.equal(value, before[name]) for name, value in net.state_dict().items())
    assert not optimizer.state


def test_unnamed_parameters_are_named_by_their_place() -> None:
    parameter = torch.nn.Parameter(torch.zeros(2))
    parameter.grad = torch.full((2,), float("nan"))
    with pytest.raises(InputError, match="parameter 0 of group 0"):
        SpeedLimited([parameter], lr=0.1).step()


def test_sparse_gradients_are_refused() -> None:
    layer = nn.Embedding(4, 2, sparse=True)
    layer(torch.tensor([1])).sum().backward()
    with pytest.raises(InputTypeError, match="dense gradients"):
        SpeedLimited(layer.parameters(), lr=0.1).step()


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"lr": -1.0}, InputError, "lr must be finite and not negative"),
        ({"lr": 0.1, "speed": -1.0}, InputError, "speed must be finite"),
        ({"lr": 0.1, "eps": -1.0}, InputError, "eps must be finite"),
        ({"lr": 0.1, "eps": float("nan")}, InputError, "eps must be finite"),
        ({"lr": 0.1, "momentum": 1.0}, InputError, "below 1"),
        ({"lr": "fast"}, InputTypeError, "lr must be a number"),
        ({"lr": 0.1, "speed": {"0": 1.0}}, InputError, "There is none for '2.weight'"),
        ({"lr": 0.1, "speed": {**SPEEDS, "7": 1.0}}, InputError, "Nothing is called '7'"),
        ({"lr": 0.1, "speed": {**SPEEDS, "0": -1.0}}, InputError, "speed must be finite"),
    ],
)
def test_bad_settings(settings: dict, error: type[Exception], message: str) -> None:
    with pytest.raises(error, match=message):
        SpeedLimited(_net().named_parameters(), **settings)


def test_speeds_by_layer_need_names() -> None:
    with pytest.raises(InputTypeError, match="named_parameters"):
        SpeedLimited(_net().parameters(), lr=0.1, speed=SPEEDS)
    with pytest.raises(InputTypeError, match="Got one tensor"):
        SpeedLimited(torch.ones(2), lr=0.1)
    optimizer = SpeedLimited(_net().named_parameters(), lr=0.1)
    with pytest.raises(InputError, match="not negative"):
        optimizer.add_param_group({"params": [torch.nn.Parameter(torch.ones(1))], "speed": -2.0})
