"""Networks in the words of stax against plain modules, values of neural-tangents 0.6.5 in float64, and formulas."""

import pytest
import torch
from tests.cases import normal
from torch import nn
from torch.nn import functional as F

import ntkit
from ntkit import stax
from ntkit.errors import InputError


def near(found, expected):
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-11)


def values(n, c, seed=0):
    k = torch.arange(n * c, dtype=torch.float64)
    return torch.sin(1.3 * k + 0.1 * k * k + seed).reshape(n, c)


def test_three_functions():
    init_fn, apply_fn, kernel_fn = stax.serial(stax.Dense(512, 1.2, 0.3), stax.Relu(), stax.Dense(1, 1.1, 0.2))
    x, y = values(5, 3)[:1], values(2, 3, seed=1)[:1]
    nngp, ntk = kernel_fn(x, y, ("nngp", "ntk"))
    near(nngp, torch.tensor([[0.305055104704]], dtype=torch.float64))  # neural-tangents
    near(ntk, torch.tensor([[0.449192452522]], dtype=torch.float64))
    assert torch.equal(kernel_fn(x, y, "ntk"), ntk)
    shape, params = init_fn(0, (-1, 3))
    assert shape == (-1, 1)
    assert all(
        torch.equal(one, other) for one, other in zip(params.values(), init_fn(0, (-1, 3))[1].values(), strict=True)
    )
    empirical = ntkit.empirical(stax.serial(stax.Dense(8), stax.Relu(), stax.Dense(1)).build((-1, 3))).ntk(
        x.repeat(2, 1)
    )
    assert empirical.shape == (2, 2)
    assert apply_fn(params, values(4, 3)).shape == (4, 1)
    with pytest.raises(InputError, match="get must be"):
        kernel_fn(x, y, "cov1")
    with pytest.raises(InputError, match="standard"):
        stax.Dense(8, parameterization="standard")


class Plain(nn.Module):
    """What the layers of the test below say, in torch."""

    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(2, 8, 3, stride=2, bias=True), nn.Conv2d(8, 8, 3, bias=False)
        self.head = nn.Linear(8, 1)

    def forward(self, x):
        h = self.first(F.pad(x, (0, 1, 0, 1)))  # six pixels by steps of two: XLA pads on the far side alone
        branch = F.layer_norm(h.movedim(1, -1), (8,), eps=1e-12).movedim(-1, 1)
        h = h + self.second(F.pad(torch.relu(branch), (1, 1, 1, 1), mode="circular"))
        return self.head(F.avg_pool2d(h, 2, 1).sum((2, 3)))


def test_layers_are_those_of_torch():
    _, _, kernel_fn = stax.serial(
        stax.Conv(8, (3, 3), (2, 2), "SAME", 1.4, 0.1),
        stax.FanOut(2),
        stax.parallel(
            stax.Identity(),
            stax.serial(stax.LayerNorm(), stax.Relu(), stax.Conv(8, (3, 3), padding="CIRCULAR", W_std=1.2)),
        ),
        stax.FanInSum(),
        stax.AvgPool((2, 2)),
        stax.GlobalSumPool(),
        stax.Dense(1, 1.0, 0.3),
    )
    x = normal(3, 2, 6, 6)
    own = {"first": {"w_std": 1.4, "b_std": 0.1}, "second": {"w_std": 1.2}, "head": {"w_std": 1.0, "b_std": 0.3}}
    plain = ntkit.infinite_width(Plain(), overrides=own)
    near(kernel_fn(x.movedim(1, -1), None, "ntk"), plain.ntk(x))
    near(kernel_fn(x.movedim(1, -1), x[:1].movedim(1, -1), "nngp"), plain.nngp(x, x[:1]))


ACTIVATIONS = {
    "LeakyRelu": (stax.LeakyRelu(0.1), lambda z: F.leaky_relu(z, 0.1)),
    "Abs": (stax.Abs(), torch.abs),
    "ABRelu": (stax.ABRelu(2.0, 0.5), lambda z: torch.where(z < 0, 2 * z, 0.5 * z)),
    "ABRelu, half": (stax.ABRelu(1.0, 0.0), lambda z: torch.where(z < 0, z, 0 * z)),
    "Erf": (stax.Erf(2.0, 0.5, 0.1), lambda z: 2 * torch.erf(0.5 * z) + 0.1),
    "Gelu": (stax.Gelu(), F.gelu),
    "Sin": (stax.Sin(1.0, 2.0, 0.3), lambda z: torch.sin(2 * z + 0.3)),
    "Cos": (stax.Cos(1.0, 2.0), lambda z: torch.cos(2 * z)),
    "Gaussian": (stax.Gaussian(2.0, -0.5), lambda z: 2 * torch.exp(-0.5 * z * z)),
    "Sigmoid_like": (stax.Sigmoid_like(), lambda z: (1 + torch.erf(z / 2.4020563531719796)) / 2),
    "Monomial": (stax.Monomial(3), lambda z: z**3),
    "RectifiedMonomial": (stax.RectifiedMonomial(2), lambda z: torch.relu(z) ** 2),
    "Elementwise": (stax.Elementwise(torch.tanh), torch.tanh),
}


@pytest.mark.parametrize("name", ACTIVATIONS)
def test_activations(name):
    layer, function = ACTIVATIONS[name]
    z = torch.linspace(-2, 2, 9, dtype=torch.float64)
    torch.testing.assert_close(layer(z), function(z), rtol=1e-12, atol=1e-15)
    _, _, kernel_fn = stax.serial(stax.Dense(8), layer, stax.Dense(1))
    assert float(torch.linalg.eigvalsh(kernel_fn(normal(4, 3), None, "nngp")).min()) > 0


def test_rbf_is_the_gaussian_kernel():
    x = normal(4, 3)
    _, _, kernel_fn = stax.serial(stax.Dense(8), stax.Rbf(0.7))
    near(kernel_fn(x, None, "nngp"), torch.exp(-0.7 * torch.cdist(x, x) ** 2 / 3))


def test_branches_side_by_side_and_multiplied():
    x = normal(3, 4)
    for join in ("concatenated", "multiplied"):
        branches = stax.parallel(stax.Dense(8, 1.2), stax.repeat(lambda: stax.Dense(8, 1.1), 2))
        layer = stax.FanInConcat() if join == "concatenated" else stax.FanInProd()
        _, _, kernel_fn = stax.serial(stax.FanOut(2), branches, layer)
        k1, k2 = 1.2**2 * x @ x.T / 4, 1.1**4 * x @ x.T / 4
        near(kernel_fn(x, None, "nngp"), (k1 + k2) / 2 if join == "concatenated" else k1 * k2)
