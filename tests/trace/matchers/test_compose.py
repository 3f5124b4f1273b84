"""Sums and products of functions of one value: one elementwise function."""

from dataclasses import replace

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.program import Pointwise, Polynomial, Rectified
from ntkit._src.trace import GainRule, Tracer
from ntkit.errors import UnsupportedLayerError


class Applied(nn.Module):
    def __init__(self, function):
        super().__init__()
        self.first, self.last, self.function = nn.Linear(3, 8), nn.Linear(8, 1), function

    def forward(self, x):
        return self.last(self.function(self.first(x)))


def activations(function):
    program = Tracer(Applied(function), GainRule()).program((3,))
    return [node.op.phi for node in program.nodes if isinstance(node.op, Pointwise)]


CLOSED = {
    "x**2 + x": (lambda u: u**2 + u, Polynomial((0.0, 1.0, 1.0))),
    "3 - x / 2 + x * x": (lambda u: (3 - u / 2) + u * u, Polynomial((3.0, -0.5, 1.0))),
    "Horner": (lambda u: u * (u * (2 * u + 1) - 1), Polynomial((0.0, -1.0, 1.0, 2.0))),
    "relu + x": (lambda u: torch.relu(u) + u, Rectified(1.0, 2.0)),
    "relu - abs": (lambda u: torch.relu(u) - 0.5 * u.abs(), Rectified(0.5, 0.5)),
}


@pytest.mark.parametrize("name", CLOSED)
def test_closed_forms_stay_closed(name):
    function, expected = CLOSED[name]
    (found,) = activations(function)[-1:]
    assert replace(found, label="") == expected


NUMERICAL = {
    "x sigmoid(x)": (lambda u: u * torch.sigmoid(u), F.silu, ()),
    "relu(x) relu(x)": (lambda u: torch.relu(u) * torch.relu(u), lambda u: torch.relu(u) ** 2, (0.0,)),
    "tanh + cubic": (lambda u: torch.tanh(u) + u**3 - 1, lambda u: torch.tanh(u) + u**3 - 1, ()),
    "sine times relu": (lambda u: torch.sin(u) * torch.relu(u), lambda u: torch.sin(u) * torch.relu(u), (0.0,)),
}


@pytest.mark.parametrize("name", NUMERICAL)
def test_equals_the_function_given_whole(name):
    written, whole, kinks = NUMERICAL[name]
    x = nn.functional.normalize(normal(4, 3))  # of one variance, since each one takes a table of its own
    found = ntkit.infinite_width(Applied(written), b_std=0.1).both(x)
    expected = ntkit.infinite_width(Applied(ntkit.Elementwise(whole, kinks)), b_std=0.1).both(x)
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def test_silu_written_out_by_blocks():
    """Each block of a concatenation has its own variance."""

    class Two(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.a, self.b, self.last, self.function = nn.Linear(3, 4), nn.Linear(3, 6), nn.Linear(10, 1), function

        def forward(self, x):
            return self.last(self.function(torch.cat([self.a(x), 2 * self.b(x)], -1)))

    x = normal(4, 3)
    found, expected = (
        ntkit.infinite_width(Two(function)).ntk(x) for function in (lambda u: u * torch.sigmoid(u), F.silu)
    )
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


REFUSED = {
    "an activation of an activation": lambda u: torch.relu(torch.tanh(u)) * u,
    "a jump": lambda u: torch.sign(u) * u,
}


@pytest.mark.parametrize("name", REFUSED)
def test_refusals(name):
    with pytest.raises(UnsupportedLayerError, match=r"not Gaussian|depend on each other"):
        ntkit.infinite_width(Applied(REFUSED[name]))


def test_positions_moved_in_between_are_refused():
    class Shifted(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv1d(1, 8, 3, padding=1), nn.Conv1d(8, 1, 1)

        def forward(self, x):
            u = self.first(x)
            return self.last(u * torch.relu(u).flip(-1))

    with pytest.raises(UnsupportedLayerError, match="depend on each other"):
        ntkit.infinite_width(Shifted())
