"""Layers of a transformer block against its formula, written out in float64."""

from __future__ import annotations

import math

import pytest
import torch
from tests.cases import normal
from torch import Tensor, nn
from torch.nn import functional as F

import ntkit
from ntkit import features
from ntkit.errors import InputError

POSITIONS, WIDTH, HEADS = 3, 4, 2
PATHS = ("0.self_attn.out_proj", "0.linear1", "0.linear2")
X = normal(5, POSITIONS, WIDTH, seed=1)


def block(norm_first: bool = False) -> nn.Sequential:
    with torch.random.fork_rng():
        torch.manual_seed(0)
        layer = nn.TransformerEncoderLayer(
            WIDTH, HEADS, 6, dropout=0.0, activation="gelu", batch_first=True, norm_first=norm_first
        )
        net = nn.Sequential(layer, nn.Flatten(), nn.Linear(POSITIONS * WIDTH, 2)).double().eval()
        for parameter in net.parameters():
            parameter.data += 0.3 * torch.randn_like(parameter)
    return net


def normalized(norm: nn.LayerNorm, x: Tensor) -> Tensor:
    centred = x - x.mean(-1, keepdim=True)
    return norm.weight * centred / (centred.square().mean(-1, keepdim=True) + norm.eps).sqrt() + norm.bias


def written_out(net: nn.Sequential, x: Tensor, shifts: dict[str, Tensor]) -> tuple[Tensor, dict[str, Tensor]]:
    """Return the outputs for one input, (2,), with a shift added to each pre-activation, and the layers' inputs."""
    layer, inputs = net[0], {}

    def linear(path: str, a: Tensor) -> Tensor:
        own = net.get_submodule(path)
        inputs[path] = a.detach()
        return a @ own.weight.T + own.bias + shifts[path]

    def attention(x: Tensor) -> Tensor:
        own = layer.self_attn
        q, k, v = (
            part.reshape(POSITIONS, HEADS, -1).transpose(0, 1)
            for part in (x @ own.in_proj_weight.T + own.in_proj_bias).chunk(3, -1)
        )
        weights = torch.softmax(q @ k.mT / math.sqrt(WIDTH / HEADS), -1)
        return linear(PATHS[0], (weights @ v).transpose(0, 1).reshape(POSITIONS, WIDTH))

    def feed_forward(x: Tensor) -> Tensor:
        h = linear(PATHS[1], x)
        return linear(PATHS[2], h * (1 + torch.erf(h / math.sqrt(2))) / 2)

    if layer.norm_first:
        x = x + attention(normalized(layer.norm1, x))
        x = x + feed_forward(normalized(layer.norm2, x))
    else:
        x = normalized(layer.norm1, x + attention(x))
        x = normalized(layer.norm2, x + feed_forward(x))
    return x.flatten() @ net[2].weight.T + net[2].bias, inputs


def oracle(net: nn.Sequential, x: Tensor, path: str) -> tuple[Tensor, Tensor]:
    """Return J = df/dh, (n, 2, positions, out), and the layer's inputs, (n, positions, in)."""
    zeros = {each: x.new_zeros(POSITIONS, net.get_submodule(each).out_features) for each in PATHS}
    jacobians, inputs = [], []
    for row in x:
        jacobians.append(
            torch.autograd.functional.jacobian(
                lambda shift, row=row: written_out(net, row, {**zeros, path: shift})[0], zeros[path]
            )
        )
        inputs.append(written_out(net, row, zeros)[1][path])
    return torch.stack(jacobians), torch.stack(inputs)


