"""Padding by hand is the padding of a convolution."""

from tests.cases import normal
from tests.trace.forms import Lambda, same_kernels
from torch import nn
from torch.nn import functional as F


def test_padding_by_hand():
    inside = nn.Sequential(
        nn.Conv2d(2, 8, 3, padding=(1, 2)), nn.ReLU(), nn.Conv2d(8, 8, 3, padding=1), nn.Flatten(), nn.Linear(192, 1)
    )
    outside = nn.Sequential(
        nn.ZeroPad2d((2, 2, 1, 1)), nn.Conv2d(2, 8, 3), nn.ReLU(), Lambda(lambda m, x: F.pad(x, (1, 1, 1, 1))),
        nn.Conv2d(8, 8, 3), nn.Flatten(), nn.Linear(192, 1),
    )  # fmt: skip
    same_kernels(inside, outside, normal(3, 2, 4, 4))
