"""Positions read from elsewhere: slices, nearest neighbours, flips, padding, zeros between (transposed convolutions)."""

import pytest
import torch
from tests.cases import Function, Residual, normal
from tests.native.networks import engines_agree, engines_agree_around, network, steps
from torch import nn

import ntkit
from ntkit._src.native._tapes import tape_between
from ntkit._src.native.families import FAMILIES
from ntkit._src.native.families._reindex import start_and_step
from ntkit._src.program import Reindex


@pytest.mark.parametrize(
    ("index", "size", "expected"),
    [
        ((0, 1, 2), 3, (0, 1)),
        ((1, 2), 3, (1, 1)),
        ((1, 3, 5), 6, (1, 2)),
        ((2,), 5, (2, 1)),
        ((-1, -1, 0, 1, 2), 3, (-2, 1)),  # zeros before
        ((0, 1, 2, -1), 3, (0, 1)),  # zeros behind
        ((-1, 0, 1, -1), 2, (-1, 1)),
        ((-1, 0, 2, -1), 3, (-2, 2)),
        ((-1, 0, 2, -1), 4, (-2, 2)),
        ((0, 1, -1), 3, None),  # a zero where the input has a value
        ((-1, 1, 2), 3, None),
        ((-1, 2, 4), 5, None),
        ((2, 1, 0), 3, None),  # a flip
        ((0, 0, 1), 3, None),  # a position twice
        ((0, 2, 3), 4, None),  # two steps
        ((0, -1, 1), 2, None),  # a gap
        ((-1, -1), 3, None),  # nothing at all
    ],
)
def test_positions_in_order_have_a_start_and_a_step(index, size, expected):
    assert start_and_step(Reindex(0, index), size) == expected
    if expected is not None:
        start, step = expected
        places = [start + step * q for q in range(len(index))]
        assert [p if 0 <= p < size else -1 for p in places] == list(index)


def transposed(*arguments, **options):
    return lambda: [nn.ConvTranspose2d(4, 4, *arguments, **options), nn.ReLU()]


CASES = {
    "nearest": ((3, 3, 4), lambda: [nn.Upsample(scale_factor=2)]),
    "nearest to any size": ((3, 4, 3), lambda: [nn.Upsample(size=(7, 5))]),
    "nearest down": ((3, 5, 7), lambda: [nn.Upsample(size=(2, 5))]),
    "nearest, exactly": ((3, 4, 5), lambda: [nn.Upsample(size=(3, 7), mode="nearest-exact")]),
    "a flip": ((3, 3, 4), lambda: [Function(lambda x: x.flip(3))]),
    "a sum with the flip": (
        (3, 3, 4),
        lambda: [Residual(Function(lambda x: x.flip(2, 3)), nn.LazyConv2d(4, 3, padding=1))],
    ),
    "reflection": ((3, 3, 4), lambda: [nn.ReflectionPad2d((2, 1, 1, 2))]),
    "reflecting convolution": ((3, 4, 3), lambda: [nn.LazyConv2d(4, 3, 2, 1, padding_mode="reflect"), nn.ReLU()]),
    "replication": ((3, 3, 4), lambda: [nn.ReplicationPad2d((2, 1, 1, 4))]),
    "replicating convolution": (
        (3, 3, 4),
        lambda: [nn.LazyConv2d(4, 3, padding=2, padding_mode="replicate"), nn.ReLU()],
    ),
    "circular padding": ((3, 3, 4), lambda: [nn.CircularPad2d((2, 1, 1, 3))]),
    "circular, then a circular convolution": (
        (3, 3, 4),
        lambda: [nn.CircularPad2d((2, 1, 1, 0)), nn.LazyConv2d(4, 3, padding=1, padding_mode="circular"), nn.ReLU()],
    ),
    "padding with numbers below zero": (
        (3, 4, 4),
        lambda: [Function(lambda x: nn.functional.pad(x, (-1, 2, 1, -2), mode="replicate"))],
    ),
    "transposed 2 / 2": ((3, 3, 4), transposed(2, 2)),
    "transposed 3 / 2, padded": ((3, 3, 2), transposed(3, 2, padding=1, output_padding=1)),
    "transposed 4 / 2": ((3, 2, 3), transposed(4, 2, padding=1)),
    "transposed 3 / 1": ((3, 4, 3), transposed(3, 1)),
    "transposed, dilated": ((3, 3, 2), transposed((3, 2), (2, 3), padding=(1, 2), dilation=2)),
    "transposed, then circular": (
        (3, 3, 2),
        lambda: [
            nn.ConvTranspose2d(4, 4, 3, 2),
            nn.ReLU(),
            nn.LazyConv2d(4, 3, padding=1, padding_mode="circular"),
            nn.ReLU(),
        ],
    ),
}


