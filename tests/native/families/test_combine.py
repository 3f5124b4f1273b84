"""Products of independent values: both engines against each other, and the tape."""

import pytest
import torch
from tests.cases import normal
from tests.native.networks import network
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.native import tape_of
from ntkit._src.native._core import Kind


class Gate(nn.Module):
    """first(x) * second(x), before what follows."""

    def __init__(self, first, second, *after):
        super().__init__()
        self.first, self.second, self.after = first, second, nn.Sequential(*after)

    def forward(self, x):
        return self.after(self.first(x) * self.second(x))


class Chunks(nn.Module):
    """A gated layer of one convolution, SiLU(u) * v."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv1d(2, 8, 3, padding=1), nn.Linear(4, 1)

    def forward(self, x):
        u, v = self.conv(x).chunk(2, 1)
        return self.last((F.silu(u) * v).mean(-1))


def conv(channels=2, padding_mode="zeros"):
    return nn.Conv1d(channels, 4, 3, padding=1, padding_mode=padding_mode)


def relu(**options):
    return nn.Sequential(conv(**options), nn.ReLU())


FLAT = (nn.Flatten(), nn.Linear(20, 1))
MEAN = (nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 1))
DEEP = (nn.Conv1d(4, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 4, 3), nn.GELU())

NETWORKS = {
    "last": ((2, 5), Gate(relu(), conv(), *FLAT)),
    "of Gaussians": ((2, 5), Gate(conv(), conv(), *MEAN)),
    "before activations": ((2, 5), Gate(relu(), conv(), *DEEP, nn.Flatten(), nn.Linear(12, 1))),
    "before activations, pooled": ((2, 5), Gate(relu(), conv(), *DEEP, *MEAN)),
    "of a pool": ((2, 5), Gate(relu(), nn.Sequential(conv(), nn.AvgPool1d(3, 1, 1)), *DEEP, *MEAN)),
    "circular": (
        (2, 5),
        Gate(relu(padding_mode="circular"), conv(padding_mode="circular"), conv(4, "circular"), nn.ReLU(), *MEAN),
    ),
    "beside a sum": ((2, 5), Gate(Gate(relu(), conv(), nn.Conv1d(4, 4, 1)), relu(), *DEEP, *MEAN)),
    "GLU": ((2, 5), nn.Sequential(nn.Conv1d(2, 8, 3, padding=1), nn.GLU(1), *DEEP, *MEAN)),
    "chunks": ((2, 5), Chunks()),
    "normalised": (
        (2, 5),
        Gate(nn.Sequential(conv(), nn.GroupNorm(1, 4)), conv(), conv(4), nn.GroupNorm(1, 4), nn.ReLU(), *MEAN),
    ),
    "vectors": (
        (6,),
        Gate(nn.Sequential(nn.Linear(6, 4), nn.ReLU()), nn.Linear(6, 4), nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1)),
    ),
    "GLU of vectors": ((6,), nn.Sequential(nn.Linear(6, 8), nn.GLU(), nn.Linear(4, 1))),
}  # fmt: skip


def inputs(shape):
    x = 0.7 * normal(7, *shape, seed=1)
    x[1], x[2], x[3], x[4] = x[0], 1.2 * x[0], -x[0], 0 * x[0]
    return x


@pytest.mark.parametrize("name", NETWORKS)
def test_as_the_reference_engine(name):
    shape, net = NETWORKS[name]
    limit = ntkit.infinite_width(net, 1.1, 0.2)
    assert limit.explain(shape).rows[0].engine == "native"
    x = inputs(shape)
    # The reference engine knows values after a product by K alone: of parallel ones a kink keeps the root of its rounding.
    for rows, columns, bound in ((x[5:], x, 1e-12), (x, None, 1e-7)):
        found, exact = (limit.both(rows, columns, engine=engine) for engine in ("native", "reference"))
        for one, two in zip(found, exact, strict=True):
            torch.testing.assert_close(one[:, :5], two[:, :5], rtol=0, atol=bound * float(two.abs().max()))
    torch.testing.assert_close(limit.ntk.diag(x), limit.ntk(x).diagonal(), rtol=1e-12, atol=1e-14)


def test_near_inputs_keep_their_difference():
    """H of a product is small where both H are, so a ReLU after it tells near inputs apart: K(x, x + d) falls like |d|."""
    shape, net = NETWORKS["before activations"]
    limit = ntkit.infinite_width(net, 1.1, 0.0)
    x = inputs(shape)
    one = limit.ntk(x[:1])
    falls = [float(1 - limit.ntk(x[:1], x[:1] + size * x[5:6]) / one) for size in (1e-5, 1e-6, 1e-7)]
    assert falls[0] > falls[1] > falls[2] > 0
    assert 5 < falls[0] / falls[1] < 20 and 5 < falls[1] / falls[2] < 20


def test_the_tape_copies_one_plane_and_multiplies_by_the_other():
    _, net = NETWORKS["last"]
    tape = tape_of(network(net, 2, 5).program)
    kinds = [step.kind for step in tape.instructions]
    at = kinds.index(Kind.MULTIPLY)
    assert kinds[at - 2 : at + 1] == [Kind.FILL, Kind.COMBINE, Kind.MULTIPLY]
    multiply = tape.instructions[at]
    assert multiply.covariance_in and multiply.covariance_out and multiply.theta_in and multiply.theta_out
    deep = tape_of(network(NETWORKS["before activations"][1], 2, 5).program)
    (step,) = [step for step in deep.instructions if step.kind == Kind.MULTIPLY]
    operation = deep.operations[step.operation]
    assert not step.covariance_out and operation.first_half_at > 0 and operation.second_half_at > 0
