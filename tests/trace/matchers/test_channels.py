"""Parts of channels: independent where they share none, refused where they do."""

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit.errors import UnsupportedLayerError


class Parts(nn.Module):
    def __init__(self, function, width=12):
        super().__init__()
        self.first, self.function = nn.Linear(3, width), function
        self.last = nn.Linear(function(torch.zeros(1, width)).shape[-1], 1)

    def forward(self, x):
        return self.last(self.function(self.first(x)))


class Separate(nn.Module):
    """The same with a layer for each part."""

    def __init__(self, function, parts):
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(3, 6) for _ in range(parts)])
        self.function, self.last = function, nn.Linear(6, 1)

    def forward(self, x):
        return self.last(self.function(*(layer(x) for layer in self.layers)))


EQUAL = {
    "product": (lambda h: torch.relu(h.chunk(2, -1)[0]) * h.chunk(2, -1)[1], lambda a, b: torch.relu(a) * b, 2),
    "after the activation": (
        lambda h: torch.relu(h).chunk(2, -1)[0] + torch.relu(h).chunk(2, -1)[1],
        lambda a, b: torch.relu(a) + torch.relu(b), 2,
    ),
    "part of the activation and part of its input": (
        lambda h: torch.relu(h).chunk(2, -1)[0] * h.chunk(2, -1)[1], lambda a, b: torch.relu(a) * b, 2,
    ),
    "split": (
        lambda h: torch.relu(h.split([4, 4, 4], -1)[0]) * h.split(4, -1)[2] + torch.relu(h.split(4, -1)[1]),
        lambda a, b, c: torch.relu(a) * b + torch.relu(c), 3,
    ),
    "part of a part": (
        lambda h: torch.relu(h.chunk(2, -1)[0].chunk(2, -1)[1]) * h.chunk(4, -1)[0], lambda a, b: torch.relu(a) * b, 2,
    ),
    "gated": (F.glu, lambda a, b: a * torch.sigmoid(b), 2),
}  # fmt: skip


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("name", EQUAL)
def test_parts_are_layers_of_their_own(name, which):
    parts, separate, count = EQUAL[name]
    x = normal(4, 3)
    limits = (ntkit.infinite_width(net, b_std=0.2) for net in (Parts(parts), Separate(separate, count)))
    first, second = (getattr(limit, which)(x) for limit in limits)
    torch.testing.assert_close(first, second, rtol=1e-12, atol=1e-14)


def test_all_parts_together_are_the_whole():
    x = normal(4, 3)
    whole = ntkit.infinite_width(Parts(torch.relu)).ntk(x)
    for function in (
        lambda h: torch.relu(torch.cat(h.split([2, 7, 3], -1), -1)),
        lambda h: torch.relu(0.5 * (h + torch.cat(h.chunk(3, -1), -1))),
    ):
        torch.testing.assert_close(ntkit.infinite_width(Parts(function)).ntk(x), whole, rtol=1e-12, atol=1e-14)


def test_positions_in_parts():
    class Halves(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = nn.Conv1d(1, 8, 3, padding=1), nn.Conv1d(8, 1, 1)

        def forward(self, x):
            left, right = torch.relu(self.first(x)).chunk(2, -1)
            return self.last(right) if left.shape[-1] == 3 else left

    x = normal(2, 1, 6)
    net = Halves()
    found = ntkit.infinite_width(net).ntk.positions(x)
    plain = nn.Sequential(net.first, nn.ReLU(), net.last)
    torch.testing.assert_close(found, ntkit.infinite_width(plain).ntk.positions(x)[..., 3:, 3:], rtol=1e-14, atol=0)


REFUSED = {
    "overlapping parts": lambda h: torch.relu(h.split([4, 8], -1)[0]) * h.split([2, 4, 6], -1)[1],
    "the same part of a function and of its input": lambda h: torch.relu(h).chunk(2, -1)[0] * h.chunk(2, -1)[0],
    "reused": lambda h: h.chunk(2, -1)[0] * torch.relu(h.chunk(2, -1)[1]) * torch.relu(h).chunk(2, -1)[0],
}


@pytest.mark.parametrize("name", REFUSED)
def test_common_channels_are_refused(name):
    with pytest.raises(UnsupportedLayerError, match="depend on each other"):
        ntkit.infinite_width(Parts(REFUSED[name]))


def test_refusals_of_other_dimensions():
    class Gate(nn.Module):
        def __init__(self, function):
            super().__init__()
            self.first, self.function, self.last = nn.Conv1d(1, 8, 3, padding=1), function, nn.Conv1d(8, 1, 1)

        def forward(self, x):
            return self.last(self.function(self.first(x)))

    with pytest.raises(UnsupportedLayerError, match="gates positions"):
        ntkit.infinite_width(Gate(lambda h: F.glu(h, -1)))
    with pytest.raises(UnsupportedLayerError, match="pads with a constant"):
        ntkit.infinite_width(nn.Sequential(nn.Conv1d(1, 8, 3), nn.ConstantPad1d(1, 2.0), nn.Conv1d(8, 1, 3)))


def test_constant_padding_with_zero():
    x = normal(2, 1, 5)
    first, last = nn.Conv1d(1, 8, 3), nn.Conv1d(8, 1, 1)
    padded, zeros = (
        ntkit.infinite_width(nn.Sequential(first, nn.ReLU(), pad, last)).ntk.positions(x)
        for pad in (nn.ConstantPad1d((1, 2), 0.0), nn.ZeroPad1d((1, 2)))
    )
    assert torch.equal(padded, zeros)
