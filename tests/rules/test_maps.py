"""Conformance of layers that move or mix positions, and of small layers: rules against finite networks and each other."""

import torch
from tests.cases import normal
from tests.rules.families import Images, Signals, Vectors
from torch import nn
from torch.nn import functional as F

from ntkit import infinite_width
from ntkit._src.testing._finite import sampled_kernels
from ntkit._src.trace import GainRule


class TestNearest(Images):
    gains = {"b_std": 0.2}

    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Upsample(scale_factor=2), nn.Conv2d(width, width, 3), nn.ReLU(),
            nn.Flatten(), nn.Linear(36 * width, 1),
        )  # fmt: skip


class TestBicubic(Signals):
    n_samples = 120

    def inputs(self):
        return normal(4, 2, 3, 4)

    def module(self, width):
        return nn.Sequential(
            nn.Conv2d(2, width, 3, padding=1), nn.ReLU(), nn.Upsample(size=(2, 5), mode="bicubic"),
            nn.Conv2d(width, width, 1), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(width, 1),
        )  # fmt: skip


class TestTransposed(Signals):
    gains = {"b_std": 0.3}

    def module(self, width):
        return nn.Sequential(
            nn.Conv1d(2, width, 3), nn.ReLU(), nn.ConvTranspose1d(width, 2 * width, 3, 2, 1, 1), nn.ReLU(),
            nn.Flatten(), nn.Linear(16 * width, 1),
        )  # fmt: skip


class TestTransposedTorchInit(Signals):
    """PyTorch takes the fan from the output channels, so the ratio of the widths counts.

    Without biases, whose variances would depend on the width.
    """

    gains = {"init": "torch"}

    def module(self, width):
        options = {"bias": False}
        return nn.Sequential(
            nn.Conv1d(2, width, 3, **options), nn.ReLU(),
            nn.ConvTranspose1d(width, 3 * width, 4, 2, dilation=2, groups=2, **options), nn.ReLU(),
            nn.AvgPool1d(13), nn.Flatten(), nn.Linear(3 * width, 1, **options),
        )  # fmt: skip

    def test_monte_carlo(self):
        """Theta grows with the width in this parametrisation, so two widths cannot be extrapolated: one is compared."""
        net = self.module(64)
        x1, x2 = self.inputs()[:2], self.inputs()[1:]
        ntk, nngp = sampled_kernels(net, x1, x2, GainRule(init="torch"), 200, torch.Generator().manual_seed(0))
        limit = infinite_width(net, init="torch")
        for exact, estimate in ((limit.nngp(x1, x2), nngp), (limit.ntk(x1, x2), ntk)):
            assert ((exact - estimate.mean).abs() < 4 * estimate.error + exact.abs().max() / 64).all()


class Mixed(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(3, width), nn.Linear(width, width), nn.Linear(width, 1)
        self.register_buffer("matrix", normal(4, 5, seed=3).float())

    def forward(self, x):
        h = torch.relu(self.first(x))
        return self.last(torch.relu(self.second(torch.einsum("ij,bjc->bic", self.matrix, h))).mean(1))


class TestConstantMatrix(Signals):
    gains = {"b_std": 0.2}

    def inputs(self):
        return normal(4, 5, 3)

    def module(self, width):
        return Mixed(width)


class Graph(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.first, self.second, self.last = nn.Linear(2, width), nn.Linear(width, width), nn.Linear(width, 1)

    def forward(self, x):
        features, adjacency = x[..., :2], x[..., 2:]
        h = torch.relu(self.first(features))
        h = torch.relu(self.second(adjacency @ h + h))
        return self.last(h.mean(1))


class TestGraph(Signals):
    gains = {"b_std": 0.2}

    def inputs(self):
        return normal(4, 3, 5)

    def module(self, width):
        class Net(Graph):
            def forward(self, x):
                features, adjacency = x[..., :2], x[..., 2:] + torch.eye(3, dtype=x.dtype)
                h = torch.relu(self.first(features))
                return self.last(torch.relu(self.second(torch.bmm(adjacency, h))).mean(1))

        return Net(width)


class TestRootMeanSquare(Vectors):
    gains = {"b_std": 0.3}

    def module(self, width):
        return nn.Sequential(
            nn.Linear(4, width), nn.ReLU(), nn.RMSNorm(width, eps=0.1), nn.Linear(width, width), nn.RMSNorm(width),
            nn.ReLU(), nn.Linear(width, 1),
        )  # fmt: skip


class TestRootMeanSquareSkip(Vectors):
    """The mean of channels that RMSNorm keeps counts in a sum of two such branches."""

    def module(self, width):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.second, self.last = nn.Linear(4, width), nn.Linear(width, width), nn.Linear(width, 1)
                self.norm = nn.RMSNorm(width, eps=0.1, elementwise_affine=False)

            def forward(self, x):
                h = torch.relu(self.first(x))
                return self.last(self.norm(h) + torch.relu(self.second(h)))

        return Net()


class TestGatedLinearUnit(Vectors):
    gains = {"b_std": 0.2}
    width = 32

    def module(self, width):
        return nn.Sequential(nn.Linear(4, 2 * width), nn.GLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 1))


class TestChunks(Vectors):
    def module(self, width):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, 3 * width), nn.Linear(width, 1)

            def forward(self, x):
                a, b, c = self.first(x).chunk(3, -1)
                return self.last(torch.relu(a) * b + torch.relu(c))

        return Net()


class TestPolynomial(Vectors):
    gains = {"w_std": 1.0, "b_std": 0.2}
    width = 96

    def module(self, width):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, width), nn.Linear(width, 1)

            def forward(self, x):
                u = self.first(x)
                return self.last(u**2 + u)

        return Net()


class TestProductOfFunctions(Vectors):
    def module(self, width):
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.first, self.last = nn.Linear(4, width), nn.Linear(width, 1)

            def forward(self, x):
                u = self.first(x)
                return self.last(u * torch.sigmoid(u) + 0.5 * F.relu(u))

        return Net()
