"""Proxies of architectures against dense references."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from tests.cases import mlp
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.applications.search import condition_number, draw_kaiming, kernel_score, linear_regions, rank
from ntkit.errors import InputError, InputTypeError


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def convolutional() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(2, 6, 3, padding=1), nn.BatchNorm2d(6), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(24, 3)
    ).eval()


def images(n: int = 6) -> torch.Tensor:
    return torch.randn(n, 2, 4, 4, generator=generator(1))


@pytest.mark.parametrize("parameters", ["weights", "all"])
def test_condition_number_equals_the_dense_kernel(parameters):
    x = images()
    found = condition_number(convolutional(), x, repeats=2, parameters=parameters, generator=generator())
    net = convolutional().double()
    draws, expected = generator(), []
    names = [name for name, _ in net.named_parameters()]
    for _ in range(2):
        draw_kaiming(net, draws)
        rows = []
        for value in net(x.double()).sum(1):
            gradients = torch.autograd.grad(value, list(net.parameters()), retain_graph=True)
            kept = [g.flatten() for n, g in zip(names, gradients, strict=True) if parameters == "all" or "weight" in n]
            rows.append(torch.cat(kept))
        jacobian = torch.stack(rows)
        expected.append(float(torch.linalg.cond(jacobian @ jacobian.T)))
    assert found.draws == pytest.approx(expected, rel=1e-6) and found.value == pytest.approx(np.median(expected))
    assert found.draws[0] != found.draws[1] and "regular" in found.status


def test_singular_kernels_are_infinite_never_negative():
    x = images()
    found = condition_number(convolutional(), x[[0, 1, 0]], generator=generator())
    assert found.value == math.inf and "below rounding in 3 of 3" in found.status
    linear = nn.Sequential(nn.Flatten(), nn.Linear(32, 1))
    assert condition_number(linear, images(40)).value == math.inf  # 32 weights, 40 inputs
    assert math.isfinite(condition_number(linear, images(20)).value)


def test_the_module_and_its_generator_are_left_alone():
    net = convolutional().train()
    before = [p.clone() for p in net.parameters()]
    state = torch.get_rng_state()
    condition_number(net, images(), generator=generator())
    assert torch.equal(state, torch.get_rng_state()) and net.training
    assert all(torch.equal(a, b) for a, b in zip(before, net.parameters(), strict=True))


class Functional(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(2, 5), nn.Linear(5, 4)

    def forward(self, x):
        return torch.relu(self.second(F.leaky_relu(self.first(x), 0.1))).sum(1, keepdim=True)


@pytest.mark.parametrize("inplace", [False, True])
def test_regions_are_distinct_patterns(inplace):
    torch.manual_seed(0)
    x = torch.randn(300, 2)
    net = nn.Sequential(nn.Linear(2, 5), nn.ReLU(inplace), nn.Linear(5, 4), nn.PReLU())
    hidden = net[0](x)
    both = torch.cat([hidden > 0, net[2](hidden.clamp_min(0)) > 0], 1)
    assert linear_regions(net, x).count == len(torch.unique(both, dim=0)) < 300
    functional = Functional()
    hidden = functional.first(x)
    both = torch.cat([hidden > 0, functional.second(F.leaky_relu(hidden, 0.1)) > 0], 1)
    found = linear_regions(functional, x)
    assert found.count == len(torch.unique(both, dim=0)) and not found.saturated


def test_saturated_regions_are_said():
    found = linear_regions(convolutional(), images(50))
    assert found.count == 50 and found.saturated and found.status.startswith("Saturated")


@pytest.mark.parametrize("kernel", ["ntk", "nngp"])
def test_kernel_score_is_kernel_regression(kernel):
    x = torch.randn(60, 4, dtype=torch.float64, generator=generator(2))
    y = 3 + (x[:, 0] * x[:, 1] > 0).long()
    net = mlp(4, 8, 2)
    score = kernel_score(net, x, y, kernel, ridge=1e-3, validation=0.25, generator=generator(3))
    order = torch.randperm(60, generator=generator(3))
    held, train = order[:15], order[15:]
    limit = ntkit.infinite_width(net)
    function = limit.ntk if kernel == "ntk" else limit.nngp
    gram = function(x[train])
    shifted = gram + 1e-3 * gram.diagonal().mean() * torch.eye(45, dtype=torch.float64)
    signs = function(x[held], x[train]) @ torch.linalg.solve(shifted, 2 * y[train].double() - 7)
    accuracy = float(((signs > 0).long() + 3 == y[held]).double().mean())
    assert score.accuracy == accuracy and score.kernel == "exact" and (score.train, score.validation) == (45, 15)


def test_networks_without_a_limit_are_sampled():
    x = images(30)
    y = (x.mean((1, 2, 3)) > 0).long()
    score = kernel_score(convolutional(), x, y, ridge=0.1, n_samples=2, generator=generator())
    draws = generator()
    order = torch.randperm(30, generator=draws)
    held, train = order[:15], order[15:]
    kernel = ntkit.monte_carlo(convolutional(), 2, generator=draws).ntk
    weights = ntkit.solve(kernel(x[train]), 2.0 * y[train] - 1, ridge=0.1).value
    right = (kernel(x[held], x[train]) @ weights > 0).long() == y[held]
    assert score.kernel == "Monte Carlo" and score.accuracy == pytest.approx(float(right.double().mean()))


def test_rank_adds_ranks():
    torch.manual_seed(0)
    x, patches = torch.randn(5, 2), torch.randn(200, 2)
    nets = {str(w): mlp(2, w, 2) for w in (3, 8, 40)}
    calls: list[tuple[int, int]] = []
    found = rank(nets, x, patches, generator=generator(), progress=lambda *done: calls.append(done))
    assert calls[-1] == (3, 3)
    by_name = {one.name: one for one in found}
    for name, net in nets.items():
        assert by_name[name].regions == linear_regions(net, patches)
        better = sum(one.condition.value < by_name[name].condition.value for one in found)
        more = sum(one.regions.count > by_name[name].regions.count for one in found)
        assert by_name[name].score == better + more + 2
    assert [one.score for one in found] == sorted(one.score for one in found)


X, NET = torch.randn(8, 3), mlp(3, 4, 2)
BAD = [
    (lambda: condition_number(NET, X[:1]), InputError, "at least two inputs"),
    (lambda: condition_number(NET, X, repeats=0), InputError, "repeats"),
    (lambda: condition_number(NET, X, parameters="biases"), InputError, "parameters"),
    (lambda: condition_number(NET, X * math.nan), InputError, "finite"),
    (lambda: linear_regions(nn.Sequential(nn.Linear(3, 2), nn.Tanh()), X), InputError, "must have ReLU units"),
    (lambda: kernel_score(NET, X, torch.zeros(8)), InputError, "at least two classes"),
    (lambda: kernel_score(NET, X, torch.zeros(7)), InputError, "shape"),
    (lambda: kernel_score(NET, X, torch.arange(8), validation=0.0), InputError, "validation must be"),
    (lambda: kernel_score(NET, X, torch.arange(8), "rbf"), InputError, "kernel must be"),
    (lambda: kernel_score(NET, X, torch.arange(8), validation=0.9), InputError, "all of one class"),
    (lambda: rank([NET], X), InputError, "at least two"),
    (lambda: rank(NET, X), InputTypeError, "mapping or a sequence"),
    (lambda: rank([NET, NET], X, small={"a": NET, "b": NET}), InputError, "names of modules"),
]


@pytest.mark.parametrize(("act", "error", "message"), BAD)
def test_bad_input(act, error, message):
    with pytest.raises(error, match=message):
        act()
