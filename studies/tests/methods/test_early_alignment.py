"""The first moments of training, against a tiny step and against the formula with kernels."""

from __future__ import annotations

import copy

import pytest
import torch
from tests.features.cases import build, weight_of
from torch import nn

from ntkit import features
from ntkit.errors import InputError
from ntkit_studies.methods import early_alignment

LOSSES = {
    "mse": lambda f, y: ((f - y) ** 2).sum() / 2,
    "quartic": lambda f, y: ((f - y) ** 4).sum(),
}


@pytest.mark.parametrize("batch_size", [None, 2])
@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("name", ["mlp", "cnn", "residual", "repeated"])
def test_centred_matrices_after_a_tiny_step(name: str, loss: str, batch_size: int | None) -> None:
    module, x = build(name)
    y = torch.randn(module(x).shape, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    found = early_alignment(module, x, y, "mse" if loss == "mse" else LOSSES[loss], batch_size=batch_size)
    moved = copy.deepcopy(module)
    LOSSES[loss](moved(x), y).backward()
    # Long enough for the digits of the weights, short enough for K to stay what it is.
    size = 1e-8 / max(float(parameter.grad.norm()) for parameter in moved.parameters())
    with torch.no_grad():
        for parameter in moved.parameters():
            parameter -= size * parameter.grad
    K = features.ptk_covariance(moved, x)
    for path, early in found.items():
        change = weight_of(moved.get_submodule(path)) - weight_of(module.get_submodule(path))
        P, Q = change.T @ change / size**2, len(x) * change.T @ K[path] @ change / size**2
        assert float((early.P - P).norm()) <= 1e-6 * float(P.norm())
        assert float((early.Q - Q).norm()) <= 1e-6 * float(Q.norm())
        assert early.rho == pytest.approx(features.correlation(P, Q), abs=1e-6)


@pytest.mark.parametrize("scale", [1.0, 0.0])
def test_formula_with_kernels(scale: float) -> None:
    torch.manual_seed(0)
    module = nn.Sequential(
        nn.Linear(4, 6, bias=False), nn.Tanh(), nn.Linear(6, 5, bias=False), nn.Tanh(), nn.Linear(5, 1)
    )
    module = module.double()
    with torch.no_grad():
        module[4].bias.zero_()
    x, y = torch.randn(7, 4, dtype=torch.float64), torch.randn(7, dtype=torch.float64)
    kappa = features.ptk(module, x)
    inputs = {"0": x, "2": module[:2](x).detach(), "4": module[:4](x).detach()}
    D = torch.diag(module(x)[:, 0].detach() - y)
    for path, early in early_alignment(module, x, y).items():
        X, k = inputs[path], kappa[path]
        torch.testing.assert_close(early.P, X.T @ D @ k @ D @ X, rtol=1e-10, atol=1e-12)
        torch.testing.assert_close(early.Q, X.T @ D @ k @ k @ D @ X, rtol=1e-10, atol=1e-12)


def test_quadratic_network_by_its_own_formula() -> None:
    class Quadratic(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.head = nn.Linear(5, 8, bias=False), nn.Linear(8, 1, bias=False)

        def forward(self, x):
            return self.head(self.first(x) ** 2)

    torch.manual_seed(0)
    net, x = Quadratic().double(), torch.randn(9, 5, dtype=torch.float64)
    y = net(x).detach()[:, 0] + torch.randn(9, dtype=torch.float64)
    residual = net(x).detach()[:, 0] - y
    W, a = net.first.weight.detach(), net.head.weight.detach()[0]
    R, C, B = W.T @ torch.diag(a**2) @ W, x.T @ torch.diag(residual) @ x, x.T @ x
    early = early_alignment(net, x, y)["first"]
    torch.testing.assert_close(early.P, 4 * C @ R @ C)
    torch.testing.assert_close(early.Q, 16 * C @ R @ B @ R @ C)


def test_classes() -> None:
    module, x = build("mlp")
    labels = torch.tensor([0, 2, 1, 1, 0])
    twin = copy.deepcopy(module)
    nn.functional.cross_entropy(twin(x), labels, reduction="sum").backward()
    gradient = twin[0].weight.grad
    early = early_alignment(module, x, labels, "cross_entropy")["0"]
    torch.testing.assert_close(early.P, gradient.T @ gradient)


def test_projections_of_attention_and_parametrised_layers() -> None:
    torch.manual_seed(0)
    x, y = torch.randn(5, 3, 4, dtype=torch.float64), torch.randn(5, 2, dtype=torch.float64)
    block = nn.TransformerEncoderLayer(4, 2, 6, dropout=0.0, batch_first=True)
    net = nn.Sequential(block, nn.Flatten(), nn.utils.parametrizations.weight_norm(nn.Linear(12, 2))).double()
    found = early_alignment(net, x, y)
    used = {"0.self_attn.out_proj": net[0].self_attn.out_proj.weight, "2": net[2].weight}
    with nn.utils.parametrize.cached():
        used["2"] = net[2].weight
        gradients = torch.autograd.grad(((net(x) - y) ** 2).sum() / 2, list(used.values()))
    for path, gradient in zip(used, gradients, strict=True):
        torch.testing.assert_close(found[path].P, gradient.T @ gradient, rtol=1e-10, atol=1e-12)


def test_bad_targets() -> None:
    module, x = build("mlp")
    with pytest.raises(InputError, match="shape of the module's output"):
        early_alignment(module, x, torch.zeros(5, dtype=torch.float64))
    with pytest.raises(InputError, match="one target for each"):
        early_alignment(module, x, torch.zeros(4, 3, dtype=torch.float64))
    with pytest.raises(InputError, match="loss must be one of"):
        early_alignment(module, x, torch.zeros(5, 3, dtype=torch.float64), "hinge")