@pytest.mark.parametrize("head", ["flatten", "average"])
@pytest.mark.parametrize("name", CASES)
def test_between_convolutions(name, head):
    shape, layers = CASES[name]
    engines_agree_around(layers, head, shape)


def test_as_the_last_layer_and_along_one_axis_and_three():
    """Where no activation follows, planes hold K."""
    last = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.ConvTranspose2d(4, 4, 3, 2), nn.Flatten(), nn.LazyLinear(1))
    engines_agree(last.double(), (3, 5, 4), 0.2)
    sequence = nn.Sequential(
        nn.Conv1d(2, 4, 3),
        nn.ReLU(),
        nn.ConvTranspose1d(4, 4, 5, 3),
        nn.ReLU(),
        nn.ReflectionPad1d(2),
        nn.AvgPool1d(3, 2),
        nn.Conv1d(4, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
    engines_agree(sequence.double(), (2, 6), 0.2)
    volume = nn.Sequential(
        nn.Conv3d(2, 4, 2),
        nn.ReLU(),
        nn.Upsample(scale_factor=(1, 2, 2)),
        nn.Conv3d(4, 4, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
    engines_agree(volume.double(), (2, 3, 2, 3), 0.2)


def test_smooth_activations_and_normalisations_after():
    for layer in (nn.GELU(), nn.GroupNorm(1, 4)):
        net = nn.Sequential(
            nn.Conv2d(3, 4, 3, padding=1),
            nn.ReLU(),
            nn.ConvTranspose2d(4, 4, 3, 2),
            layer,
            nn.ReplicationPad2d(1),
            nn.Conv2d(4, 4, 3),
            nn.ReLU(),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(4, 1),
        )
        limit = ntkit.infinite_width(net.double(), b_std=0.3)
        x = normal(5, 3, 3, 2)
        for a, b in zip(limit.both(x, engine="native"), limit.both(x, engine="reference"), strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=0)


@pytest.mark.parametrize(
    ("index", "d", "expected"),
    [
        ((0, 0, 1, 1), 0, [0]),
        ((0, 0, 1, 1), 1, [0, 1]),
        ((0, 0, 1, 1), -3, [-1]),
        ((2, 1, 0), 2, [-2]),  # a flip turns offsets around
        ((1, 0, 1, 2, 1), 1, [-1, 1]),
        ((0, -1, 1, -1), 1, []),  # one of two neighbours is a zero
        ((0, -1, 1, -1), 2, [1]),
        ((2, 0, 1, 2, 0), 3, [-0, 0]),
    ],
)
def test_which_planes_are_read(index, d, expected):
    found = list(FAMILIES[Reindex].sources(Reindex(1, index), (5, d), (9, 3)))
    assert found == [(5, e) for e in sorted(set(expected))]


def test_instructions_of_zeros_between():
    """Of the plane of offset 1, which has no pair of values, H is half a variance everywhere: nothing is read."""
    net = nn.Sequential(
        nn.Conv1d(1, 4, 1),
        nn.ReLU(),
        nn.ConvTranspose1d(4, 4, 1, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
    found = [step for step in steps(tape_between(network(net, 1, 2), False)) if step.startswith("select")]
    assert found == [
        "select -> H-2",
        "select H-1 -> H-2",
        "select -> H-1",
        "select -> H0",
        "select H0 -> H0",
        "select -> H1",
        "select -> H2",
        "select H1 -> H2",
    ]
