"""Networks whose input is random with a known covariance."""

import pytest
import torch
from tests.cases import normal
from torch import nn

import ntkit
from ntkit.errors import InputError, InputTypeError


class EverySecond(nn.Module):
    def forward(self, x):
        return x[:, :, ::2, ::2]


def circular(before, after):
    return nn.Conv2d(before, after, 3, padding=1, padding_mode="circular", bias=False)


def hourglass(levels, mode="nearest"):
    """The network of inpainting: stride-2 selections on the way down, up-sampling on the way back."""
    layers = []
    for level in range(levels):
        layers += [circular(4 if level else 1, 4), nn.LeakyReLU(), EverySecond()]
    layers += [circular(4, 4), nn.LeakyReLU()]
    for _ in range(levels):
        layers += [nn.Upsample(scale_factor=2, mode=mode), circular(4, 4), nn.LeakyReLU()]
    return nn.Sequential(*layers[:-1])


NETWORKS = {
    "images": (nn.Sequential(nn.Conv2d(2, 4, 3, padding=1), nn.GELU(), nn.Conv2d(4, 1, 3, padding=1)), (2, 4, 5)),
    "sequences": (nn.Sequential(nn.Conv1d(2, 4, 3), nn.ReLU(), nn.AvgPool1d(2), nn.Conv1d(4, 1, 1)), (2, 8)),
    "tokens": (nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.ReLU(), nn.Linear(4, 2)), (5, 3)),
}


@pytest.mark.parametrize("which", ["nngp", "ntk"])
@pytest.mark.parametrize("name", NETWORKS)
def test_covariance_of_data_gives_the_kernel_of_data(name, which):
    net, shape = NETWORKS[name]
    x = normal(1, *shape)
    limit = ntkit.infinite_width(net, b_std=0.3)
    tokens = name == "tokens"
    flat = x[0].flatten(0, -2).T if tokens else x[0].flatten(1)
    positions = shape[:-1] if tokens else shape[1:]
    covariance = (flat.T @ flat / len(flat)).reshape(*positions, *positions)
    prior = getattr(limit.with_prior(covariance), which)
    expected = getattr(limit, which).positions(x)[0, 0]
    torch.testing.assert_close(prior.positions(), expected, rtol=1e-12, atol=1e-14)
    at = [1] if len(positions) == 1 else [(1, 1), (0, 2)]
    torch.testing.assert_close(
        prior.positions(at=at), getattr(limit, which).positions(x, at=at)[0, 0], rtol=1e-12, atol=1e-14
    )


def test_stationary_is_its_matrix():
    limit = ntkit.infinite_width(hourglass(1))
    matrix = torch.full((16, 16), 0.3, dtype=torch.float64).fill_diagonal_(0.7).reshape(4, 4, 4, 4)
    found = limit.with_prior("stationary", (1, 4, 4), same=0.7, other=0.3).ntk.positions()
    torch.testing.assert_close(found, limit.with_prior(matrix).ntk.positions(), rtol=1e-14, atol=0)


@pytest.mark.parametrize(("levels", "mode", "side"), [(1, "nearest", 4), (2, "nearest", 8), (1, "bilinear", 12)])
def test_torus_of_twice_the_side(levels, mode, side):
    """K[(i, j), (i', j')] depends only on (i, j) modulo 2^levels and on i' - i, j' - j, on any torus that is large enough."""
    limit = ntkit.infinite_width(hourglass(levels, mode))
    period = 2**levels
    corner = [(i, j) for i in range(period) for j in range(period)]
    reach = [(i, j) for i in range(side // 2) for j in range(side // 2)]
    small, large = (
        limit.with_prior("stationary", (1, length, length)).ntk.positions(at=corner + reach)
        for length in (side, 2 * side)
    )
    torch.testing.assert_close(small, large, rtol=1e-12, atol=0)


def test_period_and_constant_of_the_torus():
    k = ntkit.infinite_width(hourglass(1)).with_prior("stationary", (1, 8, 8)).ntk.positions()
    torch.testing.assert_close(k.roll((2, 2, 2, 2), (0, 1, 2, 3)), k, rtol=1e-13, atol=0)
    far = k[0, 0, 2:7, :]
    torch.testing.assert_close(far, far[:1, :1].expand_as(far), rtol=1e-13, atol=0)
    assert k[0, 0, 1, 0] > 1.0001 * far[0, 0]


def test_gradient_in_the_covariance():
    limit = ntkit.infinite_width(nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 1, 1)))
    root = normal(4, 4).requires_grad_(True)
    assert torch.autograd.gradcheck(lambda r: limit.with_prior(r @ r.T).ntk.positions(), root)
    same = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda s: limit.with_prior("stationary", (1, 4), same=s).ntk.positions(), same)


