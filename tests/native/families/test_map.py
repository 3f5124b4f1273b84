"""Matrices along positions: interpolation, uneven pooling, frozen filters."""

import pytest
import torch
from tests.cases import normal
from tests.native.networks import engines_agree, engines_agree_around, network, of_type
from torch import nn

import ntkit
from ntkit._src.native._network import single_precision, unsupported
from ntkit._src.native.families import family_of
from ntkit._src.native.families._map import rows_of
from ntkit._src.program import AdaptiveAvgPool, ConstantMap


class Frozen(nn.Module):
    """A fixed matrix along the rows or along the columns of an image."""

    def __init__(self, matrix, equation):
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.equation = equation

    def forward(self, x):
        return torch.einsum(self.equation, self.matrix, x)


ROWS, COLUMNS = "qh,nchw->ncqw", "qw,nchw->nchq"
SECOND_DIFFERENCES = 2 * torch.eye(4) - torch.diag(torch.ones(3), 1) - torch.diag(torch.ones(3), -1)

CASES = {
    "bilinear": ((3, 3, 4), lambda: [nn.Upsample(scale_factor=2, mode="bilinear")]),
    "bilinear between corners": ((3, 4, 3), lambda: [nn.Upsample(size=(6, 5), mode="bilinear", align_corners=True)]),
    "bilinear down": ((3, 6, 5), lambda: [nn.Upsample(size=(3, 4), mode="bilinear")]),
    "bicubic": ((3, 4, 3), lambda: [nn.Upsample(size=(5, 6), mode="bicubic")]),
    "uneven windows": ((3, 5, 7), lambda: [nn.AdaptiveAvgPool2d((3, 4))]),
    "wide uneven windows": ((3, 13, 3), lambda: [nn.AdaptiveAvgPool2d((2, 2))]),
    "a positive matrix": ((3, 4, 3), lambda: [Frozen(normal(5, 4, seed=7).abs(), ROWS)]),
    "a matrix": ((3, 4, 3), lambda: [Frozen(normal(3, 4, seed=8), ROWS)]),
    "a matrix along columns": ((3, 3, 6), lambda: [Frozen(normal(4, 6, seed=9), COLUMNS)]),
    "second differences": ((3, 3, 4), lambda: [Frozen(SECOND_DIFFERENCES, COLUMNS)]),
    "rows of zeros": ((3, 3, 4), lambda: [Frozen(torch.tensor([[0.0, 0, 0], [1, 2, 0], [0, 0, 0], [0, 1, 1]]), ROWS)]),
    "then circular": (
        (3, 4, 3),
        lambda: [
            nn.AdaptiveAvgPool2d((3, 3)),
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


def test_as_the_last_layer_and_on_sequences():
    """Where no activation follows, planes hold K; three axes; one."""
    last = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), nn.Flatten(), nn.LazyLinear(1)
    )
    engines_agree(last.double(), (3, 5, 4), 0.2)
    volume = nn.Sequential(
        nn.Conv3d(2, 4, 2),
        nn.ReLU(),
        nn.Upsample(size=(2, 3, 3), mode="trilinear"),
        nn.Conv3d(4, 4, 2),
        nn.ReLU(),
        nn.AdaptiveAvgPool3d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
    engines_agree(volume.double(), (2, 3, 3, 2), 0.2)
    sequence = nn.Sequential(
        nn.Conv1d(2, 4, 3),
        nn.ReLU(),
        nn.Upsample(size=7, mode="linear"),
        nn.Conv1d(4, 4, 3),
        nn.ReLU(),
        nn.AdaptiveAvgPool1d(3),
        nn.Flatten(),
        nn.LazyLinear(4),
        nn.ReLU(),
        nn.Linear(4, 1),
    )
    engines_agree(sequence.double(), (2, 6), 0.2)


def test_rows_of_a_matrix():
    rows = rows_of(AdaptiveAvgPool(0, 3), 5)
    assert rows.first == [0, 1, 3] and rows.last == [2, 4, 5] and rows.longest == 3
    assert rows.totals == [1.0, 1.0, 1.0] and not rows.signed and rows.columns == 5
    zeros = rows_of(ConstantMap.of(0, torch.tensor([[0.0, 0.0], [1e-12, -3e-12]]), "matrix"), 2)
    assert zeros.first == [0, 0] and zeros.last == [0, 2] and zeros.signed
    assert zeros.totals[0] == 0 and zeros.totals[1] == pytest.approx(-2e-12, rel=1e-14)


def test_which_planes_are_read():
    """Rows q and q + d of interpolation read positions about d / 2 apart."""
    op = ConstantMap.of(1, torch.tensor([[1.0, 0, 0], [0.5, 0.5, 0], [0, 1, 0], [0, 0.5, 0.5], [0, 0, 1]]), "linear")
    family = family_of(op)
    assert [e for _, e in family.sources(op, (3, 0), (9, 3))] == [-1, 0, 1]
    assert [e for _, e in family.sources(op, (3, 2), (9, 3))] == [0, 1, 2]
    assert [e for _, e in family.sources(op, (3, -4), (9, 3))] == [-2]
    nothing = ConstantMap.of(0, torch.zeros(2, 3), "matrix")
    assert list(family.sources(nothing, (0,), (3,))) == [(0,)] and not list(family.sources(nothing, (1,), (3,)))


def test_weights_of_both_signs_make_covariances_negative():
    """After a rectifier they are not, unless an interpolation subtracts; all are computed in double precision."""
    for mode, negative in (("bilinear", False), ("bicubic", True)):
        found = network(_net(nn.Upsample(scale_factor=2, mode=mode)), 3, 4, 4)
        assert of_type(found, ConstantMap) and unsupported(found.program) is None
        assert not single_precision(found.program)
        assert found.negative[of_type(found, ConstantMap)[-1]] == negative


def test_long_rows_stay_with_the_reference_engine():
    """Along one of several axes: dense matrices of more than 64 positions. Along the only one, they are whole maps."""
    for size, reason in (
        (64, None),
        (65, "a matrix of 65 x 65 positions with long rows along one of several axes"),
    ):
        found = unsupported(network(_net(Frozen(torch.ones(size, size), ROWS)), 3, size, 1).program)
        assert found is None if reason is None else reason in found
    explained = ntkit.infinite_width(_net(Frozen(torch.ones(65, 65), ROWS))).explain((3, 65, 1))
    assert explained.reason is not None and reason in explained.reason and reason in str(explained).splitlines()[-1]


def _net(layer):
    return nn.Sequential(
        nn.Conv2d(3, 4, 1),
        nn.ReLU(),
        layer,
        nn.Conv2d(4, 4, 1),
        nn.ReLU(),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(4, 1),
    )
