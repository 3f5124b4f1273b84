"""Sums, multiples, products and concatenations, by hand and against finite networks."""

import pytest
import torch
from tests.cases import Function, normal
from tests.rules.families import Signals, Vectors, step_of
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.program import Concat, Product, Sum
from ntkit._src.rules._covariance import Covariance, Moments


class TestMultipleOfTrainedLayerNorm(Vectors):
    """A number times a norm with trained weight and bias, before an activation: what is carried of both is scaled."""

    gains = {"b_std": 0.4}

    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), nn.LayerNorm(width), Function(lambda x: -0.6 * x), nn.ReLU(), nn.Linear(width, 1)
        )


class TestDifferenceOfTrainedLayerNorms(Vectors):
    """A sum of two such norms, read by a linear layer."""

    def module(self, width):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.head = nn.Linear(4, width), nn.Linear(4, width), nn.Linear(width, 1)
                self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])

            def forward(self, x):
                return self.head(2 * self.norms[0](self.first(x)) - 0.5 * self.norms[1](self.second(x)))

        return Net()


class Block(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, width)

    def forward(self, x):
        return 0.5 * x - self.second(torch.relu(self.first(F.relu(x)))) / 2**0.5


class TestResidual(Vectors):
    gains = {"b_std": 0.3}

    def module(self, width):
        return nn.Sequential(nn.Linear(4, width), Block(width), Block(width), nn.ReLU(), nn.Linear(width, 2))


class Branches(nn.Module):
    """Two ReLU branches added, whose means are not zero, and a constant."""

    def __init__(self, width):
        super().__init__()
        self.a, self.b, self.head = nn.Linear(4, width), nn.Linear(4, width), nn.Linear(width, 2)

    def forward(self, x):
        return self.head(torch.relu(self.a(x)) - 2 * torch.abs(self.b(x)) + 0.7)


class TestSumOfActivations(Vectors):
    def module(self, width):
        return Branches(width)


