"""Axes that are dropped, added, moved and split: residual sums and concatenations where an axis has length one."""

import pytest
import torch
from tests.cases import Function, normal
from tests.native.networks import around, engines_agree, network, of_type, single_precision_errors
from torch import nn

import ntkit
from ntkit._src.native import _core, tape_of
from ntkit._src.native.families import FAMILIES
from ntkit._src.program import Arrange, Split


class Branch(nn.Module):
    """The input with a branch: their sum, or their channels side by side."""

    def __init__(self, *layers, channels=False):
        super().__init__()
        self.branch, self.channels = nn.Sequential(*layers), channels

    def forward(self, x):
        return torch.cat([x, self.branch(x)], 1) if self.channels else x + self.branch(x)


def conv(kernel=3):
    """A layer whose output has mean zero: sums of values that have not need the means of channels."""
    return [nn.LazyConv2d(4, kernel, padding=kernel // 2)]


CASES = {
    "a sum of rows": ((3, 1, 6), lambda: [Branch(*conv())]),
    "a sum of columns": ((3, 5, 1), lambda: [Branch(*conv())]),
    "a sum of pixels": ((3, 1, 1), lambda: [Branch(*conv())]),
    "channels of rows": ((3, 1, 6), lambda: [Branch(*conv(), channels=True)]),
    "channels of columns": ((3, 5, 1), lambda: [Branch(*conv(), channels=True)]),
    "a mean added to every position": ((3, 4, 3), lambda: [Branch(nn.AdaptiveAvgPool2d(1), *conv(1))]),
    "means of rows added": ((3, 4, 3), lambda: [Branch(Function(lambda x: x.mean(3, keepdim=True)), *conv(1))]),
    "means of columns added": ((3, 3, 4), lambda: [Branch(Function(lambda x: x.mean(2, keepdim=True)), *conv(1))]),
    "a sum after the mean": ((3, 3, 4), lambda: [nn.AdaptiveAvgPool2d(1), Branch(*conv(1))]),
    "a sum with the transpose": ((3, 4, 4), lambda: [Branch(Function(lambda x: x.transpose(2, 3)), *conv())]),
}


@pytest.mark.parametrize(("head", "b_std"), [("flatten", 0.3), ("average", 0.0)])
@pytest.mark.parametrize("name", CASES)
def test_as_the_reference_engine(name, head, b_std):
    shape, layers = CASES[name]
    engines_agree(around(layers(), head), shape, b_std)


@pytest.mark.parametrize("head", ["flatten", "average"])
@pytest.mark.parametrize("name", [name for name in CASES if "mean" not in name])
def test_single_precision(name, head):
    """Without means: pooling between layers has less digits of near copies, whatever follows it."""
    shape, layers = CASES[name]
    errors = single_precision_errors(around(layers(), head), shape, 0.2)
    assert errors.max() < 5e-6
    assert max(errors.diagonal(dim1=1, dim2=2).max(), errors[:, 0, 1].max()) < 1e-6


def test_three_axes_and_sequences():
    """Means over some of three axes, added back; a sequence of one token."""
    volume = nn.Sequential(
        nn.Conv3d(2, 4, 3, padding=1),
        nn.ReLU(),
        Branch(Function(lambda x: x.mean((2, 4), keepdim=True)), nn.Conv3d(4, 4, 1)),
        nn.Conv3d(4, 4, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    ).double()
    engines_agree(volume, (2, 2, 3, 2), 0.2)
    sequence = nn.Sequential(
        nn.Conv1d(2, 4, 1),
        nn.ReLU(),
        Branch(nn.Conv1d(4, 4, 1)),
        nn.Conv1d(4, 4, 1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(4, 1),
    ).double()
    engines_agree(sequence, (2, 1), 0.2)


def test_a_sequence_split_into_two_axes():
    net = nn.Sequential(
        nn.Conv1d(2, 4, 3, padding=1),
        nn.ReLU(),
        nn.Unflatten(2, (2, 3)),
        nn.Conv2d(4, 4, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    ).double()
    assert of_type(network(net, 2, 6), Split)
    engines_agree(net, (2, 6), 0.2)


@pytest.mark.parametrize(
    ("op", "offset", "positions", "source"),
    [
        (Arrange((1, 0), (4, 3), 2), (2, -1), (3, 4), (-1, 2)),
        (Arrange((1,), (4,), 2), (3,), (1, 4), (0, 3)),
        (Arrange((None, 0), (5, 4), 1), (-4, 3), (4,), (3,)),
        (Split(0, (2, 3)), (1, -2), (6,), (1,)),
        (Split(1, (2, 3)), (4, -1, 2), (5, 6), (4, -1)),
        (Split(0, (2, 3)), (1, 2, 7), (6, 8), (5, 7)),
    ],
)
def test_which_plane_is_read(op, offset, positions, source):
    assert list(FAMILIES[type(op)].sources(op, offset, positions)) == [source]


def test_how_far_the_input_moves():
    """Along the axes of the output; along new ones not at all."""
    net = nn.Sequential(
        nn.Conv2d(2, 4, 1),
        nn.ReLU(),
        Branch(Function(lambda x: x.mean(2, keepdim=True)), nn.Conv2d(4, 4, 1)),
        nn.Flatten(),
        nn.Linear(48, 1),
    )
    program = ntkit.infinite_width(net).program((2, 3, 4))
    (select,) = [op for op in tape_of(program).operations if isinstance(op, _core.Select)]
    assert select.in_size == [1, 1, 4] and select.out_size == [1, 3, 4]
    assert select.in_stride == [0, 0, 1] and select.axis == _core.NOTHING and select.index == []


def test_batches_do_not_change_results():
    net = around(CASES["a mean added to every position"][1](), "average")
    x = normal(11, 3, 4, 3)
    net(x)
    limit = ntkit.infinite_width(net)
    whole = limit.ntk(x, x.clone(), engine="native")
    for column in range(0, 11, 3):
        assert torch.equal(limit.ntk(x, x[column : column + 1], engine="native"), whole[:, column : column + 1])
