"""Batch norm in evaluation mode: which statistics and affine parameters have a limit, and why the others have none."""

import pytest
import torch
from torch import nn

import ntkit
from ntkit.errors import UnsupportedLayerError


def _net(change=lambda norm: None):
    net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 1)).eval()
    change(net[1])
    return net


CASES = {
    "training": (lambda norm: norm.train(), "couple each input with the rest of the batch"),
    "no statistics": (lambda norm: norm.__dict__.update(running_mean=None, running_var=None), "couple each input"),
    "trained elsewhere": (lambda norm: norm.weight.data.fill_(2.0), "its weight is trained from values other than 1"),
    "means of channels": (lambda norm: norm.running_mean.normal_(), "statistics differ between channels"),
    "variances of channels": (lambda norm: norm.running_var.uniform_(1, 2), "statistics differ between channels"),
}


@pytest.mark.parametrize("case", CASES)
def test_refused(case):
    change, reason = CASES[case]
    if case == "no statistics":
        net = nn.Sequential(nn.Linear(3, 8), nn.BatchNorm1d(8, track_running_stats=False), nn.Linear(8, 1)).eval()
    else:
        net = _net(change)
    with pytest.raises(UnsupportedLayerError, match=reason) as raised:
        ntkit.infinite_width(net)
    assert raised.value.problems[0].path == "1"


def test_frozen_values_and_images():
    """A frozen weight of two doubles the values; channels may have positions."""
    x = torch.randn(2, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

    def frozen(norm):
        norm.requires_grad_(False).weight.fill_(2.0)

    doubled, plain = (ntkit.infinite_width(_net(change)).nngp(x) for change in (frozen, lambda norm: None))
    torch.testing.assert_close(doubled, 4 * plain)
    net = nn.Sequential(
        nn.Conv2d(2, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 1)
    )
    assert ntkit.infinite_width(net.eval()).ntk(torch.randn(2, 2, 5, 5)).shape == (2, 2)