class Gate(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.conv, self.gate, self.mix = (
            nn.Conv1d(2, width, 3, padding=1),
            nn.Linear(width, width),
            nn.Conv1d(width, width, 3),
        )
        self.head = nn.Linear(width, 2)

    def forward(self, x):
        h = F.relu(self.conv(x))
        gate = torch.erf(self.gate(h.mean(-1)))
        h = torch.relu(self.mix(h)) * gate[:, :, None]
        return self.head(h.mean(-1))


class TestProduct(Signals):
    """Squeeze and excitation: a product with a gate that is the same at every position."""

    def module(self, width):
        return Gate(width)


class Dense(nn.Module):
    def __init__(self, width):
        super().__init__()
        joined = width + width // 2
        self.a, self.b = nn.Conv1d(2, width, 3, padding=1), nn.Conv1d(width, width // 2, 3, padding=1)
        self.norm = nn.GroupNorm(1, joined)
        self.c, self.tail = nn.Conv1d(joined, width, 1), nn.Linear(joined, width // 2)
        self.head = nn.Linear(12 * width + width // 2, 2)

    def forward(self, x):
        a = self.a(x)
        joined = torch.cat([a, 2 * self.b(F.relu(a))], 1)
        c = F.relu(self.c(F.relu(self.norm(joined))))
        tail = torch.relu(self.tail(joined.mean(-1)))
        return self.head(torch.cat([c.flatten(1), tail, a.flatten(1)], dim=1))


class TestConcatenation(Signals):
    """Blocks of different variance, normalised together, activated, and joined with flattened and vector parts."""

    width = 32

    def module(self, width):
        return Dense(width)


def test_multiples_before_and_after_an_activation_by_hand():
    """The kernel of -0.6 relu(2 u) from that of relu(u), which is homogeneous: both kernels scale by 1.44."""
    x = normal(5, 4)
    plain = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1, bias=False))
    scaled = nn.Sequential(
        nn.Linear(4, 8), Function(lambda x: 2 * x), nn.ReLU(), Function(lambda x: -0.6 * x), nn.Linear(8, 1, bias=False)
    )
    a, b = (ntkit.infinite_width(net, b_std=0.4).both(x) for net in (plain, scaled))
    torch.testing.assert_close(b.nngp, 1.44 * a.nngp, rtol=1e-13, atol=0)
    torch.testing.assert_close(b.ntk, 1.44 * a.ntk, rtol=1e-13, atol=0)


def _covariance(seed, ntk=True):
    return Covariance(normal(3, 2, seed=seed), normal(3, 2, seed=seed + 50) if ntk else None, ())


class _Ends:
    """The means of two channels' ends; None where they are centred."""

    def __init__(self, means):
        self.given = means

    def means(self, index, keeps):
        return self.given[index]


def _combined(op, inputs, ends=None):
    step = step_of(op, len(inputs))
    return step.rule.covariance(step, inputs, (), ends or _Ends([None] * len(inputs)))


def _mean(op, known):
    step = step_of(op, 2)
    return step.rule.mean(step, known)


@pytest.mark.parametrize("centred", [(), (1,), (0, 1, 2)])
def test_sum_by_hand(centred):
    """K' = sum c^2 K + sum over i != j of c_i c_j m_i m_j', with three terms of which some have no mean."""
    terms = tuple(_covariance(seed, ntk=seed != 1) for seed in range(3))
    coefficients = (1.0, -2.0, 0.5)
    means = [None if i in centred else (normal(3, 1, seed=i + 7), normal(1, 2, seed=i + 17)) for i in range(3)]
    found = _combined(Sum(coefficients), terms, _Ends(means))
    nngp, ntk = torch.zeros(3, 2, dtype=torch.float64), torch.zeros(3, 2, dtype=torch.float64)
    for i, c in enumerate(coefficients):
        nngp += c**2 * terms[i].nngp
        ntk += 0 if terms[i].ntk is None else c**2 * terms[i].ntk
        for j, d in enumerate(coefficients):
            if i != j and means[i] is not None and means[j] is not None:
                nngp += c * d * means[i][0] * means[j][1]
    torch.testing.assert_close(found.nngp, nngp, rtol=1e-13, atol=1e-13)
    torch.testing.assert_close(found.ntk, ntk, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("trained", [(True, True), (True, False), (False, True), (False, False)])
def test_product_and_concatenation_by_hand(trained):
    first, second = _covariance(0, trained[0]), _covariance(1, trained[1])
    zero = torch.zeros(3, 2, dtype=torch.float64)
    t1, t2 = (zero if c.ntk is None else c.ntk for c in (first, second))
    found = _combined(Product(), (first, second))
    torch.testing.assert_close(found.nngp, first.nngp * second.nngp, rtol=0, atol=0)
    both = _combined(Concat((0.25, 0.75)), (first, second))
    torch.testing.assert_close(both.nngp, 0.25 * first.nngp + 0.75 * second.nngp, rtol=1e-14, atol=0)
    if not any(trained):
        assert found.ntk is None and both.ntk is None
    else:
        torch.testing.assert_close(found.ntk, t1 * second.nngp + first.nngp * t2, rtol=1e-14, atol=0)
        torch.testing.assert_close(both.ntk, 0.25 * t1 + 0.75 * t2, rtol=1e-14, atol=0)


def test_means_by_hand():
    a, b = normal(3, seed=1), normal(3, seed=2)
    moments = Moments({}, {}, {0: a, 1: b})
    torch.testing.assert_close(_mean(Product(), moments), a * b)
    torch.testing.assert_close(_mean(Sum((2.0, -1.0)), moments), 2 * a - b)
    torch.testing.assert_close(_mean(Concat((0.25, 0.75)), moments), 0.25 * a + 0.75 * b)
    one = Moments({}, {}, {1: b})
    assert _mean(Product(), one) is None and _mean(Product(), Moments({}, {}, {0: a})) is None
    torch.testing.assert_close(_mean(Sum((2.0, -1.0)), one), -b)
    assert _mean(Sum((2.0, -1.0)), Moments({}, {}, {})) is None