@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("frozen", [False, True])
@pytest.mark.parametrize("path", PATHS)
def test_every_measure_equals_the_formula(path: str, frozen: bool, norm_first: bool) -> None:
    net = block(norm_first).requires_grad_(not frozen)
    values = torch.stack([written_out(net, row, dict.fromkeys(PATHS, torch.zeros(())))[0] for row in X])
    torch.testing.assert_close(values, net(X))
    J, a = oracle(net, X, path)
    W = net.get_submodule(path).weight.detach()
    K = torch.einsum("ncpi,ncpj->ij", J, J) / len(X)
    expected = W.T @ K @ W
    close = {"rtol": 1e-10, "atol": 1e-12}
    torch.testing.assert_close(features.ptk_covariance(net, X)[path], K, **close)
    torch.testing.assert_close(features.agop(net, X, batch_size=2)[path], expected, **close)
    torch.testing.assert_close(features.ptk(net, X)[path], torch.einsum("ncpi,mcpi->nm", J, J), **close)
    derivatives = torch.einsum("ncpi,npj->ncij", J, a)
    tangent = torch.einsum("ncij,mcij->nm", derivatives, derivatives)
    torch.testing.assert_close(features.layer_ntk(net, X)[path], tangent, **close)
    F_ = W.T @ W
    cosine = float((F_ * expected).sum() / (F_.norm() * expected.norm()))
    assert features.nfa(net, X)[path].uncentred == pytest.approx(cosine, rel=1e-10)
    assert features.Recorder(net, X).history.measures[path]["uncentred"][0] == pytest.approx(cosine, rel=1e-10)
    if path == PATHS[0]:  # nothing else reads what the projection reads
        torch.testing.assert_close(features.agop(net, X, total=True)[path], expected, **close)


def test_movement_from_an_initial_state() -> None:
    net, path = block(), PATHS[0]
    initial = {name: value.clone() for name, value in net.state_dict().items()}
    J0, _ = oracle(net, X, path)
    with torch.no_grad():
        for parameter in net.parameters():
            parameter += 0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(2)).double()
    J, _ = oracle(net, X, path)
    change = net[0].self_attn.out_proj.weight.detach() - initial["0.self_attn.out_proj.weight"]
    moved = torch.einsum("ncpi,ncpj->ij", J - J0, J - J0)
    F_, G = change.T @ change, change.T @ moved @ change
    expected = float((F_ * G).sum() / (F_.norm() * G.norm()))
    assert features.nfa(net, X, initial=initial)[path].double_centred == pytest.approx(expected, rel=1e-9)


class Shared(nn.Module):
    """A forward that uses a layer's weight in a function, and calls another."""

    def __init__(self) -> None:
        super().__init__()
        self.read, self.called = nn.Linear(4, 3), nn.Linear(3, 1)

    def forward(self, x: Tensor) -> Tensor:
        return self.called(F.linear(x, self.read.weight))


def test_layers_that_are_not_called_are_named_as_such() -> None:
    with pytest.raises(InputError, match=r"never calls 'read'\. Call the layer.*layers=\['called'\]"):
        features.nfa(Shared(), torch.ones(2, 4))
    net = block()
    net[0].self_attn.out_proj.register_forward_hook(lambda layer, args, output: 2 * output)  # attention does not run it
    with pytest.raises(InputError, match=r"never calls '0\.self_attn\.out_proj'"):
        features.ptk(net, X)
    with pytest.raises(InputError, match="must be paths of linear or convolutional layers"):
        features.ptk(block(), X, layers=["0.self_attn.in_proj_weight"])


def test_attention_is_its_own_again_afterwards() -> None:
    net = block()
    projection = net[0].self_attn.out_proj
    features.ptk(net, X)
    assert net[0].self_attn.out_proj is projection and "forward" not in vars(net[0].self_attn)
    assert torch.backends.mha.get_fastpath_enabled()


@pytest.mark.parametrize("gradients", [False, True])
def test_other_derivatives_of_attention_do_not_take_the_fast_path(gradients: bool) -> None:
    net = block()
    bias_jacobians = {path: oracle(net, X, path)[0].sum(2) for path in PATHS}
    with torch.set_grad_enabled(gradients):
        for path in PATHS:
            for name, parameter in net.named_parameters():
                parameter.requires_grad_(name == f"{path}.bias")
            own = bias_jacobians[path]
            expected = torch.einsum("nci,mci->nm", own, own) / 2
            for method in ("structured", "jacobian", "ntk-vp"):
                torch.testing.assert_close(ntkit.empirical(net, method=method).ntk(X), expected)
            torch.testing.assert_close(ntkit.hierarchy_kernel(net, X, output=0), own[:, 0] @ own[:, 0].T)
            linear = ntkit.linearize(net)
            shift = torch.linspace(-1, 1, own.shape[2], dtype=torch.float64)
            linear.module.get_submodule(path).bias.data += shift
            torch.testing.assert_close(linear(X).detach(), net(X).detach() + own @ shift)
