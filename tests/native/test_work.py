"""What a tape computes, counted by hand."""

from __future__ import annotations

import pytest
import torch
from torch import nn

import ntkit
from ntkit._src.native import rectified_entries, rectified_operations, tape_of

WINDOW = 2  # additions of a window of three, of K and of Theta each


def _convolutions(stride: int) -> list[nn.Module]:
    first, second = nn.Conv1d(1, 4, 3, padding=1), nn.Conv1d(4, 4, 3, stride, padding=1)
    return [first, nn.ReLU(), second, nn.ReLU()]


class Shared(nn.Module):
    """A branch reads the layer too, so that the rectifier is an instruction of its own."""

    def __init__(self):
        super().__init__()
        self.first, self.branch, self.last = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 1)

    def forward(self, x):
        value = self.first(x)
        return self.last(value + self.branch(torch.relu(value)))


AVERAGE = [nn.AdaptiveAvgPool1d(1), nn.Flatten(), nn.Linear(4, 1)]

# Entries, and those among them that are computed from a window of three.
NETWORKS = {
    "vectors": (
        nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 4), nn.LeakyReLU(), nn.Linear(4, 1)),
        (3,),
        2,
        0,
    ),
    "a rectifier alone": (Shared(), (3,), 1, 0),
    "flatten": (nn.Sequential(*_convolutions(1), nn.Flatten(), nn.Linear(32, 1)), (1, 8), 8 + 8, 16),
    "average": (nn.Sequential(*_convolutions(1), *AVERAGE), (1, 8), 64 + 64, 128),
    # Of 64 entries of the first layer only those at even offsets: 8 + 2 (6 + 4 + 2).
    "strided": (nn.Sequential(*_convolutions(2), *AVERAGE), (1, 8), 32 + 16, 48),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_entries_and_operations_that_are_computed(name):
    net, shape, entries, windows = NETWORKS[name]
    program = ntkit.infinite_width(net).program(shape)
    for ntk, single, double in ((True, 39, 73), (False, 25, 41)):
        tape = tape_of(program, ntk=ntk)
        additions = (1 + ntk) * WINDOW * windows
        assert rectified_entries(tape) == entries
        assert rectified_operations(tape, single=True) == single * entries + additions
        assert rectified_operations(tape, single=False) == double * entries + additions
