"""The registry, and small rules of families that no other file is about."""

import pytest
import torch
from tests.cases import mlp
from tests.native.networks import network
from torch import nn

import ntkit
from ntkit._src.native import _core, families, tape_of
from ntkit._src.native._network import unsupported
from ntkit._src.native.families import ACTIVATIONS, FAMILIES, family_of
from ntkit._src.native.families._normalize import gain_factor
from ntkit._src.native.families._smooth import hermite_terms
from ntkit._src.program import Cos, Erf, Normalize, Pointwise, Product, Rectified, Step, Sum


def test_activations_are_told_apart_by_class():
    assert family_of(Pointwise(Erf())).function == _core.Function.ERF
    assert family_of(Pointwise(Cos())).function == _core.Function.COSINE
    assert family_of(Pointwise(Step(0.0))) is None
    assert family_of(Product()) is FAMILIES[Product]
    assert family_of(Sum((1.0,))) is FAMILIES[Sum]


def test_every_closed_form_of_the_core_has_a_class():
    functions = [
        family.function for family in ACTIVATIONS.values() if isinstance(family, families._smooth.SmoothFamily)
    ]
    assert sorted(functions) == list(_core.Function)


def test_signs_of_covariances():
    rectified = ACTIVATIONS[Rectified]
    for slopes, keeps in (((0.0, 1.0), False), ((0.1, 1.0), True), ((-1.0, 1.0), False), ((1.0, 1.0), True)):
        assert rectified.may_be_negative(Pointwise(Rectified(*slopes)), True) == keeps
        assert not rectified.may_be_negative(Pointwise(Rectified(*slopes)), False)


def test_gains_of_affine_parameters():
    norm = Normalize((), 1e-5, True, True, affine_axes=(1,))
    assert [gain_factor(norm, offset) for offset in ((0, 0), (3, 0), (0, 1), (2, -1))] == [1.0, 1.0, 0.0, 0.0]


def test_hermite_terms_of_a_cubic():
    """z^3 = He_3 + 3 q z for a variance q, z^2 = He_2 + q."""
    assert hermite_terms((5.0, 0.0, 2.0, 4.0)) == [
        5.0, 0.0, 2.0, 0.0,
        0.0, 0.0, 0.0, 12.0,
        0.0, 0.0, 2.0, 0.0,
        0.0, 0.0, 0.0, 4.0,
    ]  # fmt: skip


def test_a_trained_weight_without_variance_is_refused():
    limit = ntkit.infinite_width(mlp(3, 4, 1), w_std=0.0, init="standard")
    with pytest.raises(ntkit.errors.EngineError, match="a trained weight without variance"):
        tape_of(limit.program((3,)))


class Branches(nn.Module):
    """A normalisation with a trained gain, read by what is given."""

    def __init__(self, *readers):
        super().__init__()
        self.first, self.norm, self.readers = nn.Linear(3, 4), nn.LayerNorm(4), readers
        self.last = nn.ModuleList([nn.Linear(4, 1) for _ in readers])

    def forward(self, x):
        h = self.norm(self.first(x))
        return sum(last(reader(h)) for last, reader in zip(self.last, self.readers, strict=True))


@pytest.mark.parametrize(
    ("readers", "reason"),
    [
        ([torch.relu], None),
        ([torch.relu, torch.abs], None),
        ([torch.erf], None),
        ([torch.relu, torch.erf], None),
        ([torch.erf, torch.tanh], "a trained gain before tanh, which this engine computes by a series"),
        ([torch.relu, lambda h: h], "a trained gain before an activation and something else"),
        ([lambda h: h], None),
    ],
)
def test_trained_gains_before_activations(readers, reason):
    found = unsupported(network(Branches(*readers), 3).program)
    assert found is None if reason is None else reason in found


class Token(nn.Module):
    """A class token before the others."""

    def __init__(self):
        super().__init__()
        self.token, self.first, self.last = nn.Parameter(torch.zeros(1, 1, 4)), nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.cat([self.token.expand(len(x), -1, -1), self.first(x)], 1).mean(1))


class Parts(nn.Module):
    """Two fields side by side."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, 4), nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.relu(torch.cat([self.first(x), self.second(x)], 1)).mean(1))


class Graph(nn.Module):
    """Each input brings its adjacency."""

    def __init__(self):
        super().__init__()
        self.first, self.last = nn.Linear(3, 4), nn.Linear(4, 1)

    def forward(self, x):
        return self.last(torch.bmm(x[..., 3:], torch.relu(self.first(x[..., :3]))).mean(1))


@pytest.mark.parametrize(
    ("module", "shape", "reason"),
    [
        (Token(), (5, 3), None),
        (Parts(), (5, 3), None),
        (Graph(), (5, 8), None),
        (nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.LayerNorm(4), nn.Linear(4, 1)), (3,), "means of channels"),
    ],
)
def test_reasons(module, shape, reason):
    found = ntkit.infinite_width(module).explain(shape).reason
    if reason is None:
        assert found is None
    else:
        assert found == f"the native engine has no instruction for {reason}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_padding_on_one_side_alone(dtype):
    """A window of even length and "same" padding adds zeros at one end only."""
    first, second = nn.Conv1d(2, 8, 2, padding="same"), nn.Conv1d(8, 8, 2, padding="same")
    net = nn.Sequential(first, nn.ReLU(), second, nn.ReLU(), nn.Flatten(), nn.Linear(40, 1))
    x = torch.randn(4, 2, 5, dtype=dtype, generator=torch.Generator().manual_seed(0))
    x[1] = x[0] * (1 + 1e-6)  # nearly equal inputs read H, not K
    limit = ntkit.infinite_width(net, b_std=0.2)
    for native, reference in zip(limit.both(x, engine="native"), limit.both(x, engine="reference"), strict=True):
        torch.testing.assert_close(native, reference, rtol=1e-5 if dtype is torch.float32 else 1e-12, atol=0)