SYMMETRIC = torch.eye(4, dtype=torch.float64)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (("noise",), InputError, "'stationary', or a tensor"),
        (("stationary",), InputError, "input_shape="),
        ((SYMMETRIC.tolist(),), InputTypeError, "list"),
        ((SYMMETRIC.long(),), InputTypeError, "int64"),
        ((SYMMETRIC[:3],), InputError, r"Got \(3, 4\)"),
        ((SYMMETRIC * torch.nan,), InputError, "finite"),
        ((SYMMETRIC + torch.triu(torch.ones(4, 4).double(), 1),), InputError, "symmetric"),
        ((SYMMETRIC + 2 * (1 - SYMMETRIC),), InputError, "semidefinite"),
        ((-SYMMETRIC,), InputError, "semidefinite"),
        ((SYMMETRIC.reshape(2, 2, 2, 2),), InputError, "cannot be read from the module"),
        ((SYMMETRIC, (1, 5)), InputError, r"\(5,\) positions, and the covariance is over \(4,\)"),
    ],
)
def test_bad_priors(arguments, error, words):
    limit = ntkit.infinite_width(nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 1, 1)))
    with pytest.raises(error, match=words):
        limit.with_prior(*arguments)


@pytest.mark.parametrize("other", [2.0, -2.0, float("nan")])
def test_bad_stationary_numbers(other):
    limit = ntkit.infinite_width(nn.Sequential(nn.Conv1d(1, 4, 3), nn.ReLU(), nn.Conv1d(4, 1, 1)))
    with pytest.raises(InputError, match="between -same and same"):
        limit.with_prior("stationary", (1, 5), same=1.0, other=other)


class Skip(nn.Module):
    def __init__(self, before):
        super().__init__()
        self.conv, self.before = nn.Conv1d(1, 1, 3, padding=1), before

    def forward(self, x):
        return x.exp() + self.conv(x) if self.before else x + self.conv(x)


@pytest.mark.parametrize("before", [False, True])
def test_data_read_otherwise_are_refused(before):
    with pytest.raises(InputError, match="reads the input itself, and nothing else does"):
        ntkit.infinite_width(Skip(before)).with_prior("stationary", (1, 5))


def test_window_of_a_prior():
    net = nn.Sequential(nn.Conv1d(1, 4, 3, padding=1), nn.ReLU(), nn.Conv1d(4, 1, 3, padding=1))
    limit, root = ntkit.infinite_width(net), normal(12, 12)
    for prior in (limit.with_prior(root @ root.T), limit.with_prior("stationary", (1, 12))):
        every = prior.ntk.positions()
        torch.testing.assert_close(prior.ntk.positions(at=[5, 6]), every[5:7, 5:7], rtol=1e-13, atol=0)


def test_an_output_without_positions_is_one_number():
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Flatten(), nn.Linear(8, 1))
    found = ntkit.infinite_width(net).with_prior("stationary", input_shape=(2, 3), same=1.0, other=0.5).nngp.positions()
    torch.testing.assert_close(found, torch.tensor(2.0, dtype=torch.float64))  # every layer of gain sqrt(2) keeps 2 q
