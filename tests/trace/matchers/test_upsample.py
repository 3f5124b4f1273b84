"""Interpolation: torch's own matrices, golden values, and what both tracers read."""

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit._src.program import ConstantMap, Reindex
from ntkit._src.trace import GainRule, Tracer
from ntkit.errors import InputError


class Interpolated(nn.Module):
    def __init__(self, ndim, branch=False, **options):
        super().__init__()
        conv = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[ndim - 1]
        self.first, self.last = conv(1, 6, 3, padding=1), conv(6, 1, 1)
        self.options, self.branch = options, branch

    def forward(self, x):
        h = torch.relu(self.first(x))
        if self.branch:
            assert isinstance(h, torch.Tensor)  # proxies are none, so this needs the exporter
        return self.last(F.interpolate(h, **self.options))


MODES = [
    (1, {"size": 7}),
    (1, {"scale_factor": 2.5, "mode": "linear"}),
    (1, {"size": 3, "mode": "linear", "align_corners": True}),
    (1, {"size": 9, "mode": "nearest-exact"}),
    (2, {"size": (3, 9)}),
    (2, {"scale_factor": 2, "mode": "bilinear"}),
    (2, {"size": (7, 3), "mode": "bilinear", "align_corners": True}),
    (2, {"scale_factor": (1.5, 2.0), "mode": "bilinear"}),
    (2, {"scale_factor": (1.5, 2.3), "mode": "bilinear", "recompute_scale_factor": True}),
    (2, {"size": (3, 3), "mode": "bilinear", "antialias": True}),
    (2, {"scale_factor": 1.7, "mode": "bicubic"}),
    (2, {"size": (3, 8), "mode": "bicubic", "align_corners": True}),
    (2, {"size": (3, 4), "mode": "area"}),
    (3, {"scale_factor": 2}),
    (3, {"size": (3, 2, 5), "mode": "trilinear"}),
]
SHAPES = {1: (1, 5), 2: (1, 4, 5), 3: (1, 2, 3, 2)}


@pytest.mark.parametrize(("ndim", "options"), MODES)
def test_kernel_between_positions_is_mapped_by_torch_itself(ndim, options):
    """K' = A K A^T with A applied by F.interpolate to either side of the covariance before it."""
    x = normal(2, *SHAPES[ndim])
    net = Interpolated(ndim, **options)
    before = ntkit.infinite_width(nn.Sequential(net.first, nn.ReLU()), b_std=0.2).nngp.positions(x)
    found = ntkit.infinite_width(net, b_std=0.2).nngp.positions(x)
    size = tuple(before.shape[2 : 2 + ndim])
    half = F.interpolate(before.reshape(-1, 1, *size), **options)
    new = half.shape[2:]
    half = half.reshape(4, *size, -1).movedim(-1, 1).reshape(-1, 1, *size)
    both = F.interpolate(half, **options).reshape(2, 2, *new, *new)
    both = both.permute(0, 1, *range(2 + ndim, 2 + 2 * ndim), *range(2, 2 + ndim))
    torch.testing.assert_close(found, 2 * both.to(found) + 0.04, rtol=1e-12, atol=1e-13)


def test_nearest_selects_and_linear_mixes():
    tracer = Tracer(Interpolated(1, size=7), GainRule())
    ops = [node.op for node in tracer.program((1, 5)).nodes]
    assert Reindex(0, (0, 0, 1, 2, 2, 3, 4), "nearest to 7") in ops
    ops = [node.op for node in Tracer(Interpolated(1, size=7, mode="linear"), GainRule()).program((1, 5)).nodes]
    assert any(isinstance(op, ConstantMap) and op.name == "linear to 7" for op in ops)
    assert ntkit.infinite_width(Interpolated(1, size=7)).explain((1, 5)).rows[3].entries_per_pair == 7


def test_same_size_is_no_operation():
    tracer = Tracer(Interpolated(2, size=(4, 5), mode="bilinear", align_corners=True), GainRule())
    assert not any(isinstance(node.op, (ConstantMap, Reindex)) for node in tracer.program((1, 4, 5)).nodes)


@pytest.mark.parametrize(("ndim", "options"), MODES)
def test_exported_graph_gives_the_same(ndim, options):
    x = normal(2, *SHAPES[ndim])
    net = Interpolated(ndim, **options)
    expected = ntkit.infinite_width(net, b_std=0.2).ntk(x)
    net.branch = True
    found = ntkit.infinite_width(net, b_std=0.2).ntk(x)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-14)


def test_modules_of_the_old_names():
    x = normal(2, 1, 3, 3)
    convs = nn.Conv2d(1, 6, 3, padding=1), nn.Conv2d(6, 1, 1)
    for old, new in (
        (nn.UpsamplingNearest2d(scale_factor=2), nn.Upsample(scale_factor=2)),
        (nn.UpsamplingBilinear2d(size=5), nn.Upsample(size=5, mode="bilinear", align_corners=True)),
    ):
        first, second = (
            ntkit.infinite_width(nn.Sequential(convs[0], nn.ReLU(), up, convs[1])).ntk.positions(x) for up in (old, new)
        )
        assert torch.equal(first, second)


def test_size_and_scale_factor_together():
    net = nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Upsample(size=4, scale_factor=2), nn.Conv1d(4, 1, 1))
    with pytest.raises(InputError, match=r"layer '2' \(Upsample\): .*only one of size or scale_factor"):
        ntkit.infinite_width(net).ntk(normal(2, 1, 5))
