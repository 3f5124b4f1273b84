"""Networks with further layers against values from an independent implementation."""

import pytest
import torch
from tests.kernels.golden_layers import assert_golden, golden
from torch import nn

import ntkit


def conv(before, after):
    return nn.Conv2d(before, after, 3, padding=1)


def head(features):
    return nn.Flatten(), nn.Linear(features, 1, bias=False)


def pooled(channels):
    return nn.AdaptiveAvgPool2d(1), *head(channels)


IMAGES = {
    "up_nearest": nn.Sequential(conv(2, 4), nn.ReLU(), nn.Upsample(size=12), conv(4, 4), nn.ReLU(), *head(576)),
    "up_bilinear_gap": nn.Sequential(
        conv(2, 4), nn.ReLU(), nn.Upsample(scale_factor=2, mode="bilinear"), conv(4, 4), nn.ReLU(), *pooled(4)
    ),
    "resize_down": nn.Sequential(
        conv(2, 4), nn.ReLU(), conv(4, 4), nn.ReLU(), nn.Upsample(size=(4, 3), mode="bilinear"), conv(4, 4), nn.ReLU(), *head(48)
    ),
    "transpose_k2s2": nn.Sequential(
        conv(2, 4), nn.ReLU(), nn.ConvTranspose2d(4, 5, 2, 2), nn.ReLU(), *head(720)
    ),
    "transpose_k3s2_gap": nn.Sequential(conv(2, 4), nn.ReLU(), nn.ConvTranspose2d(4, 5, 3, 2), nn.ReLU(), *pooled(5)),
}  # fmt: skip


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("name", IMAGES)
def test_images(name, which):
    arrays = golden(name)
    kernel = getattr(ntkit.infinite_width(IMAGES[name], b_std=0.1), which)
    assert_golden(kernel(arrays["x1"], arrays["x2"]), arrays[which])


class ConstantMap(nn.Module):
    def __init__(self, matrix):
        super().__init__()
        self.register_buffer("matrix", matrix)
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 1, bias=False)

    def forward(self, x):
        h = self.matrix @ torch.relu(self.first(x.transpose(1, 2)))
        return self.last(torch.relu(self.second(h)).mean(1))


class Graph(nn.Module):
    """Features and adjacency side by side: (n, nodes, 6 + nodes)."""

    def __init__(self):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 1, bias=False)

    def forward(self, x):
        features, adjacency = x[..., :6], x[..., 6:]
        h = torch.relu(self.first(adjacency @ features))
        return self.last(torch.relu(self.second(torch.bmm(adjacency, h))).mean(1))


class Gated(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.gate, self.value = nn.Linear(7, 8), nn.Linear(8, 8), nn.Linear(8, 8)
        self.second, self.last = nn.Linear(8, 8), nn.Linear(8, 1, bias=False)

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(torch.relu(self.gate(h)) * self.value(h))))


class Polynomial(nn.Module):
    def __init__(self, horner):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(7, 8), nn.Linear(8, 8), nn.Linear(8, 1, bias=False)
        self.horner = horner

    def forward(self, x):
        u = self.first(x)
        h = 0.3 + u * (-1 + u * (0.5 + 0.2 * u)) if self.horner else 0.3 - u + 0.5 * u**2 + 0.2 * u**3
        return self.last(torch.relu(self.second(h)))


def sides(name):
    arrays = golden(name)
    if name == "graph_sum":
        return [torch.cat([arrays[f"x{i}"].transpose(1, 2), arrays[f"a{i}"]], -1) for i in (1, 2)], arrays
    return [arrays["x1"], arrays["x2"]], arrays


POLYNOMIAL = {"first": {"w_std": 1.1, "b_std": 0.1}, "second": {"w_std": 0.8, "b_std": 0.1}}
OTHERS = {
    "constant_map": (lambda arrays: ConstantMap(arrays["p"]), {"b_std": 0.1}),
    "graph_sum": (lambda arrays: Graph(), {"b_std": 0.1}),
    "product_gated": (
        lambda arrays: Gated(), {"b_std": 0.1, "overrides": {"gate": {"b_std": 0.2}, "value": {"b_std": 0.3}}},
    ),
    "polynomial": (lambda arrays: Polynomial(horner=False), {"overrides": POLYNOMIAL}),
    "polynomial, Horner": (lambda arrays: Polynomial(horner=True), {"overrides": POLYNOMIAL}),
}  # fmt: skip


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("name", OTHERS)
def test_others(name, which):
    (x1, x2), arrays = sides(name.partition(",")[0])
    make, gains = OTHERS[name]
    assert_golden(getattr(ntkit.infinite_width(make(arrays), **gains), which)(x1, x2), arrays[which])
