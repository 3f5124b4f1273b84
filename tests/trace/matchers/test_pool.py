"""Averages over positions written in different ways have the same kernel."""

from functools import partial

import pytest
import torch
from tests.cases import normal
from tests.trace.forms import IMAGES, Lambda, same_kernels
from torch import nn
from torch.nn import functional as F

import ntkit


@pytest.mark.parametrize(
    "head",
    [
        lambda m, h: m.fc(h.mean((2, 3))),
        lambda m, h: m.fc(h.mean(dim=[-2, -1], keepdim=True).flatten(1)),
        lambda m, h: m.fc(F.adaptive_avg_pool2d(h, 1).view(h.size(0), -1)),
        lambda m, h: m.fc(F.adaptive_avg_pool2d(h, (1, 1)).squeeze(-1).squeeze(-1)),
        lambda m, h: m.fc(F.avg_pool2d(h, 2).reshape(h.shape[0], h.shape[1])),
        lambda m, h: m.fc(h.flatten(2).mean(-1)),
        lambda m, h: m.fc(h.permute(0, 2, 3, 1).reshape(len(h) if False else h.size(0), -1, 8).mean(1)),
        lambda m, h: m.fc(h.sum((2, 3)) / 4),
        lambda m, h: m.fc(h.movedim(1, -1)).mean((1, 2)),
        lambda m, h: m.fc(torch.transpose(h.flatten(2), 1, 2)).mean(1),
    ],
)
def test_forms_of_global_average_pooling(head):
    net = Lambda(
        lambda m, x: head(m, F.relu(m.b(F.avg_pool2d(F.relu(m.a(x)), (2, 2))))),
        a=nn.Conv2d(2, 8, 3, padding=1), b=nn.Conv2d(8, 8, 3, padding=1), fc=nn.Linear(8, 1),
    )  # fmt: skip
    same_kernels(net, IMAGES, normal(3, 2, 4, 4))


def test_adaptive_pooling_to_any_size():
    net = nn.Sequential(nn.Conv1d(1, 8, 3), nn.ReLU(), nn.AdaptiveAvgPool1d(4), nn.Flatten(), nn.Linear(32, 1))
    windows = [(0, 2), (1, 4), (3, 6), (5, 7)]  # of 7 positions, as PyTorch has them
    x = normal(3, 1, 9)
    limit = ntkit.infinite_width(net)

    # A linear head on the windows' means is the mean of the kernels of networks that read one window each.
    def read(m, x, a, b):
        return m.fc(F.relu(m.conv(x))[:, :, a:b].mean(-1))

    layers = {"conv": nn.Conv1d(1, 8, 3), "fc": nn.Linear(8, 1)}
    single = [ntkit.infinite_width(Lambda(partial(read, a=a, b=b), **layers)).nngp(x) for a, b in windows]
    torch.testing.assert_close(limit.nngp(x), sum(single) / 4)
    assert limit.ntk(normal(2, 1, 10)).shape == (2, 2)
